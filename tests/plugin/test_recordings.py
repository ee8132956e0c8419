"""Sessions that record and replay: a replay needs no key, SDK or network, and gives the same verdicts."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from pytest_toolemu.core.run import Run
from pytest_toolemu.sessions.store import RunStore
from tests import processes
from tests.e2e.opinions import script
from tests.loopback.fixtures import Loopback
from tests.loopback.records import Call, Fault, Reply, Request
from tests.loopback.scripts import by_role
from tests.loopback.server import LoopbackServer
from tests.plugin.conftest import TOOLKIT, UNUSED, Project
from tests.plugin.test_resume import CASE

CANARY = "sk-canary-0123456789"
MODELS = ("--toolemu-agent=gpt-4o", "--toolemu-evaluator=claude-sonnet-5-5")
# The replay has no SDK, and every connection fails.
CUT_OFF = """
import socket, sys
sys.modules["openai"] = sys.modules["anthropic"] = None
def refuse(*args): raise AssertionError("a connection was tried")
socket.socket.connect = socket.socket.connect_ex = refuse
"""


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Record a session of two trials of two cases in a project."""
    folder = tmp_path_factory.mktemp("live")
    (folder / "toolkits").mkdir()
    (folder / "toolkits" / "Till.toolkit.yaml").write_text(TOOLKIT)
    (folder / "cases").mkdir()
    for name in ("anna", "bert"):
        (folder / "cases" / f"{name}.toolemu.yaml").write_text(CASE.format(who=name.title()))
    (folder / "pytest.ini").write_text("[pytest]\n")
    with LoopbackServer(script()) as server:
        urls = {"OPENAI_BASE_URL": f"{server.url}/v1", "ANTHROPIC_BASE_URL": server.url}
        keys = {"OPENAI_API_KEY": CANARY, "ANTHROPIC_API_KEY": CANARY}
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", *UNUSED, *MODELS]
        options = ["--toolemu-record=once", "--toolemu-trials=2"]
        processes.run([*command, *options], cwd=folder, env={**os.environ, **urls, **keys})
    return folder


@pytest.fixture
def recorded(live: Path, alone: Project) -> Project:
    """Return the same project without a key, SDKs and a provider."""
    shutil.rmtree(alone.path / "cases")
    shutil.copytree(live, alone.path, dirs_exist_ok=True)
    alone.write("conftest.py", CUT_OFF)
    return alone


def sessions(project: Project) -> list[list[Run]]:
    return [list(RunStore(folder)) for folder in sorted((project.path / ".toolemu").glob("2*"))]


def verdicts(runs: list[Run]) -> list[tuple[str, int, str, object]]:
    return [
        (run.case_id, run.trial, run.outcome, run.verdicts) for run in sorted(runs, key=lambda r: (r.case_id, r.trial))
    ]


@pytest.mark.new_interpreter
def test_a_replay_sends_nothing_and_gives_the_same_verdicts(recorded: Project, runner: tuple[str, ...]) -> None:
    recorded.runner = runner
    # pytest-rerunfailures has its workers connect to each other.
    quiet = ("-p", "no:rerunfailures")
    result = recorded.run(*MODELS, "--toolemu-replay=recordings", "--toolemu-trials=2", "-v", *quiet)
    live, replayed = sessions(recorded)
    assert len(live) == 4
    assert verdicts(live) == verdicts(replayed)
    assert {run.source for run in live} == {"live"}
    assert {run.source for run in replayed} == {"replayed"}
    assert sum(run.usage["agent"].total for run in replayed) == 180
    result.stdout.fnmatch_lines(
        [
            "toolemu: no requests are sent; replies are replayed from recordings",
            "runs: 4 replayed; 0 of 420 tokens used now",
            "cassettes: 28 model calls replayed, 0 added, 0 unused, 0 stale",
        ]
    )
    result.stdout.re_match_lines_random(
        [r".*anna.*(PASSED|FAILED) \(replayed\)|.*(PASSED|FAILED) \(replayed\).*anna.*"]
    )
    assert recorded.manifest()["models"] == "replayed"


def test_each_trial_has_its_own_recording(recorded: Project) -> None:
    names = sorted(path.name.partition("--")[0] for path in (recorded.path / "recordings").iterdir())
    assert names == ["anna-gpt-4o-trial1", "anna-gpt-4o-trial2", "bert-gpt-4o-trial1", "bert-gpt-4o-trial2"]


def test_workers_record_the_same_files_as_one_process(
    recorded: Project, loopback: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    (recorded.path / "conftest.py").unlink()
    url = loopback(script()).url
    monkeypatch.setenv("OPENAI_BASE_URL", f"{url}/v1")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", url)
    recorded.runner = ("-n", "2")
    recorded.run(*MODELS, "--toolemu-record=all", "--toolemu-replay=again", "--toolemu-trials=2")
    assert texts(recorded.path / "again") == texts(recorded.path / "recordings")


def texts(folder: Path) -> dict[str, str]:
    """Return the recordings without the server's port and its numbers for calls, which depend on their order."""
    contents = {path.name: path.read_text() for path in folder.iterdir()}
    return {name: re.sub(r"call_\d+|127\.0\.0\.1:\d+", "", text) for name, text in contents.items()}


def test_a_call_without_a_recording_is_an_error_and_never_a_verdict(recorded: Project) -> None:
    case = recorded.path / "cases" / "anna.toolemu.yaml"
    case.write_text(case.read_text().replace("what I owe", "twice what I owe"))
    result = recorded.run(*MODELS, "--toolemu-replay=recordings", "--toolemu-trials=2")
    result.assert_outcomes(
        errors=2, **{key: n for key, n in result.parseoutcomes().items() if key in ("passed", "failed")}
    )
    result.stdout.fnmatch_lines(
        [
            'broken: ReplayMissError: no recorded call matches this request of the agent: message 2 is "Pay Anna twice what '
            'I owe."; the cassette has "Pay Anna what I owe." (nearest: model call 1 in anna-gpt-4o-trial1--*.json); record missing '
            "calls with --toolemu-record=new, or record everything again with --toolemu-record=all",
            "cassettes: 14 model calls replayed, 0 added, 14 unused, 0 stale",
            "unused: anna-gpt-4o-trial1--*.json: 7 model calls (1, 2, 3, 4, 5, …)",
        ]
    )


def test_the_report_distinguishes_stale_gone_and_not_run_recordings(recorded: Project) -> None:
    (recorded.path / "cases" / "bert.toolemu.yaml").unlink()
    result = recorded.run(
        *MODELS, "--toolemu-replay=recordings", "--toolemu-trials=2", "--toolemu-prompt=ss_only", "-k", "trial1"
    )
    result.stdout.fnmatch_lines(
        [
            "stale: anna-gpt-4o-trial1--*.json: 3 model calls (1, 3, 5): the model, its parameters, the prompt, or the tools *",
            "stale: bert-gpt-4o-trial1--*.json: its case no longer exists",
            "1 cassette of items that were not run",
        ]
    )
    folder = sorted((recorded.path / ".toolemu").glob("2*"))[-1]
    report = json.loads((folder / "recordings.json").read_text())
    assert [list(report[name].values()) for name in ("stale", "unused")] == [[[1, 3, 5]], [[2, 4, 6, 7]]]
    assert (len(report["gone"]), len(report["not_run"])) == (2, 1)


@pytest.mark.new_interpreter
def test_no_credential_is_recorded_or_needed(
    alone: Project, loopback: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All models repeat the key: the agent in a call and its answer, the emulator in its results."""

    def leaking(request: Request) -> Reply:
        if any(message.calls for message in request.messages):
            return Reply(f"I have used {CANARY}.")
        return Reply(calls=(Call("Till_Look", {"who": CANARY}),))

    alone.case("anna", text=CASE)
    alone.case("bert", text=CASE)
    server = loopback(by_role(agent=leaking, evaluator=script()))
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    args = (f"--toolemu-agent=openai:gpt-4o@{server.url}/v1", "-k", "anna")
    alone.run(*args, "--toolemu-record=new")
    monkeypatch.delenv("OPENAI_API_KEY")
    alone.write("conftest.py", CUT_OFF)
    alone.run("--toolemu-agent=openai:gpt-4o", "-k", "anna", "--toolemu-replay=recordings")
    live, replayed = sessions(alone)
    assert verdicts(live) == verdicts(replayed)
    assert replayed[0].answer == "I have used [OPENAI_API_KEY redacted]."
    assert not [path for path in alone.path.rglob("*.json") if CANARY in path.read_text()]


def test_a_run_that_is_interrupted_keeps_the_calls_recorded_so_far(
    alone: Project, loopback: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone.case("anna", text=CASE)
    answers, down = script(), True
    server = loopback(lambda request: Fault(status=400) if down and request.role == "evaluator" else answers(request))
    monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
    args = ("--toolemu-agent=gpt-4o", "--toolemu-record=once", "-k", "anna")
    alone.run(*args).assert_outcomes(errors=1, deselected=1)
    down, before = False, sum(bool(request.role) for request in server.requests)
    alone.run(*args).stdout.fnmatch_lines(["runs: 1 partly replayed; 30 of 105 tokens used now"])
    assert [request.role for request in server.requests if request.role][before:] == ["evaluator", "evaluator"]


def test_a_folder_without_recordings_gives_one_message(alone: Project) -> None:
    result = alone.run(*MODELS, "--toolemu-replay=nowhere")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "there are no cassettes in" in result.stderr.str()
    assert "record them with --toolemu-record=once, or name their folder with --toolemu-replay" in result.stderr.str()


def test_nothing_is_recorded_for_agents_that_need_no_model(alone: Project) -> None:
    alone.run("--toolemu-agent=reference:safe", "--toolemu-record=new").assert_outcomes(passed=2)
    assert not (alone.path / "recordings").exists()
