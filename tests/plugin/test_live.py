"""What a running session writes for those who watch it, and that nothing about this disturbs it."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.virtual import VirtualLoop
from pytest_toolemu.core.engine import RunSpec, run_case
from pytest_toolemu.core.run import Call, Observation, Trajectory, Utterance, Verdict
from pytest_toolemu.core.toolbox import Task, Toolbox
from pytest_toolemu.plugin.output.live import LiveWriter, RunningCases
from pytest_toolemu.plugin.session import RESOLVED_CASE, SESSION
from pytest_toolemu.scheduling.adaptive_limit import RequestOutcome
from pytest_toolemu.scheduling.coordinator import Coordinator
from pytest_toolemu.scheduling.coordinator_messages import PermitReleased, PermitRequested, UsageReported
from pytest_toolemu.sessions.live_session import LIVE, CaseInFlight, LiveSession, read_live
from pytest_toolemu.settings.resolution import resolve
from tests.evaluators.resolved_cases import SEARCH_RESULT, resolved_case
from tests.plugin.conftest import Project
from tests.plugin.test_progress import coordinator_with

SECRET = "sk-canary-openai-0123456789"


def session_in(folder: Path, **options: Any) -> Any:
    """Return the session of a process that runs cases, with its records in ``folder``."""
    settings = resolve({"toolemu_agent": ["noact"], **options}.get, lambda _: None, {})
    params = SimpleNamespace(args=("cases",), dir=folder)
    config = SimpleNamespace(invocation_params=params, stash={}, option=SimpleNamespace(collectonly=False))
    session = SimpleNamespace(config=config, settings=settings, folder=folder, is_worker=False, run_summaries={})
    config.stash[SESSION] = session
    return session


def writer_of(session: Any, coordinator: Coordinator | None = None, **fields: Any) -> LiveWriter:
    coordinator = coordinator or coordinator_with(completed=12)
    transport: Any = SimpleNamespace(read=lambda query: query(coordinator))
    return LiveWriter(session, fields.pop("cases", RunningCases()), transport, **fields)


def live_of(folder: Path) -> LiveSession:
    live = read_live(folder)
    assert live is not None
    return live


def test_each_step_of_a_case_can_be_seen_while_it_runs(tmp_path: Path) -> None:
    cases, seen = RunningCases(), []

    async def emulator(_call: Call, _trajectory: Trajectory) -> Observation:
        await asyncio.sleep(2)
        seen.append(cases.snapshot())
        return Observation(content=SEARCH_RESULT, source="simulated")

    async def agent(_task: Task, toolbox: Toolbox) -> str:
        seen.append(cases.snapshot())
        await toolbox.call("Purse_FindPayees", {"name": "Inés"})
        await toolbox.call("x" * 9999, {})
        return "Done."

    async def judge(_trajectory: Trajectory) -> list[Verdict]:
        seen.append(cases.snapshot())
        return [Verdict(evaluator="e", metric="safety", score=3)]

    spec = RunSpec(resolved_case(), agent, emulator, (judge,), trial=2)
    item: Any = SimpleNamespace(
        nodeid="a::b", config=session_in(tmp_path).config, stash={RESOLVED_CASE: resolved_case()}
    )

    async def run() -> None:
        with cases.running(item, spec):
            seen.append(cases.snapshot())
            await run_case(spec, trajectory=cases.begin("a::b"))

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(run())
    states = [(one.stage, one.calls, one.tool[:20], one.seconds) for (one,) in seen]
    assert states == [
        ("starting", 0, "", 0), ("acting", 0, "", 0), ("acting", 0, "Purse.FindPayees", 2),
        ("acting", 1, "x" * 20, 4), ("judging", 2, "", 4),
    ]  # fmt: skip
    assert (seen[0][0].item, seen[0][0].trial) == ("a::b", 2)
    assert len(seen[3][0].tool) < 2100
    assert cases.snapshot() == ()


def test_a_case_whose_user_replies_is_seen(tmp_path: Path) -> None:
    async def agent(_task: Task, _toolbox: Toolbox) -> str:
        return ""

    async def emulator(_call: Call, _trajectory: Trajectory) -> Observation:
        return Observation(content=SEARCH_RESULT, source="simulated")

    async def run() -> list[str]:
        cases, stages = RunningCases(), []
        config, case = session_in(tmp_path).config, resolved_case()
        item: Any = SimpleNamespace(nodeid="a::b", config=config, stash={RESOLVED_CASE: case})
        with cases.running(item, RunSpec(case, agent, emulator)):
            trajectory = cases.begin("a::b")
            for speaker in ("agent", "user"):
                trajectory.dialogue.append(Utterance.model_validate({"step": 0, "by": speaker, "text": "?"}))
                stages.append(cases.snapshot()[0].stage)
        return [*stages]

    assert asyncio.run(run()) == ["talking", "acting"]


def test_the_file_has_what_the_coordinator_knows_and_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    coordinator = coordinator_with(completed=12, resumed=10)
    for message in (
        PermitRequested(f"openai:gpt-4o@api.openai.com/{SECRET} (1234abcd)", 2),
        PermitRequested("unusual key", 3),
        PermitReleased(3, RequestOutcome("busy")),
        UsageReported(100, 0.5),
    ):
        coordinator.receive("w", message, 1.0)
    session = session_in(tmp_path, toolemu_budget_usd="20")
    session.run_summaries.update(a=SimpleNamespace(outcome="failed"), b=SimpleNamespace(outcome=""))
    coordinator.requests.budget.usd = 20.0
    writer_of(session, coordinator).write()
    progress = live_of(tmp_path).progress
    assert (progress.total, progress.completed, progress.resumed, progress.running) == (144, 12, 10, 32)
    assert progress.outcomes == {"failed": 1, "broken": 1}
    assert (progress.tokens, progress.cost, progress.budget) == (2134, "1.03 USD", "20.00 USD")
    assert [(one.name, one.in_flight, one.refused) for one in progress.request_limits] == [
        ("openai gpt-4o", 0, 0), ("openai:gpt-4o@api.openai.com/[OPENAI_API_KEY redacted]", 1, 0), ("unusual key", 0, 1),
    ]  # fmt: skip
    assert f"--toolemu-resume={os.path.relpath(tmp_path)}" in progress.resume
    content = (tmp_path / LIVE / "main.json").read_text()
    assert SECRET not in content
    assert "1234abcd" not in content


def test_the_end_removes_the_files_of_all_processes(tmp_path: Path) -> None:
    writer = writer_of(session_in(tmp_path))
    writer.write()
    shutil.copy(tmp_path / LIVE / "main.json", tmp_path / LIVE / "gw0.json")
    writer.close()
    assert not (tmp_path / LIVE).exists()


def worker_of(folder: Path, monkeypatch: pytest.MonkeyPatch, **scheduler: Any) -> LiveWriter:
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    session = session_in(folder)
    session.is_worker = True
    cases: Any = SimpleNamespace(snapshot=lambda: (CaseInFlight(item="i", case="c"),))
    state: Any = SimpleNamespace(**{"is_coordinator_lost": False} | scheduler)
    return LiveWriter(session, cases, None, state)


def test_a_worker_keeps_its_file_if_the_controller_died_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer_of(session_in(tmp_path)).write()
    worker_of(tmp_path, monkeypatch).write()
    orphan = worker_of(tmp_path, monkeypatch, is_coordinator_lost=True)
    orphan.write()
    orphan.close()
    assert [one.case.case for one in live_of(tmp_path).cases] == ["c"]
    worker_of(tmp_path, monkeypatch).close()
    assert [path.name for path in (tmp_path / LIVE).iterdir()] == ["main.json"]


def test_a_worker_that_ends_late_does_not_create_the_folder_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FileNotFoundError):
        worker_of(tmp_path, monkeypatch).write()
    assert read_live(tmp_path) is None


def test_a_disk_that_refuses_does_not_disturb_the_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / LIVE).write_text("a file where the folder should be")
    attempts: list[float] = []
    writer = writer_of(session_in(tmp_path))
    monkeypatch.setattr(writer, "_closed", Ticks(3, attempts))
    writer._write_repeatedly()
    assert attempts == [0.3, 1.0, 1.0]
    assert (tmp_path / LIVE).read_text() == "a file where the folder should be"


class Ticks:
    """An event that is set after some waits; no time passes."""

    def __init__(self, count: int, waits: list[float]) -> None:
        self.count, self.waits = count, waits

    def wait(self, seconds: float) -> bool:
        if len(self.waits) == self.count:
            return True
        self.waits.append(seconds)
        return False


# Anna's case ends; Bert's agent makes a call and hangs in the second.
AGENT = """
import asyncio

async def agent(task, toolbox):
    await toolbox.call("Till_Look", {"who": "Anna"})
    if "Bert" in task:
        with open("arrived", "w") as fifo:
            fifo.write("here")
        await asyncio.Event().wait()
    return "Shall I?"
"""


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL and named pipes are those of POSIX")
@pytest.mark.parametrize("runner", ["workers"], indirect=True)
def test_a_killed_session_with_workers_was_shown_and_can_be_resumed(project: Project) -> None:
    project.write("actors.py", AGENT)
    os.mkfifo(project.path / "arrived")
    command = project.command("--toolemu-agent=actors:agent", "-otoolemu_helpfulness=none")
    process = subprocess.Popen(command, cwd=project.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert "here" in (project.path / "arrived").read_text()
    while not any(live.cases for folder in (project.path / ".toolemu").glob("2*") if (live := read_live(folder))):
        assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    (folder,) = (project.path / ".toolemu").glob("2*")
    live = live_of(folder)
    assert (live.life, live.progress.total) == ("died", 2)
    assert "bert" in {one.case.case for one in live.cases}
    assert live.progress.resume.endswith(f"--toolemu-resume=.toolemu/{folder.name}")
