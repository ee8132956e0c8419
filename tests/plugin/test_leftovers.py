"""Threads, tasks and processes that agents leave running do not outlive the session or delay its end for long."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.plugin.conftest import SHORT_WAITS, Project, in_one_process_and_first_with_workers
from tests.processes import running_in

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")

AGENT = """
import atexit, concurrent.futures, multiprocessing, subprocess, threading
def hang():
    threading.Event().wait()
async def agent(task, toolbox):
    await toolbox.call("Till_Look", {{"who": task.split()[1]}})
    {leave}
    return "Shall I?"
"""
THREADS = {
    "a thread": "threading.Thread(target=hang, name='mine', daemon=False).start()",
    "a pool of threads": "concurrent.futures.ThreadPoolExecutor(thread_name_prefix='mine').submit(hang)",
}
PROCESSES = {
    "a child": "subprocess.Popen(['sleep', '1000'])",
    "a child that ignores SIGTERM": "subprocess.Popen(['sh', '-c', 'trap : TERM; while :; do sleep 1000; done'])",
    "a pool of processes": "concurrent.futures.ProcessPoolExecutor(1).submit(hang)",
    "a process of multiprocessing": "multiprocessing.Process(target=hang).start()",
}


@pytest.fixture
def folder(alone: Project) -> Iterator[Path]:
    """Return the project's folder, in which all processes of the session run; kill those that a test leaves behind."""
    yield alone.path
    for pid in running_in(alone.path):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def run(project: Project, leave: str, *options: str, seconds: float = 0.3, conftest: str = "") -> pytest.RunResult:
    project.write("actors.py", AGENT.format(leave=leave))
    project.write("conftest.py", SHORT_WAITS + conftest)
    return project.run("--toolemu-agent=actors:agent", f"-otoolemu_exit_timeout={seconds}", *options)


def reported(result: pytest.RunResult) -> str:
    """Return stdout and stderr: workers report in the summary, a single process reports after it."""
    return result.stdout.str() + result.stderr.str()


@in_one_process_and_first_with_workers("leave", [*THREADS.values()], ids=THREADS)
def test_a_thread_that_never_ends_is_named_and_does_not_delay_the_exit(
    project: Project, folder: Path, leave: str
) -> None:
    result = run(project, leave)
    result.assert_outcomes(passed=2)
    assert result.ret == 0
    output = reported(result)
    assert "left behind by agents and still running after 0.3 s: thread 'mine" in output
    assert "actors.py:4 (hang)" in output
    assert "end them before the agent returns, or wait longer with toolemu_exit_timeout" in output
    assert "Traceback" not in output
    assert running_in(folder) == []


TASKS = (
    SHORT_WAITS
    + """
import asyncio, time
tasks = []
async def poll():
    while True:
        await asyncio.sleep(60)
async def stubborn():
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass
async def block():
    try:
        await asyncio.sleep(60)
    finally:
        time.sleep(1000)
async def agent(task, toolbox):
    await toolbox.call("Till_Look", {{"who": task.split()[1]}})
    if "Anna" in task:
        tasks.append(asyncio.create_task({leave}, name="mine"))
    return "Shall I?"
"""
)


@in_one_process_and_first_with_workers("leave", ["poll", "stubborn"])
def test_a_task_that_an_agent_did_not_await_is_named(project: Project, leave: str) -> None:
    project.write("actors.py", TASKS.format(leave=f"{leave}()"))
    result = project.run("--toolemu-agent=actors:agent")
    result.assert_outcomes(passed=2)
    line = next(number for number, text in enumerate(TASKS.splitlines(), 1) if f"def {leave}" in text)
    result.stdout.re_match_lines(
        [
            rf"left behind by agents and canceled: task 'mine' at actors.py:{line + 2 + (leave != 'poll')} \({leave}\); await or"
        ]
    )


UNSTOPPABLE = """
import asyncio
from pytest_toolemu import AgentStopped
async def sleeps(toolbox):
    await asyncio.sleep(60)
async def waits(toolbox):
    await asyncio.Event().wait()
async def calls(toolbox):
    await toolbox.call("Till_Look", {"who": "Anna"})
def agent_that(act):
    async def agent(task, toolbox):
        while True:
            try:
                await act(toolbox)
            except (Exception, asyncio.CancelledError, AgentStopped):
                pass
    return agent
sleeping, waiting, calling = agent_that(sleeps), agent_that(waits), agent_that(calls)
"""


@in_one_process_and_first_with_workers(
    ("agent", "stop"), [("sleeping", "timeout"), ("waiting", "timeout"), ("calling", "step_limit")]
)
def test_an_agent_that_ignores_its_cancellation_has_a_record_and_the_process_ends(
    project: Project, agent: str, stop: str
) -> None:
    project.write("actors.py", UNSTOPPABLE)
    waits = "from pytest_toolemu.core import engine\nengine.CANCEL_GRACE = engine.STOP_GRACE = 0.1\n"
    project.write("conftest.py", SHORT_WAITS + waits)
    timeout = 0.5 if stop == "timeout" else 60
    project.run(f"--toolemu-agent=actors:{agent}", f"--toolemu-timeout={timeout}")
    assert [run.stop for run in project.runs()] == [stop] * 2


def test_a_task_that_blocks_the_event_loop_does_not_delay_the_end(alone: Project) -> None:
    alone.write("actors.py", TASKS.format(leave="block()"))
    result = alone.run("--toolemu-agent=actors:agent")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(
        ["left behind by agents and canceled: *a task that blocks the event loop at actors.py:* (block)*"]
    )


@in_one_process_and_first_with_workers("leave", [*PROCESSES.values()], ids=PROCESSES)
def test_a_process_that_never_ends_is_named_and_terminated(project: Project, folder: Path, leave: str) -> None:
    result = run(project, leave)
    result.assert_outcomes(passed=2)
    assert "left behind by agents and still running after 0.3 s: process " in reported(result)
    if "sleep" in leave:
        assert "sleep 1000" in reported(result)
    assert running_in(folder) == []


def test_the_exit_status_stays_that_of_the_session(project: Project, folder: Path) -> None:
    result = run(project, THREADS["a thread"] + "; toolbox.quit('left to itself')")
    result.assert_outcomes(failed=2)
    assert result.ret == 1
    assert running_in(folder) == []


def test_threads_and_processes_that_end_in_time_and_idle_pools_are_not_mentioned(alone: Project, folder: Path) -> None:
    leave = """
    threading.Timer(0.2, print).start()
    subprocess.Popen(["sleep", "0.2"])
    concurrent.futures.ThreadPoolExecutor().submit(print).result()
"""
    assert "left behind" not in reported(run(alone, leave.strip(), seconds=30))
    assert running_in(folder) == []


OWNED = """
import pathlib, subprocess, threading, time, pytest
def upload():
    time.sleep(1)
    pathlib.Path("uploaded").touch()
@pytest.fixture(scope="session", autouse=True)
def service():
    threading.Thread(target=upload, daemon=False).start()
    subprocess.Popen(["sleep", "1001"])
"""


def test_threads_and_processes_of_project_fixtures_are_not_touched(project: Project, folder: Path) -> None:
    result = run(project, "subprocess.Popen(['sleep', '1000'])", conftest=OWNED)
    result.assert_outcomes(passed=2)
    output = reported(result)
    assert "sleep 1000" in output
    assert "sleep 1001" not in output
    assert (project.path / "uploaded").exists(), "threads of others are waited for"
    commands = {Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1] for pid in running_in(folder)}
    assert commands == {b"1001"}


def test_a_session_without_cases_is_unchanged(alone: Project) -> None:
    alone.pytester.makepyfile(
        """
        import os, threading
        def test_it():
            assert not [name for name in os.environ if "TOOLEMU" in name]
            assert not [thread.name for thread in threading.enumerate() if "toolemu" in thread.name]
        """
    )
    alone.run("test_a_session_without_cases_is_unchanged.py", "--ignore=cases").assert_outcomes(passed=1)
