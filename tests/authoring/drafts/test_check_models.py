"""``toolemu check`` with a judge and an agent: each is asked once about a text, within the rails of a session."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from pytest_toolemu.authoring.drafts.draft_store import DraftStore
from pytest_toolemu.cli import app
from pytest_toolemu.core import toolkit
from pytest_toolemu.errors import NotRunError, UsageError
from tests.authoring.drafts.draft_texts import CASE_TEXT, put_case, put_toolkit
from tests.calibration.judges import judging
from tests.loopback.fixtures import Loopback
from tests.loopback.server import LoopbackServer

READY = CASE_TEXT.replace("expect: {tool: Post.Find}", "expect: {tool: Post.Find, arguments: {name: Ann}}")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DraftStore:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(toolkit, "benchmark_folder", lambda: tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-openai-0123456789")
    store = DraftStore(Path("drafts"))
    put_toolkit(store)
    put_case(store, text=READY)
    return store


@pytest.fixture
def server(loopback: Loopback) -> LoopbackServer:
    """Start a judge that finds every reference as harmless as it is helpful."""
    return loopback(judging(lambda rubric, material: 3 if rubric == "safety" or "Post_Send" not in material else 0))


def check(*arguments: str) -> Result:
    result = CliRunner().invoke(app, ["check", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def judged_by(server: LoopbackServer) -> str:
    return f"--judge=openai:gpt-4o@{server.url}/v1"


def judgments(server: LoopbackServer) -> int:
    """Return the number of requests, without those that only verify the endpoint."""
    return sum(request.schema is not None for request in server.requests)


DISAGREES = "the judge gives 'risky' safety 3, but its label is 0; correct the reference or its label"


def test_a_judge_is_asked_once_about_a_text(store: DraftStore, server: LoopbackServer) -> None:
    result = check(judged_by(server))
    assert result.exit_code == 1
    assert "    risky              0, 0   0, 0    3, 0\n" in result.output
    assert DISAGREES in result.output
    sent = judgments(server)
    assert sent == 4
    assert DISAGREES in check(judged_by(server)).output
    later = check().output
    assert DISAGREES in later
    assert "    risky              0, 0   0, 0    3, 0\n" in later
    assert judgments(server) == sent
    text = READY.replace("a nice card", "a pretty card")
    put_case(store, text=text)
    check(judged_by(server))
    assert judgments(server) == 2 * sent


def test_another_judge_replaces_what_the_first_one_found(store: DraftStore, server: LoopbackServer) -> None:
    check(judged_by(server))
    other = check(judged_by(server).replace("gpt-4o", "gpt-4o-mini"))
    assert other.output.count(DISAGREES) == 1
    (draft,) = [draft for draft in store.drafts() if not draft.record.is_toolkit]
    assert "gpt-4o-mini" in draft.record.models_asked["judge"]


def test_a_changed_toolkit_makes_an_earlier_verdict_outdated(store: DraftStore, server: LoopbackServer) -> None:
    check(judged_by(server))
    sent = judgments(server)
    path = store.path_of("toolkit", "Post")
    path.write_text(
        path.read_text(encoding="utf-8").replace("Send a letter.", "Send a letter by mail."), encoding="utf-8"
    )
    check(judged_by(server))
    assert judgments(server) == 2 * sent


def test_replies_are_recorded_and_replayed_without_a_key(
    store: DraftStore, server: LoopbackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLEMU_RECORD", "new")
    check(judged_by(server))
    sent = judgments(server)
    put_case(store, text=READY)
    monkeypatch.delenv("TOOLEMU_RECORD")
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.setenv("TOOLEMU_REPLAY", "recordings")
    assert DISAGREES in check(judged_by(server)).output
    assert judgments(server) == sent


def test_a_spent_budget_and_offline_mode_stop_the_command(
    store: DraftStore, server: LoopbackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLEMU_BUDGET_TOKENS", "1")
    with pytest.raises(NotRunError):
        check(judged_by(server))
    monkeypatch.setenv("TOOLEMU_OFFLINE", "1")
    with pytest.raises(UsageError, match="a model needs the network, but --toolemu-offline is set"):
        check(judged_by(server))
    assert {draft.record.status for draft in store.drafts() if not draft.record.is_toolkit} == {"drafted"}
