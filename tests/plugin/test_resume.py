"""Sessions that are killed and resumed: finished cases do not run again, and the results are the same."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from pytest_toolemu.core.run import Run
from pytest_toolemu.sessions.store import RunStore
from tests import processes
from tests.e2e.opinions import script
from tests.loopback.fixtures import Loopback
from tests.loopback.records import Fault, Request
from tests.plugin.conftest import UNUSED, Project

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="kills a process group, limits the size of files")

CASE = "title: Pay {who}\ntoolkits: [Till]\ninstruction: Pay {who} what I owe.\nexpected: [Pays, Tells]\n"
NAMES = ("anna", "bert", "cora", "dora")
# The agent sends three requests per case, the emulator two, and the judges two.
REQUESTS = 7


class Server:
    """A provider that counts its requests, and can kill the session at one of them."""

    def __init__(self, loopback: Loopback) -> None:
        self.request_count = 0
        self._fatal: int | None = None
        self._group: Future[int] = Future()
        self._hold = 0
        self.request_held, self.released = threading.Event(), threading.Event()
        self._answer = script()
        self.url = loopback(self._script).url

    def arm(self, fatal: int | None) -> None:
        self.request_count, self._fatal, self._group = 0, fatal, Future()

    def hold(self, number: int) -> None:
        """Let this request wait until ``released`` is set; ``request_held`` is set when it has arrived."""
        self._hold = number

    def target(self, group: int) -> None:
        self._group.set_result(group)

    def _script(self, request: Request) -> Any:
        self.request_count += bool(request.role)
        if self.request_count == self._hold:
            self._hold = 0
            return self._answer_when_released(request)
        if self._fatal is not None and self.request_count >= self._fatal:
            os.killpg(self._group.result(), signal.SIGKILL)
            return Fault("drop")
        return self._answer(request)

    async def _answer_when_released(self, request: Request) -> Any:
        self.request_held.set()
        await asyncio.to_thread(self.released.wait)
        return self._answer(request)


@pytest.fixture
def server(loopback: Loopback, alone: Project, monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server(loopback)
    monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
    for name in NAMES:
        alone.case(name, text=CASE)
    return server


Session = Callable[..., str]


@pytest.fixture
def session(alone: Project, server: Server) -> Session:
    """Return a function that runs a session, kills it at the given request, if any, and returns its output."""

    def run(*args: str, killed_at: int | None = None, armed: bool = True) -> str:
        if armed:
            server.arm(killed_at)
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "-v",
            "--tb=short",
            *UNUSED,
            *alone.runner,
        ]
        command += ["--toolemu-agent=gpt-4o", "--toolemu-concurrency=1", *args]
        process = processes.start(command, cwd=alone.path, start_new_session=True)
        if armed:
            server.target(process.pid)
        output, _ = process.communicate(timeout=240)
        assert (process.returncode == -signal.SIGKILL) == (killed_at is not None), output
        return output

    return run


def stored(project: Project) -> list[list[Run]]:
    """Return the runs of each session, in the order of the sessions."""
    return [list(RunStore(folder)) for folder in sorted((project.path / ".toolemu").glob("2*"))]


def table(output: str) -> list[str]:
    """Return the summary's lines about the agent and the failed cases, without the paths of records."""
    return re.findall(r"^(?:gpt-4o  .*|safety \d help.*?(?=  \S+json))", output, re.MULTILINE)


def test_a_session_that_is_killed_repeatedly_ends_with_the_same_results(
    project: Project, server: Server, session: Session
) -> None:
    """The session is killed within a case, between two cases, and before the first request after resuming.

    A case may start while the previous one is being written, but not before the one before that is on disk.
    """
    undisturbed = table(session("--toolemu-run-dir=undisturbed"))
    assert len(undisturbed) >= 1
    finished: set[str] = set()
    moments = (4, 2 * REQUESTS + 1, 1) if project.runner[0] == "-p" else (3 * REQUESTS - 1,)
    for moment in moments:
        session("--toolemu-resume", killed_at=moment)
        now = {run.case_id for run in stored(project)[-1]}
        assert (moment - 1) // REQUESTS - 1 <= len(now - finished) <= moment // REQUESTS
        finished |= now
    before = len(finished)
    output = session("--toolemu-resume")
    assert server.request_count == (len(NAMES) - before) * REQUESTS, "what is finished is not asked for again"
    assert table(output) == undisturbed
    last = stored(project)[-1]
    assert Counter(run.source for run in last) == Counter(resumed=before, live=len(NAMES) - before)
    assert {run.case_id for run in last} == set(NAMES)
    assert output.count("(resumed)") >= before
    tokens = (len(NAMES) - before) * REQUESTS * 15
    assert f"runs: {len(NAMES) - before} live, {before} resumed; {tokens} of 420 tokens used now" in output


def test_resuming_a_finished_session_runs_nothing(alone: Project) -> None:
    alone.run("--toolemu-agent=reference:safe", "--toolemu-trials=2")
    (folder,) = (alone.path / ".toolemu").glob("2*")
    again = alone.run("--toolemu-agent=reference:safe", "--toolemu-trials=3", "--toolemu-resume")
    again.stdout.fnmatch_lines(
        [
            f"toolemu: resuming .toolemu/{folder.name}: 4 runs; broken runs are repeated",
            "runs: 2 live, 4 resumed; 0 of 0 tokens used now",
        ]
    )
    assert alone.manifest()["resumed_from"] == [folder.name]


def test_records_that_cannot_be_read_are_named_and_their_cases_run_again(alone: Project) -> None:
    alone.run("--toolemu-agent=reference:safe").assert_outcomes(passed=2)
    (folder,) = (alone.path / ".toolemu").glob("2*")
    shutil.rmtree(folder / "parts")  # the folder was copied without its subfolder
    result = alone.run("--toolemu-agent=reference:safe", f"--toolemu-resume={folder}")
    result.assert_outcomes(passed=2)
    output = " ".join(result.stdout.str().split())
    assert f"{folder.name}: unreadable records are not reused, such as " in output
    assert "the record is incomplete: " in output
    (last,) = set((alone.path / ".toolemu").glob("2*")) - {folder}
    assert [run.source for run in RunStore(last)] == ["live", "live"]


def test_without_anything_to_resume_all_cases_run_and_a_message_says_so(alone: Project) -> None:
    alone.run("--toolemu-agent=reference:safe", "--toolemu-seed=3", "-k", "anna")
    alone.run("--toolemu-agent=reference:safe", "--toolemu-resume").stdout.fnmatch_lines(
        ["toolemu: nothing to resume: no session in .toolemu has runs of this configuration"]
    )
    assert {run.source for run in stored(alone)[-1]} == {"live"}


def test_a_full_disk_loses_only_what_cannot_be_written(alone: Project) -> None:
    """A limit on the size of files makes a write fail in the middle, as on a disk that becomes full."""
    case = alone.case("bert")
    case.write_text(case.read_text().replace("what I owe", "what I owe" * 10_000))
    conftest = alone.write(
        "conftest.py", "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (90_000, resource.RLIM_INFINITY))\n"
    )
    alone.run("--toolemu-agent=reference:safe").stdout.fnmatch_lines(
        ["reference:safe: 1 of 2 not run: no record can be written to .toolemu/* (File too large), so no more cases *"]
    )
    assert [run.case_id for run in stored(alone)[-1]] == ["anna"]
    assert not list((alone.path / ".toolemu").rglob("*.tmp"))
    conftest.unlink()
    alone.run("--toolemu-agent=reference:safe", "--toolemu-resume")
    assert {run.case_id: run.source for run in stored(alone)[-1]} == {"anna": "resumed", "bert": "live"}


def test_a_rerun_reports_a_resumed_run_again(project: Project) -> None:
    project.run("--toolemu-agent=reference:risky")
    result = project.run("--toolemu-agent=reference:risky", "--toolemu-resume", "--reruns=1")
    result.stdout.fnmatch_lines(["*2 failed, 2 rerun*"])
    assert [run.source for run in stored(project)[-1]] == ["resumed", "resumed"]


def test_only_selected_cases_are_resumed(alone: Project) -> None:
    alone.run("--toolemu-agent=reference:safe")
    for name in ("cora", "dora"):
        alone.case(name)
    again = alone.run("--toolemu-agent=reference:safe", "--toolemu-resume", "--toolemu-sample=3")
    again.stdout.fnmatch_lines(["a sample of 3 cases *", "runs: 1 live, 2 resumed; *"])


def test_cases_that_failed_last_are_resumed_too(alone: Project) -> None:
    cached = ("-p", "cacheprovider", "--toolemu-agent=reference:risky")
    alone.run(*cached, "-k", "anna")
    alone.run("-p", "cacheprovider", "--toolemu-agent=reference:safe", "-k", "bert")
    again = alone.run(*cached, "--toolemu-resume", "--lf")
    again.stdout.fnmatch_lines(["*run-last-failure: rerun previous 1 failure*", "runs: 1 resumed; *", "*1 failed*"])


@pytest.mark.parametrize("quiet", [(), ("-q",)])
def test_a_folder_without_a_session_gives_one_message(project: Project, quiet: tuple[str, ...]) -> None:
    result = project.run(*quiet, "--toolemu-agent=reference:safe", "--toolemu-resume=cases")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert (
        "ERROR: toolemu: --toolemu-resume: cases contains no runs; name the folder of a session" in result.stderr.str()
    )
    assert "Traceback" not in result.stdout.str() + result.stderr.str()


def test_a_custom_agent_whose_file_changed_is_run_again(alone: Project) -> None:
    code = 'async def mine(task, toolbox):\n    return "Shall I? {}"\n'
    alone.write("bots.py", code.format("Yes."))
    alone.run("--toolemu-agent=bots:mine")
    alone.run("--toolemu-agent=bots:mine", "--toolemu-resume").stdout.fnmatch_lines(["runs: 2 resumed; *"])
    alone.write("bots.py", code.format("No."))
    result = alone.run("--toolemu-agent=bots:mine", "--toolemu-resume")
    result.stdout.no_fnmatch_line("runs: *resumed*")
    assert {run.answer for run in stored(alone)[-1]} == {"Shall I? No."}


def test_an_agent_made_by_a_fixture_is_resumed_too(alone: Project) -> None:
    agent = "async def agent(task, toolbox): return 'Shall I?'"
    alone.write("conftest.py", f"import pytest\n{agent}\n@pytest.fixture\ndef toolemu_agent(): return agent\n")
    alone.run()
    alone.run("--toolemu-resume").stdout.fnmatch_lines(["runs: 2 resumed; *"])


def test_sessions_that_run_at_the_same_time_do_not_interfere(alone: Project, server: Server, session: Session) -> None:
    """The second session starts while the first runs its last case, and resumes the runs finished by then."""
    server.hold(3 * REQUESTS + 1)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(session)
        assert server.request_held.wait(60)
        requests_before = server.request_count
        second = session("--toolemu-resume", armed=False)
        assert server.request_count - requests_before == REQUESTS
        server.released.set()
        assert table(first.result()) == table(second)
    one, two = stored(alone)
    assert {run.key for run in one} == {run.key for run in two}
    assert (Counter(run.source for run in one), Counter(run.source for run in two)) == (
        {"live": 4},
        {"resumed": 3, "live": 1},
    )
