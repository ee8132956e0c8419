"""Concurrent cases, in one process and with workers: items, verdicts and records are the same in every mode."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Sequence

import pytest

from tests import processes
from tests.plugin.conftest import Project
from tests.terminal import Terminal

# The agent fails in some cases, and notes each case with its process.
AGENT = """
import asyncio, os
import pytest

def note(line):
    with open("calls.txt", "a") as file:
        file.write(line + "\\n")

async def agent(task, toolbox):
    name = task.split()[1]
    note(f"{name} {os.getpid()}")
    for _ in range(3):
        await asyncio.sleep(0)
    if name in os.environ.get("STUCK", "").split():
        await asyncio.Event().wait()
    if name in os.environ.get("BAD", "").split():
        await toolbox.call("Till_Pay", {"who": name, "amount": 900})
    await toolbox.call("Till_Look", {"who": name})
    return "Shall I?"
"""
NAMES = [f"p{number}" for number in range(10)]
MODES = {
    "alone": ["-p", "no:xdist"],
    "never ahead": ["-p", "no:xdist", "-otoolemu_run_ahead=never"],
    "no workers": ["-n", "0"],
    "load": ["-n", "2", "--dist=load"],
    "loadfile": ["-n", "2", "--dist=loadfile"],
    "loadgroup": ["-n", "2", "--dist=loadgroup"],
    "worksteal": ["-n", "3", "--dist=worksteal"],
}

ALONE = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "--toolemu-agent=actors:agent"]


@pytest.fixture
def crowd(alone: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Return a project with an agent and ten cases, two of which fail."""
    alone.runner = ()
    alone.replace_cases(NAMES)
    alone.write("actors.py", AGENT)
    monkeypatch.setenv("BAD", "P3 P7")
    return alone


def run(project: Project, *args: str) -> pytest.RunResult:
    return project.run("--toolemu-agent=actors:agent", *args)


def called_cases(project: Project) -> list[str]:
    path = project.path / "calls.txt"
    return [line.split()[0].lower() for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_gives_the_same_items_verdicts_and_records(crowd: Project, mode: str) -> None:
    result = run(crowd, "-rA", *MODES[mode])
    result.assert_outcomes(passed=8, failed=2)
    outcomes = re.findall(r"^(PASSED|FAILED) cases/(p\d)\.", result.stdout.str(), re.MULTILINE)
    assert sorted(outcomes, key=lambda pair: pair[1]) == [
        ("FAILED" if name in ("p3", "p7") else "PASSED", name) for name in NAMES
    ]
    runs = crowd.runs()
    assert [(run.case_id, run.outcome) for run in runs] == [
        (name, "failed" if name in ("p3", "p7") else "passed") for name in NAMES
    ]
    assert sorted(called_cases(crowd)) == NAMES
    assert [len(run.steps) for run in runs] == [2 if name in ("p3", "p7") else 1 for name in NAMES]


@pytest.mark.parametrize("mode", ["alone", "load"])
def test_a_case_that_is_collected_twice_is_run_once(crowd: Project, mode: str) -> None:
    """The second run would overwrite the record of the first."""
    result = run(crowd, *MODES[mode], "--keep-duplicates", "cases", "cases")
    result.assert_outcomes(passed=8, failed=2)
    assert sorted(called_cases(crowd)) == sorted(set(called_cases(crowd)))


def test_dist_each_is_refused(crowd: Project) -> None:
    result = run(crowd, "--dist=each", "--tx=2*popen")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert (
        "with --dist=each, every worker would run the same cases; use --dist=load"
        in result.stdout.str() + result.stderr.str()
    )
    assert called_cases(crowd) == []


OWN_AGENT = """
import pytest
from actors import agent
@pytest.fixture
def toolemu_agent():
    return agent
"""


def test_with_dist_each_cases_of_python_tests_are_errors(crowd: Project) -> None:
    crowd.write("conftest.py", OWN_AGENT)
    crowd.write(
        "test_mine.py", "import pytest\n@pytest.mark.toolemu(cases='cases')\ndef test_a(toolemu_run):\n    pass\n"
    )
    result = crowd.run("--dist=each", "--tx=2*popen", "test_mine.py")
    assert result.parseoutcomes() == {"errors": 20}
    assert "repeat cases with --toolemu-trials" in result.stdout.str()
    assert called_cases(crowd) == []


@pytest.mark.parametrize(
    ("mode", "stuck"),
    # With worksteal, the third worker begins with the seventh item.
    [("alone", ["p4"]), ("load", ["p4"]), ("worksteal", ["p4", "p6"])],
    ids=["alone", "load", "worksteal"],
)
def test_with_x_no_case_after_the_first_failure_is_started(
    crowd: Project, mode: str, stuck: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STUCK", " ".join(stuck).upper())
    result = run(crowd, "-x", "--toolemu-concurrency=2", *MODES[mode])
    assert result.parseoutcomes()["failed"] == 1
    # A case that was already in flight is canceled; no later case is started.
    assert set(called_cases(crowd)) <= {*NAMES[:4], *stuck}
    assert {record.case_id for record in crowd.runs()} == set(NAMES[:4])


def test_a_failure_that_a_report_hook_turns_into_a_pass_does_not_end_the_session(crowd: Project) -> None:
    crowd.write(
        "conftest.py",
        "import pytest\n"
        "@pytest.hookimpl(wrapper=True)\n"
        "def pytest_runtest_makereport(item):\n"
        "    report = yield\n"
        "    if report.when == 'call':\n"
        "        report.outcome = 'passed'\n"
        "    return report\n",
    )
    run(crowd, "-x", "-p", "no:xdist").assert_outcomes(passed=10)


@pytest.mark.parametrize("mode", ["alone", "load"])
def test_last_failed_and_keywords_select_the_cases_to_run(crowd: Project, mode: str) -> None:
    run(crowd, "-p", "cacheprovider", *MODES[mode], "-k", "p3 or p4").assert_outcomes(passed=1, failed=1)
    assert sorted(called_cases(crowd)) == ["p3", "p4"]


@pytest.mark.parametrize("mode", ["alone", "load"])
def test_a_rerun_does_not_run_a_judged_case_again(crowd: Project, mode: str) -> None:
    run(crowd, "--reruns=1", *MODES[mode]).assert_outcomes(passed=8, failed=2)
    assert sorted(called_cases(crowd)) == NAMES


def test_without_running_ahead_each_case_runs_when_its_item_does(crowd: Project) -> None:
    crowd.write(
        "conftest.py",
        "def pytest_toolemu_run_finished(run):\n"
        "    open('order.txt', 'a').write(str(len(open('calls.txt').readlines())) + ' ')\n",
    )
    run(crowd, "-p", "no:xdist", "--trace-config", "-otoolemu_run_ahead=never")
    assert (crowd.path / "order.txt").read_text().split() == [str(number) for number in range(1, 11)]


SCOPED = """
import asyncio
import pytest

class Agent:
    identity = {{"kind": "own", "name": "scoped"}}
    def __init__(self):
        self.is_up, self.arrived, self.most = True, 0, 0
    async def __call__(self, task, toolbox):
        assert self.is_up, "used after its fixture was torn down"
        self.arrived += 1
        self.most = max(self.most, self.arrived)
        for _ in range(50):
            await asyncio.sleep(0.001)
        assert self.is_up, "torn down while it was used"
        self.arrived -= 1
        return "Shall I?"

@pytest.fixture(scope="{scope}", {more})
def toolemu_agent(request):
    agent = Agent()
    yield agent
    agent.is_up = False
    with open("most.txt", "a") as file:
        file.write(f"{{agent.most}}\\n")
"""


@pytest.mark.parametrize(
    ("workers", "scope", "more", "items"),
    [
        (["-p", "no:xdist"], "function", "", 10),
        (["-p", "no:xdist"], "module", "", 10),
        (["-p", "no:xdist"], "package", "", 10),
        (["-p", "no:xdist"], "session", "", 10),
        (["-n", "2"], "module", "", 10),
        (["-n", "2"], "session", "params=[1, 2]", 20),
    ],
)
def test_a_fixture_of_any_scope_is_up_as_long_as_its_cases_run(
    crowd: Project, workers: Sequence[str], scope: str, more: str, items: int
) -> None:
    crowd.write("conftest.py", SCOPED.format(scope=scope, more=more))
    crowd.run("-otoolemu_helpfulness=none", *workers).assert_outcomes(passed=items)
    most = [int(line) for line in (crowd.path / "most.txt").read_text().split()]
    # A fixture with a wide scope serves many cases at once; one with a narrow scope serves one at a time.
    assert (max(most) > 1) == (scope in ("session", "package"))


# P4 ends its worker for the first time while another case is in flight there, and the other cases wait for that.
# xdist fails with an internal error if a worker dies before its first items are sent, so the agent waits for an item.
DIES = """
import asyncio, os, threading
in_flight, item_started = set(), threading.Event()
async def agent(task, toolbox):
    in_flight.add(task)
    assert await asyncio.to_thread(item_started.wait, 60)
    while not os.path.exists("died"):
        if "P4" in task and len(in_flight) > 1:
            open("died", "w").close()
            break
        await asyncio.sleep(0.01)
    if "P4" in task:
        os._exit(3)
    return "Shall I?"
"""


def test_a_case_that_ends_its_worker_is_abandoned_and_the_others_run_in_another_worker(crowd: Project) -> None:
    crowd.write("actors.py", DIES)
    crowd.write("conftest.py", "import actors\ndef pytest_runtest_logstart(): actors.item_started.set()\n")
    result = run(crowd, "-rA", "-n", "2", "-otoolemu_helpfulness=none", "--max-worker-restart=4")
    outcomes = result.parseoutcomes()
    # xdist reports the items at which a worker died as crashed; every other case has its verdict.
    crashed = result.stdout.str().count("crashed while running")
    assert crashed >= 1
    assert outcomes["passed"] >= 10 - 2 * 2 - 1
    assert outcomes["errors"] >= 1
    assert "failed" not in outcomes, "an agent without a verdict has not failed"
    # A worker can die between the call and the teardown of an item, so an item may have two outcomes.
    lines = re.findall(r"^(?:PASSED|FAILED|ERROR) cases/(p\d)\.", result.stdout.str(), re.MULTILINE)
    assert sorted(set(lines)) == NAMES
    assert "p4" not in {record.case_id for record in crowd.runs()}
    text = " ".join(result.stdout.str().split())
    assert "That worker was running these cases, and any of them may have crashed it: cases/p" in text
    assert "Those that are not reported as crashed run again in another worker." in text


# The agent of P4 blocks the loop until the plugin warns of it.
BLOCKS = """
import threading
from pytest_toolemu.scheduling import worker
warned, blocked_text = threading.Event(), worker._blocked_text
def release_and_return_text(location):
    warned.set()
    return blocked_text(location)
worker._blocked_text = release_and_return_text
async def agent(task, toolbox):
    if "P4" in task:
        warned.wait()
    return "Shall I?"
"""


@pytest.mark.parametrize("mode", ["alone", "load"])
def test_an_agent_that_blocks_the_loop_is_named_once(crowd: Project, mode: str) -> None:
    crowd.write("actors.py", BLOCKS)
    result = run(crowd, "-otoolemu_helpfulness=none", *MODES[mode])
    result.assert_outcomes(passed=10)
    warnings = [line for line in result.outlines if "the event loop was blocked" in line]
    assert len(warnings) == 1
    assert "for more than 1 s at actors.py:11 (agent), and no case in this process made progress" in warnings[0]
    assert "Declare that agent with a plain 'def', which runs in a thread, or await the call that blocks" in warnings[0]


TIMES = """
import json
def pytest_runtest_logreport(report):
    if report.when == "setup":
        with open("times.txt", "a") as file:
            file.write(json.dumps([report.start, report.stop, report.duration]) + "\\n")
"""


@pytest.mark.parametrize("mode", ["alone", "load"])
def test_reports_have_the_times_of_the_case_without_the_wait(crowd: Project, mode: str) -> None:
    crowd.write("conftest.py", TIMES)
    run(crowd, *MODES[mode], "-p", "no:cacheprovider")
    times = [json.loads(line) for line in (crowd.path / "times.txt").read_text().splitlines()]
    for record in crowd.runs():
        own = pytest.approx([record.started, record.started + record.seconds, record.seconds], abs=1e-6, rel=0)
        assert own in times


HANGS = """
import asyncio, re
async def agent(task, toolbox):
    if "P9" in task:
        # All other cases except P0 have ended, and the coordinator has received their results.
        while sum(bool(re.fullmatch("toolemu-[0-9]+", task.get_name())) for task in asyncio.all_tasks()) > 2:
            await asyncio.sleep(0.01)
        with open("arrived", "w") as fifo:
            fifo.write("here")
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                open("cancelled", "w").write("yes")
    if "P0" in task:
        await asyncio.sleep(3600)
    return "Shall I?"
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals are those of POSIX")
def test_ctrl_c_summarizes_finished_cases_and_a_second_one_does_not_wait(crowd: Project) -> None:
    crowd.write("actors.py", HANGS)
    os.mkfifo(crowd.path / "arrived")
    process = processes.start(ALONE, cwd=crowd.path, start_new_session=True)
    assert (crowd.path / "arrived").read_text() == "here"
    process.send_signal(signal.SIGINT)
    while not (crowd.path / "cancelled").exists():
        os.sched_yield()
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=240)
    assert process.returncode == pytest.ExitCode.INTERRUPTED, output
    assert "8 of 10 cases completed; 8 of them are missing from the table, because the session ended before" in output
    assert len(crowd.runs()) == 8
    assert not list((crowd.path / ".toolemu").rglob("*.tmp"))


def test_collecting_runs_nothing_and_starts_nothing(crowd: Project) -> None:
    result = run(crowd, "--collect-only", "-q")
    assert called_cases(crowd) == []
    assert not (crowd.path / ".toolemu").exists()
    assert result.ret == 0


@pytest.mark.parametrize("mode", [["-p", "no:xdist"], ["-n", "2"]], ids=["alone", "workers"])
def test_log_records_of_a_case_are_shown_with_its_own_item(crowd: Project, mode: list[str]) -> None:
    crowd.write(
        "actors.py",
        "import asyncio, logging\n"
        "def inner(name):\n"
        "    logging.getLogger('mine').info('in a thread for %s \\x1b[31m', name)\n"
        "async def agent(task, toolbox):\n"
        "    name = task.split()[1]\n"
        "    await asyncio.sleep(0)\n"
        "    logging.getLogger('mine').warning('looks for %s', name)\n"
        "    await asyncio.to_thread(inner, name)\n"
        "    await toolbox.call('Till_Pay', {'who': name, 'amount': 900})\n"
        "    return 'Shall I?'\n",
    )
    output = run(crowd, "-o", "log_level=INFO", *mode).stdout.str()
    for name in NAMES:
        own = output.partition(f"_ {name}[actors:agent] _")[2].partition("_ p")[0]
        assert own.count("Captured log") == 1, output
        assert re.findall(r"(?:looks|thread) for (\S+) ?(.*)", own) == [(name.title(), ""), (name.title(), "\\x1b[31m")]


LOGGING_AGENT = """
import asyncio, logging, threading
may_log, logged = threading.Event(), threading.Event()

async def agent(task, toolbox):
    assert await asyncio.to_thread(may_log.wait, 30)
    logging.getLogger("mine").warning("looks for %s", task.split()[1])
    logged.set()
    return "Shall I?"
"""


def test_a_case_that_logs_while_pytest_attaches_its_handlers_logs_once(crowd: Project) -> None:
    crowd.replace_cases(["p0"])
    crowd.write("actors.py", LOGGING_AGENT)
    crowd.write(
        "conftest.py",
        "import actors\n"
        "from _pytest.logging import LogCaptureHandler\n"
        "reset, handlers = LogCaptureHandler.reset, []\n"
        "def reset_and_wait(handler):\n"
        "    reset(handler)\n"
        "    handlers.append(handler)\n"
        "    if len(handlers) == 2:\n"
        "        actors.may_log.set()\n"
        "        assert actors.logged.wait(30)\n"
        "LogCaptureHandler.reset = reset_and_wait\n",
    )
    output = run(crowd, "-rA", "-n", "1").stdout.str()
    assert output.count("looks for P0") == 1


def test_a_log_handler_that_removes_itself_hides_no_record_of_a_case(crowd: Project) -> None:
    crowd.replace_cases(["p0"])
    crowd.write("actors.py", LOGGING_AGENT)
    crowd.write(
        "conftest.py",
        "import actors, logging\n"
        "actors.may_log.set()\n"
        "class Once(logging.Handler):\n"
        "    def emit(self, record):\n"
        "        logging.getLogger().removeHandler(self)\n"
        "logging.getLogger().addHandler(Once())\n",
    )
    output = run(crowd, "-rA", "-n", "1").stdout.str()
    assert output.count("looks for P0") == 1


def test_progress_is_not_drawn_if_the_output_is_not_a_terminal(crowd: Project) -> None:
    output = run(crowd, "-p", "no:xdist").stdout.str()
    assert "running" not in output
    assert "\x1b7" not in output


@pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals are those of POSIX")
@pytest.mark.parametrize("quiet", [False, True])
def test_in_a_terminal_progress_is_drawn_beside_the_cursor(crowd: Project, quiet: bool) -> None:
    crowd.write(
        "actors.py",
        "import asyncio, os\nfrom pytest_toolemu.core.case_timer import stalled\n"
        "async def agent(task, toolbox):\n"
        "    with stalled(0.0):\n        while not os.path.exists('go'):\n            await asyncio.sleep(0.01)\n"
        "    return 'Shall I?'\n",
    )
    command = [*ALONE, "-otoolemu_helpfulness=none", *(["-q"] if quiet else [])]
    with Terminal(command, 120, cwd=crowd.path, env={**os.environ, "TERM": "xterm"}) as terminal:
        output = "" if quiet else terminal.until("stalled")
        crowd.write("go", "")
        output += terminal.remainder()
        assert terminal.process.wait() == 0
    progress_texts = re.findall(r"\x1b7  \x1b\[2m(.*?)\x1b\[0m\x1b8", output)
    assert bool(progress_texts) != quiet
    assert all(re.match(r"\d+/10 done, \d+ running( \(\d+ stalled\))?, \d+ waiting", text) for text in progress_texts)
    assert any("stalled" in text for text in progress_texts) != quiet
