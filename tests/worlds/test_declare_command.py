"""``toolemu declare`` asks a model for the data model of a toolkit, and writes only declarations that work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from pytest_toolemu.cli import app
from pytest_toolemu.core.toolkit_files import load_toolkit
from pytest_toolemu.errors import DocumentError, UsageError
from pytest_toolemu.formats.yaml_document import dump
from tests.loopback.fixtures import Loopback
from tests.loopback.records import Reply, Request
from tests.loopback.scripts import replies
from tests.loopback.server import LoopbackServer
from tests.worlds.test_declare import DECLARED, PLAIN, REPLY, with_operation

FILE = "Library.toolkit.yaml"
MISTAKEN = with_operation("LendBook", create="lone")
KEY = "sk-canary-openai-0123456789"


@pytest.fixture
def toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a toolkit without declarations in the current folder."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    path = tmp_path / FILE
    path.write_text(dump(PLAIN), encoding="utf-8")
    return path


def declare(server: LoopbackServer, *options: str) -> Result:
    return CliRunner().invoke(app, ["declare", FILE, f"--model=openai:gpt-4o@{server.url}/v1", *options])


def reply(content: dict[str, Any]) -> Reply:
    return Reply(json.dumps(content))


def prompts(server: LoopbackServer) -> list[Request]:
    return [request for request in server.requests if request.messages]


def test_the_file_gets_the_declarations_of_the_reply(toolkit: Path, loopback: Loopback) -> None:
    result = declare(loopback(replies([reply(REPLY)])))
    assert result.exit_code == 0, result.output
    assert result.stdout == (
        f"{FILE}: entities: 2; tools with an operation: 6 of 7\n"
        "without an operation, so the emulator answers them: DescribeBook\n"
    )
    declared = load_toolkit(toolkit)
    assert list(declared.entities) == ["book", "loan"]
    assert [tool.name for tool in declared.tools if "operation" in tool.inferred] == [
        tool["name"] for tool in DECLARED["tools"] if "operation" in tool
    ]


def test_a_copy_leaves_the_file_as_it_was(toolkit: Path, loopback: Loopback) -> None:
    before = toolkit.read_bytes()
    result = declare(loopback(replies([reply(REPLY)])), "--to=declared")
    assert result.stdout.startswith(f"declared/{FILE}: entities: 2; ")
    assert toolkit.read_bytes() == before
    assert load_toolkit(toolkit.parent / "declared" / FILE).is_declared


def test_declarations_that_do_not_work_are_sent_back(toolkit: Path, loopback: Loopback) -> None:
    server = loopback(replies([reply(MISTAKEN), reply(REPLY)]))
    assert declare(server).exit_code == 0
    assert "the toolkit has no entity 'lone'; did you mean 'loan'?" in prompts(server)[1].messages[-1].text
    assert load_toolkit(toolkit).is_declared


@pytest.mark.parametrize(
    ("answers", "problem"),
    [
        ([reply(MISTAKEN)] * 3, "gave no usable declarations after 2 requests for a correction: "),
        ([Reply(refusal="I cannot help with that.")], "refused: I cannot help with that."),
    ],
    ids=["never valid", "refused"],
)
def test_without_valid_declarations_nothing_is_written(
    toolkit: Path, loopback: Loopback, answers: list[Reply], problem: str
) -> None:
    before = toolkit.read_bytes()
    result = declare(loopback(replies(answers)))
    assert (result.exit_code, result.stdout) == (1, "")
    error = " ".join(result.stderr.split())
    assert error.startswith(f"{FILE}: ")
    assert problem in error
    assert toolkit.read_bytes() == before


def test_a_wrong_key_is_reported_before_anything_is_asked(toolkit: Path, loopback: Loopback) -> None:
    before = toolkit.read_bytes()
    server = loopback(replies([]), key="sk-another-key-0123456789")
    result = declare(server)
    assert isinstance(result.exception, UsageError)
    assert "401" in str(result.exception)
    assert KEY not in str(result.exception)
    assert prompts(server) == []
    assert toolkit.read_bytes() == before


@pytest.mark.usefixtures("toolkit")
def test_a_toolkit_with_declarations_is_refused(loopback: Loopback) -> None:
    server = loopback(replies([reply(REPLY)]))
    assert declare(server).exit_code == 0
    again = declare(server)
    assert isinstance(again.exception, UsageError)
    assert str(again.exception) == (
        f"{FILE}: already has entities or operations; remove them first, or name another toolkit"
    )


def test_a_file_that_is_no_toolkit_is_refused(toolkit: Path, loopback: Loopback) -> None:
    server = loopback(replies([]))
    toolkit.write_text("title: A case\n", encoding="utf-8")
    result = declare(server)
    assert isinstance(result.exception, DocumentError)
    toolkit.unlink()
    result = declare(server)
    assert result.exit_code == 2
    assert "yaml' does not exist." in " ".join(result.stderr.split())
    assert server.requests == ()
