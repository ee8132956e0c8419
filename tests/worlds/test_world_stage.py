"""A session builds the worlds that its folder lacks before the first case: once, for all agents, trials, and workers."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_toolemu.components import Components
from pytest_toolemu.core.case_loading import load_case
from pytest_toolemu.core.messages import ModelRequest
from pytest_toolemu.core.messages import Reply as ModelReply
from pytest_toolemu.core.world.built_world import write_world
from pytest_toolemu.emulators.world_builder import PlannedWorld, WorldStage, build_world
from pytest_toolemu.errors import ModelError
from pytest_toolemu.scheduling.request_limits import LIMIT
from pytest_toolemu.settings.model_names import AgentConfig
from pytest_toolemu.settings.resolution import resolve
from tests import processes
from tests.loopback.fixtures import Loopback
from tests.loopback.records import Fault, Reply, Request
from tests.loopback.scripts import replies
from tests.loopback.server import LoopbackServer
from tests.scripted_model import ScriptedModel
from tests.worlds.test_build_command import UNPROVED, prompts, reply
from tests.worlds.test_built_worlds import CONFTEST, OPTIONS, REPLY, answers, with_part
from tests.worlds.test_built_worlds import session as run
from tests.worlds.test_case_rows import CASE, write

OTHER = with_part("rows", "Library", "book", 0, "book_id", value="B-77")
OTHER["proof"]["careful_reads"][0]["shows"] = ["B-77"]
WORKERS = pytest.mark.parametrize("workers", [("-p", "no:xdist"), ("-n", "2")], ids=["alone", "workers"])


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Return a project with a case, an agent that lists all books, and a judge that accepts everything."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-openai-0123456789")
    for name in ("OPENAI_BASE_URL", "CI", "GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)
    write(pytester.path)
    pytester.makeconftest(CONFTEST)
    return pytester


def second_case(project: pytest.Pytester) -> None:
    (project.path / "bus.toolemu.yaml").write_text(CASE.replace("tram", "bus"), encoding="utf-8")


def session(
    project: pytest.Pytester, server: LoopbackServer, *options: str, worlds: str = "worlds"
) -> pytest.RunResult:
    builder = f"--toolemu-builder=openai:gpt-4o@{server.url}/v1"
    return run(project, "--toolemu-world=built", f"--toolemu-worlds={worlds}", builder, *options)


def files(project: pytest.Pytester, folder: str = "worlds") -> dict[str, bytes]:
    return {path.name.partition("--")[0]: path.read_bytes() for path in (project.path / folder).glob("*.world.json")}


def newest(project: pytest.Pytester, name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(sorted(project.path.glob(f".toolemu/*/{name}"))[-1].read_text())
    return content


def text(result: pytest.RunResult) -> str:
    return " ".join(result.stdout.str().split())


@WORKERS
def test_each_missing_world_is_built_once_for_all_trials(
    project: pytest.Pytester, loopback: Loopback, workers: tuple[str, ...]
) -> None:
    server = loopback(replies([reply(REPLY), reply(OTHER)]))
    options = ("--toolemu-trials=3", *workers)
    result = session(project, server, *options, worlds="worlds:2")
    result.assert_outcomes(passed=3)
    assert len(prompts(server)) == 2
    assert answers(project.path) == ["B-48, B-31", "B-48, B-31", "B-48, B-77"]
    assert "toolemu: building 2 worlds with gpt-4o in worlds" in text(result)
    assert "worlds: 2 worlds built by gpt-4o (0 after corrections)" in text(result)
    manifest = newest(project, "session.json")
    counts = {"builder": "gpt-4o", "built": 2, "corrected": 0, "failed": 0, "by_fallback": 0}
    assert manifest["worlds"] == counts
    cost = manifest["cost"]["builder"]
    assert (cost["calls"], cost["input"], cost["output"]) == (2, 2000, 400)
    roles = [call["role"] for build in newest(project, "worlds.json")["builds"] for call in build["model_calls"]]
    assert roles == ["builder", "builder"]

    before = files(project)
    again = session(project, server, *options, "--toolemu-resume", worlds="worlds:2")
    again.assert_outcomes(passed=3)
    assert len(prompts(server)) == 2
    assert files(project) == before
    assert newest(project, "session.json")["worlds"] is None


@WORKERS
def test_a_case_without_its_world_is_not_run_and_no_other_case_is_affected(
    project: pytest.Pytester, loopback: Loopback, workers: tuple[str, ...]
) -> None:
    second_case(project)
    server = loopback(replies([*[reply(UNPROVED)] * 3, reply(REPLY)]))
    options = ("--toolemu-concurrency=1", *workers)
    result = session(project, server, *options)
    assert "= 1 passed, 1 not run in " in text(result)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    reason = "world 1 of bus was not built: the builder (gpt-4o) gave no usable world after 2 requests for a correction"
    assert f"custom agent: 1 of 1 not run: {reason}" in text(result)
    assert "1 world built by gpt-4o (0 after corrections), 1 not built" in text(result)
    assert list(files(project)) == ["tram"]
    failed = newest(project, "worlds.json")["builds"][0]
    assert (failed["case_id"], len(failed["model_calls"])) == ("bus", 3)
    manifest = newest(project, "session.json")
    assert manifest["not_run"] == 1
    assert manifest["cost"]["builder"]["calls"] == 4

    later = loopback(replies([reply(REPLY)]))
    resumed = session(project, later, *options, "--toolemu-resume")
    resumed.assert_outcomes(passed=2)
    assert len(prompts(later)) == 1
    assert "1 live, 1 resumed" in text(resumed)


def test_an_agent_that_changes_the_folder_does_not_hide_the_worlds(
    project: pytest.Pytester, loopback: Loopback
) -> None:
    second_case(project)
    project.makeconftest(
        CONFTEST.replace(
            "async def agent(task, toolbox):", "async def agent(task, toolbox):\n    __import__('os').chdir('/')"
        )
    )
    server = loopback(replies([reply(REPLY), reply(REPLY)]))
    session(project, server, "-otoolemu_run_ahead=never").assert_outcomes(passed=2)


@WORKERS
def test_a_python_test_sees_the_built_rows(
    project: pytest.Pytester, loopback: Loopback, workers: tuple[str, ...]
) -> None:
    project.makepyfile(
        test_rows="""
        import pytest
        @pytest.mark.toolemu(cases="tram.toolemu.yaml")
        def test_rows(toolemu_case):
            assert [book["book_id"] for book in toolemu_case.world["Library"]["book"]] == ["B-31", "B-48"]
        """
    )
    server = loopback(replies([reply(REPLY)]))
    session(project, server, *workers).assert_outcomes(passed=2)
    assert len(prompts(server)) == 1


def test_worlds_of_deselected_cases_are_not_built(project: pytest.Pytester, loopback: Loopback) -> None:
    second_case(project)
    server = loopback(replies([reply(REPLY)]))
    session(project, server, "-k", "tram").assert_outcomes(passed=1, deselected=1)
    assert list(files(project)) == ["tram"]


def test_a_shard_builds_the_worlds_of_its_own_cases(project: pytest.Pytester, loopback: Loopback) -> None:
    for number in range(4):
        (project.path / f"case{number}.toolemu.yaml").write_text(CASE, encoding="utf-8")
    server = loopback(replies([reply(REPLY)] * 5))
    built = []
    for shard in (1, 2):
        result = session(project, server, f"--toolemu-shard={shard}/2", worlds=f"worlds{shard}")
        assert result.ret == 0
        built.append(set(files(project, f"worlds{shard}")))
    assert built[0] | built[1] == {"tram", *(f"case{number}" for number in range(4))}
    assert not built[0] & built[1]
    assert len(prompts(server)) == 5


@pytest.mark.parametrize(
    ("agents", "options", "builder"),
    [
        (("gpt-4o",), {}, "gpt-4o"),
        (("gpt-4o", "reference:safe"), {}, "gpt-4o"),
        (("gpt-4o", "claude-sonnet-5-5"), {}, ""),
        (("gpt-4o", "claude-sonnet-5-5"), {"toolemu_emulator": "gpt-5"}, "gpt-5"),
        (("reference:safe",), {}, ""),
        (("gpt-4o",), {"toolemu_emulator": "offline"}, ""),
        (("gpt-4o",), {"toolemu_builder": "gpt-5"}, "gpt-5"),
        (("gpt-4o",), {"toolemu_builder": "none"}, ""),
    ],
)
def test_the_builder_is_the_configured_model_or_the_only_one_that_emulates(
    agents: tuple[str, ...], options: dict[str, str], builder: str
) -> None:
    settings = resolve(options.get, lambda _: None, {})
    assert Components(settings).names.builder([AgentConfig(agent) for agent in agents]) == builder


def test_nothing_is_built_to_list_the_cases(project: pytest.Pytester, loopback: Loopback) -> None:
    server = loopback(replies([]))
    result = session(project, server, "--collect-only", "-q")
    assert "tram.toolemu.yaml::tram" in text(result)
    assert server.requests == ()


def test_with_builder_none_a_missing_world_is_an_error(project: pytest.Pytester) -> None:
    options = ("--toolemu-world=built", "--toolemu-worlds=worlds", "--toolemu-builder=none")
    result = project.runpytest(*OPTIONS, "--toolemu-agent=gpt-4o", *options)
    assert "tram: there is no world 1 for this version of the case and its toolkits in worlds; run: " in text(result)
    assert "or let the session build it with --toolemu-builder=MODEL" in text(result)


def test_a_builder_that_is_no_model_is_refused_before_anything_runs(project: pytest.Pytester) -> None:
    options = ("--toolemu-world=built", "--toolemu-worlds=worlds", "--toolemu-builder=offlin")
    result = project.runpytest(*OPTIONS, *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "'offlin'" in " ".join(result.stderr.str().split())


def test_a_folder_that_cannot_be_written_is_reported_before_anything_is_paid(
    project: pytest.Pytester, loopback: Loopback
) -> None:
    (project.path / "worlds").write_text("")
    server = loopback(replies([]))
    result = session(project, server)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "toolemu: no world can be written to worlds: File exists" in " ".join(result.stderr.str().split())
    assert prompts(server) == []


def test_records_that_cannot_be_written_are_reported_before_anything_is_paid(
    project: pytest.Pytester, loopback: Loopback
) -> None:
    (project.path / "records").write_text("")
    server = loopback(replies([]))
    result = session(project, server, "--toolemu-run-dir=records")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "name another folder with --toolemu-run-dir" in " ".join(result.stderr.str().split())
    assert prompts(server) == []


def test_a_spent_budget_ends_the_stage_and_says_so(project: pytest.Pytester, loopback: Loopback) -> None:
    second_case(project)
    server = loopback(replies([reply(REPLY)]))
    result = session(project, server, "--toolemu-budget-tokens=1000", "--toolemu-concurrency=1")
    assert len(prompts(server)) == 1
    assert list(files(project)) == ["bus"]
    assert "world 1 of tram was not built: the budget of 1,000 tokens is spent (1,200); " in text(result)
    assert result.parseoutcomes().get("failed", 0) == 0


def test_a_failed_request_is_retried_and_an_outage_is_no_failure_of_the_agent(
    project: pytest.Pytester, loopback: Loopback
) -> None:
    server = loopback(replies([Fault(status=500), reply(REPLY)]))
    session(project, server).assert_outcomes(passed=1)
    other = loopback(replies([Fault(status=403)]))
    result = session(project, other, worlds="others")
    assert "= 1 not run in " in text(result)
    assert "world 1 of tram was not built: " in text(result)


def test_a_replay_builds_the_same_world_without_a_model(project: pytest.Pytester) -> None:
    with LoopbackServer(replies([reply(UNPROVED), reply(REPLY)])) as server:
        session(project, server, "--toolemu-record=once").assert_outcomes(passed=1)
        (recording,) = (path for path in (project.path / "recordings").iterdir() if "world1" in path.name)
        assert json.loads(recording.read_text())["model_calls"][0]["role"] == "builder"
        before = files(project)
        (project.path / "worlds").rename(project.path / "first")
        url = server.url
    builder = f"--toolemu-builder=openai:gpt-4o@{url}/v1"  # nothing answers there any more
    options = ("--toolemu-world=built", "--toolemu-worlds=worlds", builder, "--toolemu-replay")
    result = project.runpytest(*OPTIONS, *options)
    result.assert_outcomes(passed=1)
    assert files(project) == before
    assert "1 world built by gpt-4o (1 after corrections)" in text(result)
    assert "cassettes: 2 model calls replayed, 0 added, 0 unused, 0 stale" in text(result)
    assert "builder" not in newest(project, "session.json")["cost"]


def test_an_estimate_lists_the_missing_worlds_only(project: pytest.Pytester, loopback: Loopback) -> None:
    second_case(project)
    project.makeconftest("")
    world = asyncio.run(build_world(load_case(project.path / "bus.toolemu.yaml"), ScriptedModel(REPLY)))
    write_world(project.path / "worlds", world)
    server = loopback(replies([]))
    result = session(project, server, "--toolemu-agent=noact", "--toolemu-evaluator=checks", "--toolemu-estimate")
    assert "builder openai:gpt-4o 1 (1 to 3)" in text(result)
    assert "basis: 1 world to build, estimated from requests of the usual length" in text(result)
    assert server.requests == ()
    assert list(files(project)) == ["bus"]


def test_reports_state_the_cost_of_the_worlds_once(project: pytest.Pytester, loopback: Loopback) -> None:
    server = loopback(replies([reply(REPLY)]))
    session(project, server, "--toolemu-report=json,md,html").assert_outcomes(passed=1)
    (worlds,) = (part for part in newest(project, "report.json")["made_with"] if part["kind"] == "worlds")
    assert worlds["name"] == "1 world built by gpt-4o (0 after corrections)"
    spending = "builder unknown (1 request, 1,000 tokens in (0 cached), 200 out)"  # no price is known at this address
    assert worlds["note"] == f"USD {spending}"
    for report in (".md", ".html"):
        (path,) = project.path.glob(f".toolemu/*/report{report}")
        assert path.read_text().count(spending) == 1


def test_a_provider_that_always_fails_is_not_asked_for_every_world(
    project: pytest.Pytester, loopback: Loopback
) -> None:
    for number in range(LIMIT + 2):
        (project.path / f"case{number}.toolemu.yaml").write_text(CASE, encoding="utf-8")
    server = loopback(replies([Fault(status=403)] * LIMIT))
    result = session(project, server, "--toolemu-concurrency=1")
    assert len(prompts(server)) == LIMIT
    assert f"= {LIMIT + 3} not run in " in text(result)
    assert files(project) == {}


@pytest.mark.skipif(sys.platform == "win32", reason="signals to a process group are those of POSIX")
@WORKERS
def test_ctrl_c_keeps_the_worlds_that_are_done(
    project: pytest.Pytester, loopback: Loopback, workers: tuple[str, ...]
) -> None:
    second_case(project)
    replies_left = [reply(REPLY)]
    started: list[processes.Process] = []

    def script(_: Request) -> Reply | Fault:
        if replies_left:
            return replies_left.pop()
        os.killpg(started[0].pid, signal.SIGINT)
        return Fault("stall")

    server = loopback(script)
    options = (*OPTIONS, *workers, "--toolemu-world=built", "--toolemu-worlds=worlds", "--toolemu-concurrency=1")
    builder = f"--toolemu-builder=openai:gpt-4o@{server.url}/v1"
    command = [sys.executable, "-m", "pytest", *options, builder]
    started.append(processes.start(command, cwd=project.path, start_new_session=True))
    output, _ = started[0].communicate(timeout=240)
    assert started[0].returncode == pytest.ExitCode.INTERRUPTED, output
    assert list(files(project)) == ["bus"]
    assert "toolemu: the session was interrupted; resume with:" in output
    builds = newest(project, "worlds.json")["builds"]
    assert [(build["case_id"], build["problem"]) for build in builds] == [
        ("bus", ""),
        ("tram", "the session was interrupted"),
    ]
    assert "worlds: 1 world built by gpt-4o (0 after corrections), 1 not built" in output
    cost = newest(project, "session.json")["cost"]["builder"]
    assert (cost["calls"], cost["input"]) == (2, 1000)  # the second request may have been paid for

    later = loopback(replies([reply(REPLY)]))
    session(project, later, *workers).assert_outcomes(passed=2)
    assert len(prompts(later)) == 1


def test_an_estimate_knows_that_built_rows_will_answer(project: pytest.Pytester, loopback: Loopback) -> None:
    write(project.path, case=CASE.partition("world:")[0])  # such as an imported case
    project.makeconftest("")
    server = loopback(replies([]))
    model = f"openai:gpt-4o@{server.url}/v1"
    options = ("--toolemu-world=built", "--toolemu-worlds=worlds", "--toolemu-estimate", "-p", "no:cacheprovider")
    result = project.runpytest(f"--toolemu-agent={model}", *options)
    assert "agent openai:gpt-4o 5 (1 to 16)" in text(result)
    assert "emulator openai:gpt-4o 1 (0 to 2)" in text(result)  # only one of seven tools has no operation
    assert "builder openai:gpt-4o 1 (1 to 3)" in text(result)
    assert f"toolemu: builder {model} of missing worlds (by the emulator)" in text(result)


# ---- the stage itself


def planned(tmp_path: Path, *variants: int) -> list[PlannedWorld]:
    resolved_case = load_case(write(tmp_path))
    return [PlannedWorld(resolved_case, variant, tmp_path) for variant in variants]


class Hanging(ScriptedModel):
    """A model that answers nothing once its replies are used up, and says when that is."""

    def __init__(self, *replies: Any) -> None:
        super().__init__(*replies)
        self.hangs = asyncio.Event()

    async def complete(self, request: ModelRequest) -> ModelReply:
        if not self.replies:
            self.hangs.set()
            await asyncio.Event().wait()
        return await super().complete(request)


def test_an_interrupted_stage_keeps_the_worlds_that_are_done(tmp_path: Path) -> None:
    first, second = worlds = planned(tmp_path, 1, 2)

    async def interrupt() -> None:
        model = Hanging(REPLY)
        task = asyncio.create_task(WorldStage(model, 600.0).build_all(worlds, 4))
        await model.hangs.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(interrupt())
    assert first.read().variant == 1
    assert not second.path.exists()


def test_a_model_that_never_answers_has_a_time_limit(tmp_path: Path) -> None:
    async def build() -> WorldStage:
        stage = WorldStage(Hanging(), 0.001)
        await stage.build_all(planned(tmp_path, 1), 1)
        return stage

    (build_,) = asyncio.run(build()).builds
    assert build_.problem == "it took more than 0.001 s; raise --toolemu-timeout if the model is slow"


def test_a_failed_world_does_not_stop_the_next_one_of_the_case(tmp_path: Path) -> None:
    stage = WorldStage(ScriptedModel(ModelError("no luck"), REPLY), 600.0)
    asyncio.run(stage.build_all(planned(tmp_path, 2, 1), 1))
    assert [(build.planned.variant, build.problem) for build in stage.builds] == [(1, "no luck"), (2, "")]


def test_a_world_that_several_items_need_is_built_once(tmp_path: Path) -> None:
    model = ScriptedModel(REPLY)
    asyncio.run(WorldStage(model, 600.0).build_all([*planned(tmp_path, 1), *planned(tmp_path, 1)], 4))
    assert len(model.requests) == 1


def test_a_credential_in_a_reply_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-openai-0123456789")
    leaked = with_part("rows", "Library", "book", 0, "title", value="Tram sk-canary-openai-0123456789")
    (world,) = planned(tmp_path, 1)
    asyncio.run(WorldStage(ScriptedModel(leaked), 600.0).build_all([world], 1))
    assert world.read().rows["Library"]["book"][0]["title"] == "Tram [OPENAI_API_KEY redacted]"


def test_if_a_world_cannot_be_written_no_further_one_is_paid_for(tmp_path: Path) -> None:
    worlds = [PlannedWorld(one.resolved_case, one.variant, tmp_path / "gone") for one in planned(tmp_path, 1, 2)]
    (tmp_path / "gone").write_text("")
    model = ScriptedModel(REPLY, REPLY)
    stage = WorldStage(model, 600.0)
    asyncio.run(stage.build_all(worlds, 1))
    assert [build.problem for build in stage.builds] == ["no world can be written: File exists"] * 2
    assert len(model.requests) == 1
