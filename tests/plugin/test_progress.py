"""Progress in a real terminal: it fits the current width, shows the main figures first, and excludes resumed cases."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pytest_toolemu.plugin.output.progress import Progress, fitting
from pytest_toolemu.scheduling.adaptive_limit import RequestOutcome
from pytest_toolemu.scheduling.coordinator import Coordinator, RemainingTime
from pytest_toolemu.scheduling.coordinator_messages import (
    CaseCompleted,
    CaseRun,
    CasesOffered,
    ItemsCollected,
    PermitReleased,
    PermitRequested,
    UsageReported,
    WorkerMessage,
)
from pytest_toolemu.sessions.resume import ResumableSessions
from pytest_toolemu.sessions.store import run_file
from tests.plugin.conftest import Project
from tests.terminal import Terminal, set_width

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals are those of POSIX")

PROGRESS = re.compile(r"\x1b7  \x1b\[2m(.*?)\x1b\[0m\x1b8")
LINE = "cases/anna.toolemu.yaml "
ALL = r"12/144 done, 2:12 left, 0\.53 USD, 32 running, 100 waiting, \d calls/s, 2,034 tokens, limit \d+"
MAIN = r"12/144 done, 2:12 left, 0\.53 USD"


def test_if_there_is_no_room_for_all_figures_the_first_are_shown() -> None:
    parts = ["done", "left", "running"]
    assert fitting(parts, 19) == "done, left, running"
    assert fitting(parts, 18) == "done, left"
    assert fitting(parts, 3) == ""


def coordinator_with(completed: int, resumed: int = 0, total: int = 144) -> Coordinator:
    """Return a coordinator after some cases are completed, of which the first were resumed, and one request."""
    coordinator = Coordinator(32)
    coordinator.start()
    coordinator.add_worker("w")
    messages: list[WorkerMessage] = [
        ItemsCollected(total),
        CasesOffered(tuple(range(total))),
        *(CaseCompleted(index, 1, False, CaseRun("", index < resumed)) for index in range(completed)),
        PermitRequested("openai gpt-4o", 1),
        PermitReleased(1, RequestOutcome("ok", 1.0, 2034)),
        UsageReported(2034, 0.53),
    ]
    for message in messages:
        coordinator.receive("w", message, 0.0)
    return coordinator


class Screen:
    """Progress in a pseudo-terminal, 12 seconds after the first case was started."""

    def __init__(self, config: pytest.Config, inner: int, outer: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.inner, self.outer, self.config = inner, outer, config
        self.monkeypatch = monkeypatch
        self.now = 0.0
        monkeypatch.setattr("pytest_toolemu.plugin.output.progress.monotonic", lambda: self.now)

    def progress(self, coordinator: Coordinator, line: str = LINE) -> str:
        """Return the figures."""
        self.config.get_terminal_writer().write(line)
        progress = Progress(self.config, coordinator, self.outer)
        progress.tick()
        self.now += 12.0
        os.write(self.outer, b"|")
        progress.tick()
        progress.close()
        os.write(self.outer, b"!")
        output = b""
        while not output.endswith(b"!"):
            output += os.read(self.inner, 65536)
        (figures,) = PROGRESS.findall(output.decode().partition("|")[2])
        return str(figures)


@pytest.fixture
def screen(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Iterator[Screen]:
    inner, outer = os.openpty()
    monkeypatch.setenv("TERM", "xterm")
    yield Screen(pytester.parseconfigure(), inner, outer, monkeypatch)
    os.close(inner)
    os.close(outer)


@pytest.mark.parametrize(
    ("width", "figures"),
    [
        (60, MAIN),
        (80, r"12/144 done, 2:12 left, 0\.53 USD, 32 running"),
        (120, ALL),
        (200, ALL),
    ],
)
def test_only_figures_that_fit_into_the_terminal_are_shown(screen: Screen, width: int, figures: str) -> None:
    screen.monkeypatch.setenv("COLUMNS", "77")  # an old value, such as that of a resized window
    set_width(screen.inner, width)
    figures_text = screen.progress(coordinator_with(completed=12))
    assert re.fullmatch(figures, figures_text)
    assert len(LINE) + 2 + len(figures_text) <= width


class TestTheTimeLeft:
    def test_excludes_resumed_cases(self, screen: Screen) -> None:
        """Ten of the twelve cases were resumed, so two cases took 12 seconds, and 132 are left."""
        set_width(screen.inner, 200)
        assert "13:12 left" in screen.progress(coordinator_with(completed=12, resumed=10))

    def test_excludes_cases_that_will_be_resumed(self, screen: Screen) -> None:
        set_width(screen.inner, 200)
        coordinator = coordinator_with(completed=12, resumed=10)
        coordinator.expect_to_resume(range(20, 120))
        assert "3:12 left" in screen.progress(coordinator)

    def test_does_not_rise_slightly_while_no_case_ends(self) -> None:
        coordinator, remaining = coordinator_with(completed=12), RemainingTime()
        remaining.estimate(coordinator, 0.0)
        shown = [estimate.seconds for now in (12.0, 14.0, 60.0) if (estimate := remaining.estimate(coordinator, now))]
        assert shown == [132, 132, 660]

    def test_is_unknown_while_all_cases_were_resumed(self, screen: Screen) -> None:
        set_width(screen.inner, 200)
        assert "left" not in screen.progress(coordinator_with(completed=12, resumed=12))

    def test_a_case_expected_to_be_resumed_but_run_counts_as_run(self) -> None:
        coordinator = coordinator_with(completed=0)
        coordinator.expect_to_resume([0, 1])
        coordinator.receive("w", CaseCompleted(0, 1, False, CaseRun("")), 0.0)
        assert (coordinator.counts.resumed, coordinator.left_to_run) == (0, 144 - 1 - 1)


def test_file_names_show_which_cases_earlier_sessions_hold(project: Project) -> None:
    items = ["cases/anna.toolemu.yaml::anna[a]", "cases/bert.toolemu.yaml::bert[a]"]
    project.write(f".toolemu/s/{run_file('bert', '0' * 12, items[1])}", "{}")
    earlier = ResumableSessions((project.path / ".toolemu" / "s",), frozenset())
    assert earlier.probable(items) == [1]


# The first case ends at once; the others wait for a file.
AGENT = """\
import asyncio, pathlib

async def agent(task, toolbox):
    while "Anna" not in task and not pathlib.Path("go").exists():
        await asyncio.sleep(0.01)
    return "Shall I?"
"""


@contextmanager
def session(project: Project, width: int, *args: str) -> Iterator[Terminal]:
    project.write("actors.py", AGENT)
    command = project.command("--toolemu-agent=actors:agent", "-otoolemu_helpfulness=none", *args)
    with Terminal(command, width, cwd=project.path, env={**os.environ, "TERM": "xterm"}) as terminal:
        yield terminal


def test_a_session_shows_the_time_left_and_adapts_to_a_wider_terminal(project: Project) -> None:
    project.case("carl")
    with session(project, 50) as terminal:
        assert "waiting" not in terminal.until(" left").rpartition("\x1b7")[2], "of what was drawn last"
        terminal.resize(200)
        terminal.until("2 running, 0 waiting")
        project.write("go", "")
        assert "3 passed" in terminal.remainder()
        assert terminal.process.wait() == 0


def test_a_resumed_session_does_not_count_resumed_cases_as_fast(alone: Project) -> None:
    alone.write("go", "")
    with session(alone, 120, "-k", "anna") as terminal:
        assert "1 passed" in terminal.remainder()
    (alone.path / "go").unlink()
    with session(alone, 120, "--toolemu-resume") as terminal:
        output = terminal.until("1 running, 0 waiting\x1b")
        alone.write("go", "")
        assert "2 passed" in terminal.remainder()
    assert " left" not in output
