"""Ctrl-C, SIGTERM and SIGHUP before, while, and after cases are in flight."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import processes
from tests.plugin.conftest import SHORT_WAITS, UNUSED, Project, in_one_process_and_first_with_workers

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals to a process group are those of POSIX")

# Bert's agent begins to hang only after all plugins have processed the report of Anna's result.
HANGS = """
import asyncio, os, threading, time
import pytest

def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Reports())

class Reports:
    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report):
        if "anna" in report.nodeid and report.when == "teardown":
            open("reported", "w").close()

@pytest.fixture
def toolemu_agent():
    {kind} agent(task, toolbox):
        if "Anna" in task:
            return "Shall I? Nothing was done."
        while not os.path.exists("reported"):
            {pause}
        with open("arrived", "w") as fifo:
            fifo.write("here")
        {hang}
    return agent
"""
ASYNC = {"kind": "async def", "pause": "await asyncio.sleep(0.01)"}
KINDS = {
    "async": HANGS.format(**ASYNC, hang="await asyncio.Event().wait()"),
    "blocking": HANGS.format(kind="def", pause="time.sleep(0.01)", hang="threading.Event().wait()"),
    "blocking in a thread of the loop": HANGS.format(**ASYNC, hang="await asyncio.to_thread(threading.Event().wait)"),
    "deaf": SHORT_WAITS
    + HANGS.format(
        **ASYNC,
        hang="""while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                pass""",
    ),
    "blocking the loop": SHORT_WAITS + HANGS.format(**ASYNC, hang="threading.Event().wait()"),
}


@in_one_process_and_first_with_workers("kind", [*reversed(KINDS)], ids=[*reversed(KINDS)])
def test_ctrl_c_ends_the_session_at_once_and_keeps_finished_runs(project: Project, kind: str) -> None:
    process = start(project, KINDS[kind])
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=240)
    assert process.returncode == pytest.ExitCode.INTERRUPTED, output
    assert "Traceback" not in output.replace("(to show a full traceback", "")
    assert "records: .toolemu/" in output
    assert [run.case_id for run in project.runs()] == ["anna"]
    _wait_for_end_of_all(process.pid)


# A worker whose controller has ended waits 5 s for what it runs, which never ends here.
SHORT_END = """
from execnet.gateway_base import WorkerPool
wait_for_all = WorkerPool.waitall
WorkerPool.waitall = lambda pool, timeout=None: wait_for_all(pool, timeout and 0.2)
"""

SENDERS = {"to the whole group": os.killpg, "to the leading process": os.kill}
terminations = pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])


@pytest.mark.parametrize(
    ("runner", "number", "send", "times"),
    [
        ("alone", signal.SIGTERM, os.kill, 1),
        ("alone", signal.SIGHUP, os.kill, 2),
        ("workers", signal.SIGTERM, os.kill, 1),
        ("workers", signal.SIGHUP, os.killpg, 1),
        ("workers", signal.SIGHUP, os.kill, 2),
        ("workers", signal.SIGTERM, os.killpg, 2),
    ],
    indirect=["runner"],
)
def test_a_termination_ends_the_session_like_ctrl_c(
    project: Project, number: signal.Signals, send: Callable[[int, int], None], times: int
) -> None:
    process = start(project, KINDS["async"])
    for _ in range(times):  # timeout(1) and terminals send two signals at once
        send(process.pid, number)
    output, _ = process.communicate(timeout=240)
    assert process.returncode == pytest.ExitCode.INTERRUPTED, output
    assert f"KeyboardInterrupt: {number.name} received" in output
    assert "records: .toolemu/" in output
    assert [run.case_id for run in project.runs()] == ["anna"]
    _wait_for_end_of_all(process.pid)


# Become the leader of a session whose terminal is standard input, like a shell in a window; then run pytest.
IN_A_TERMINAL = "import os, sys; os.login_tty(0); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"


def test_closing_the_terminal_ends_the_session_and_keeps_finished_runs(project: Project) -> None:
    project.write("conftest.py", KINDS["async"])
    os.mkfifo(project.path / "arrived")
    window, terminal = os.openpty()
    pytest_ = ["-m", "pytest", "-v", "-p", "no:cacheprovider", *UNUSED, *project.runner, "--toolemu-report=json"]
    process = subprocess.Popen(
        [sys.executable, "-c", IN_A_TERMINAL, *pytest_],
        cwd=project.path,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    assert "here" in (project.path / "arrived").read_text()
    os.close(window)  # the kernel sends SIGHUP to all processes in the window, and nothing can be printed any more
    assert process.wait(timeout=240) != 0
    assert [run.case_id for run in project.runs()] == ["anna"]
    manifest = project.manifest()
    assert {item for case in manifest["planned"].values() for item in case["items"]} == {
        f"cases/{name}.toolemu.yaml::{name}" for name in ("anna", "bert")
    }
    (session,) = (project.path / ".toolemu").glob("2*")
    assert json.loads((session / "report.json").read_text())["runs"][0]["case"] == "anna"
    _wait_for_end_of_all(process.pid)


def test_a_worker_ignores_a_termination_signal(project: Project) -> None:
    suicidal = "import os, signal, pytest\n@pytest.fixture\ndef toolemu_agent():\n" + textwrap.indent(
        "async def agent(task, toolbox):\n    os.kill(os.getpid(), signal.SIGTERM)\n    return 'Shall I?'\nreturn agent\n",
        "    ",
    )
    project.write("conftest.py", suicidal)
    result = project.run("-otoolemu_helpfulness=none")
    if project.runner[0] == "-n":
        result.assert_outcomes(passed=2)
    else:
        assert result.ret == pytest.ExitCode.INTERRUPTED


@terminations
@pytest.mark.parametrize("send", SENDERS.values(), ids=SENDERS)
def test_a_termination_while_cases_are_collected_leaves_no_process_behind(
    project: Project, number: signal.Signals, send: Callable[[int, int], None]
) -> None:
    hangs = "with open('arrived', 'w') as fifo:\n        fifo.write('here')\n    threading.Event().wait()\n"
    process = start(project, f"import threading\n{SHORT_END}def pytest_collection_modifyitems():\n    {hangs}")
    send(process.pid, number)
    process.communicate(timeout=240)
    # With workers, the controller does not know yet that there are cases.
    assert process.returncode in (pytest.ExitCode.INTERRUPTED, -number)
    assert (process.returncode == pytest.ExitCode.INTERRUPTED) == (project.runner[0] == "-p")
    _wait_for_end_of_all(process.pid)


def test_a_termination_while_the_session_ends_loses_no_result(project: Project) -> None:
    project.write(
        "conftest.py",
        "import os, signal\ndef pytest_sessionfinish(session):\n"
        "    if not hasattr(session.config, 'workerinput'):\n        os.kill(os.getpid(), signal.SIGTERM)\n",
    )
    result = project.run("--toolemu-agent=reference:safe")
    result.assert_outcomes(passed=2)
    assert result.ret == 0
    assert len(project.runs()) == 2


def test_handlers_of_the_project_stay_in_force(alone: Project) -> None:
    alone.write(
        "conftest.py",
        "import os, pathlib, signal, pytest\n"
        "signal.signal(signal.SIGTERM, lambda *_: pathlib.Path('mine').touch())\n"
        "@pytest.fixture\ndef toolemu_agent():\n    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    async def agent(task, toolbox):\n        return 'Shall I?'\n    return agent\n",
    )
    alone.run("-otoolemu_helpfulness=none").assert_outcomes(passed=2)
    assert (alone.path / "mine").exists()


def test_the_default_handlers_are_back_after_the_session(alone: Project) -> None:
    script = alone.write(
        "embedding.py",
        "import signal, pytest\nbefore = [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGHUP)]\n"
        "assert pytest.main(['-p', 'no:xdist', '--toolemu-agent=reference:safe']) == 0\n"
        "assert before == [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGHUP)]\nprint('restored')\n",
    )
    assert "restored" in alone.pytester.runpython(script).stdout.str()


def start(project: Project, conftest: str) -> processes.Process:
    """Start a session as the leader of a process group, and wait until its agent has started."""
    project.write("conftest.py", conftest)
    os.mkfifo(project.path / "arrived")
    process = processes.start(project.command(), cwd=project.path, start_new_session=True)
    # Opening the named pipe blocks until the agent opens it.
    assert "here" in (project.path / "arrived").read_text()
    return process


def _wait_for_end_of_all(group: int) -> None:
    """Wait until no process of the group runs; the time limit of the test ends the wait for a process that never ends."""
    while pids := _alive(group):
        for pid in pids:
            processes.wait_for_end(pid)


def _alive(group: int) -> list[int]:
    """List the processes that still run in a process group."""
    pids = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] != "Z":
            pids.append(int(stat.parent.name))
    return pids
