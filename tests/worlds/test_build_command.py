"""``toolemu worlds`` asks a model for the worlds of cases, and writes those that code can prove."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from pytest_toolemu.cli import app
from pytest_toolemu.core.case_loading import load_case
from pytest_toolemu.core.world.built_world import BuiltWorld, read_world
from pytest_toolemu.emulators.world_builder import builder_key
from pytest_toolemu.errors import UsageError
from pytest_toolemu.sessions.manifest_records import StoredWorldBuild
from tests.loopback.fixtures import Loopback
from tests.loopback.records import Reply, Request, Usage
from tests.loopback.scripts import replies
from tests.loopback.server import LoopbackServer
from tests.worlds.test_built_worlds import REPLY, with_part
from tests.worlds.test_case_rows import CASE, write

UNPROVED = with_part("proof", "careful_reads", 0, "shows", value=["B-99"])


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project with a case, which is the current folder; its key is accepted by the loopback server."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-openai-0123456789")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    write(tmp_path)
    return tmp_path


def reply(content: dict[str, Any]) -> Reply:
    return Reply(json.dumps(content), usage=Usage(input=1000, output=200))


def build(server: LoopbackServer, *options: str) -> Result:
    model = f"--model=openai:gpt-4o@{server.url}/v1"
    return CliRunner().invoke(app, ["worlds", "tram.toolemu.yaml", model, "--to=worlds", *options])


def prompts(server: LoopbackServer) -> list[Request]:
    return [request for request in server.requests if request.messages]


def worlds(library: Path) -> list[BuiltWorld]:
    """Return the worlds in the folder, by their numbers."""
    resolved_case = load_case(library / "tram.toolemu.yaml")
    paths = sorted((library / "worlds").iterdir(), key=lambda path: path.name.rpartition("-")[2])
    return [read_world(path, builder_key(resolved_case, number)) for number, path in enumerate(paths, 1)]


def test_a_world_is_built_once(library: Path, loopback: Loopback) -> None:
    server = loopback(replies([reply(REPLY)]))
    result = build(server)
    assert result.exit_code == 0, result.output
    assert result.stdout == (
        "1 world built (0 after corrections), 0 already in worlds; 1,000 input and 200 output tokens\n"
    )
    (world,) = worlds(library)
    assert (world.case_id, world.variant, world.repairs) == ("tram", 1, ())
    assert [book["book_id"] for book in world.rows["Library"]["book"]] == ["B-31", "B-48"]
    content = (library / "worlds").joinpath(f"tram--{world.key[:12]}-1.world.json").read_bytes()

    again = build(server)
    assert again.stdout == "0 worlds built (0 after corrections), 1 already in worlds; 0 input and 0 output tokens\n"
    assert len(prompts(server)) == 1
    assert (library / "worlds").joinpath(f"tram--{world.key[:12]}-1.world.json").read_bytes() == content


def test_a_changed_case_gets_a_new_world(library: Path, loopback: Loopback) -> None:
    server = loopback(replies([reply(REPLY), reply(REPLY)]))
    assert build(server).exit_code == 0
    write(library, case=CASE.replace("Tove", "Ada"))
    assert build(server).stdout.startswith("1 world built (0 after corrections), 0 already in worlds; ")
    assert len(list((library / "worlds").iterdir())) == 2


def test_a_further_world_is_to_differ_from_the_earlier_ones(library: Path, loopback: Loopback) -> None:
    other = with_part("design", "scenario", value="Two night trams.")
    server = loopback(replies([reply(REPLY), reply(other)]))
    result = build(server, "--worlds=2")
    assert result.exit_code == 0, result.output
    assert [world.design.scenario for world in worlds(library)] == ["Two trams.", "Two night trams."]
    first, second = prompts(server)
    assert "Two trams." not in first.prompt
    assert "Two trams." in second.prompt


def test_a_corrected_world_counts_all_of_its_tokens(library: Path, loopback: Loopback) -> None:
    result = build(loopback(replies([reply(UNPROVED), reply(REPLY)])))
    assert result.stdout == (
        "1 world built (1 after corrections), 0 already in worlds; 2,000 input and 400 output tokens\n"
    )
    (world,) = worlds(library)
    assert any("the result does not contain 'B-99'" in repair for repair in world.repairs)


def test_a_fallback_builds_the_world_that_the_first_model_refuses(library: Path, loopback: Loopback) -> None:
    server = loopback(lambda request: Reply(refusal="No.") if request.model == "shy" else reply(REPLY))
    result = build(server, f"--model=openai:shy@{server.url}/v1|openai:gpt-4o@{server.url}/v1")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("1 world built (0 after corrections, 1 by a fallback model), 0 already in worlds; ")
    assert "openai:shy refused as builder, so openai:gpt-4o was asked for 1 answer of 1 case" in result.stdout
    (world,) = worlds(library)
    assert world.model["name"] == "gpt-4o"
    assert [request.model for request in prompts(server)] == ["shy", "gpt-4o"]


def test_a_world_that_cannot_be_proved_is_reported_and_not_written(library: Path, loopback: Loopback) -> None:
    result = build(loopback(replies([reply(UNPROVED)] * 3)))
    assert result.exit_code == 1
    error = " ".join(result.stderr.split())
    assert "tram.toolemu.yaml: world 1 was not built: " in error
    assert "gave no usable world after 2 requests for a correction" in error
    (failure,) = (library / "worlds").iterdir()
    assert error.endswith(f"; its requests and replies are in worlds/{failure.name}")
    assert result.stdout == (
        "0 worlds built (0 after corrections), 1 not built, 0 already in worlds; 3,000 input and 600 output tokens\n"
    )
    stored = StoredWorldBuild.model_validate_json(failure.read_text(encoding="utf-8"))
    assert [call.reply.text for call in stored.model_calls if call.reply] == [json.dumps(UNPROVED)] * 3
    assert "the result does not contain 'B-99'" in stored.messages[-1].content
    assert "gave no usable world" in stored.problem


def test_the_record_of_a_failed_attempt_is_removed_once_the_world_is_built(library: Path, loopback: Loopback) -> None:
    server = loopback(replies([*[reply(UNPROVED)] * 3, reply(REPLY)]))
    assert build(server).exit_code == 1
    assert build(server).exit_code == 0
    assert len(worlds(library)) == 1


def test_cases_without_entities_are_skipped(library: Path, loopback: Loopback) -> None:
    tool = "{name: Look, description: Look., parameters: {type: object}, returns: {type: object}, effect: read}"
    archive = f"name: Archive\ntitle: Archive\ncategory: culture\ndescription: Old books.\ntools: [{tool}]\n"
    (library / "toolkits" / "Archive.toolkit.yaml").write_text(archive, encoding="utf-8")
    case = "title: Look\ntoolkits: [Archive]\ninstruction: Look.\n"
    (library / "look.toolemu.yaml").write_text(case, encoding="utf-8")
    server = loopback(replies([reply(REPLY)]))
    result = build(server, "look.toolemu.yaml")
    assert result.exit_code == 0, result.output
    assert result.stdout.endswith("1 case skipped: no toolkit declares entities\n")
    (library / "tram.toolemu.yaml").unlink()
    model = f"--model=openai:gpt-4o@{server.url}/v1"
    alone = CliRunner().invoke(app, ["worlds", "look.toolemu.yaml", model, "--to=worlds"])
    assert isinstance(alone.exception, UsageError)
    assert str(alone.exception) == "no case has a toolkit that declares entities, so there is nothing to build"


def test_a_folder_that_is_a_file_is_one_message(library: Path, loopback: Loopback) -> None:
    (library / "worlds").write_text("a file", encoding="utf-8")
    server = loopback(replies([]))
    result = build(server)
    assert isinstance(result.exception, UsageError)
    assert str(result.exception) == (
        "worlds: worlds cannot be written there: File exists; name another folder with --to"
    )
    assert server.requests == ()


def test_an_estimate_sends_and_writes_nothing(library: Path, loopback: Loopback) -> None:
    server = loopback(replies([]))
    result = build(server, "--worlds=2", "--estimate")
    assert result.exit_code == 0, result.output
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert lines[1].startswith("builder openai:gpt-4o 2 (2 to 6) ")
    assert lines[2].startswith("2 worlds: about ")
    assert lines[-1] == "Nothing was sent."
    assert server.requests == ()
    assert not (library / "worlds").exists()


def test_an_estimate_is_for_missing_worlds_only(loopback: Loopback, library: Path) -> None:
    server = loopback(replies([reply(REPLY)]))
    assert build(server).exit_code == 0
    assert (library / "worlds").is_dir()
    assert build(server, "--estimate").stdout == "no world is missing in worlds, so nothing was sent\n"
