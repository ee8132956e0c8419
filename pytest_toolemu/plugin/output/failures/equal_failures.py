"""Equal errors are shown once with their details; the others are only counted."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import pytest

from pytest_toolemu.formats.counted import counted
from pytest_toolemu.formats.visible_text import in_log, visible
from pytest_toolemu.plugin.output.run_property import properties

if TYPE_CHECKING:
    from pytest_toolemu.analysis.run_summary import RunSummary

_KINDS: Final = {"agent": "broken (agent code)", "provider": "broken (provider)", "harness": "broken (harness)"}
# The parts in which equal messages differ: how long it was tried, and ids of single requests.
_RETRIES: Final = re.compile(r" ?\(given up after [^)]{0,80}\)")
_IDS: Final = re.compile(r"[\w-]{12,}")
_LISTED: Final = 5


def outcome_of(run: RunSummary) -> str:
    """Return a run's outcome; for a broken run, also whose exception it was."""
    return _KINDS.get(run.origin or "", str(run.outcome)) if run.outcome == "broken" else str(run.outcome)


def alike(runs: Iterable[RunSummary]) -> dict[tuple[str, ...], list[RunSummary]]:
    """Group runs by outcome, agent, and reason, in their order."""
    groups: dict[tuple[str, ...], list[RunSummary]] = {}
    for run in runs:
        groups.setdefault((outcome_of(run), run.agent, _pattern(run.reason, run.case)), []).append(run)
    return groups


NAME: Final = "toolemu-collapsed"
"""The name under which ``Collapsed`` is registered."""


def count(reporter: pytest.TerminalReporter) -> None:
    """Write how many equal errors are missing in pytest's list of errors."""
    collapsed = reporter.config.pluginmanager.getplugin(NAME)
    if collapsed is not None:
        collapsed.count(reporter)


class Collapsed:
    """Removes repeated errors from pytest's list of errors while it is printed, and restores them afterwards."""

    def __init__(self) -> None:
        self._all: list[Any] | None = None
        self._groups: list[list[Any]] = []

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> Any:
        """Hide all but the first of equal errors from ``terminalreporter`` before it prints them."""
        self._all = terminalreporter.stats.get("error")
        if self._all is not None:
            first_reports, self._groups = _first_of_each(self._all)
            terminalreporter.stats["error"] = first_reports
        return (yield)

    def count(self, reporter: pytest.TerminalReporter) -> None:
        """Write how many errors were hidden, and restore them for the counts and the short summary."""
        if self._all is None:
            return
        reporter.stats["error"], self._all = self._all, None
        for first, *others in self._groups:
            if others:
                reporter.write_line(in_log(visible(_line(first, others))), yellow=True)


def _first_of_each(reports: list[Any]) -> tuple[list[Any], list[list[Any]]]:
    first_reports: list[Any] = []
    groups: dict[tuple[str, ...], list[Any]] = {}
    for report in reports:
        key = _key(report)
        if key is None or key not in groups:
            first_reports.append(report)
        if key is not None:
            groups.setdefault(key, []).append(report)
    return first_reports, list(groups.values())


def _key(report: Any) -> tuple[str, ...] | None:
    """Return a key that is the same for equal errors; None for a report that is not of a broken run."""
    run = properties(getattr(report, "user_properties", ()))
    if run is None or run.get("outcome") != "broken":
        return None
    return str(run.get("agent")), str(run.get("origin")), _pattern(str(run.get("reason", "")), str(run.get("case")))


def _line(first: Any, others: list[Any]) -> str:
    listed = ", ".join(report.nodeid for report in others[:_LISTED])
    more = f", and {len(others) - _LISTED} more" if len(others) > _LISTED else ""
    return f"{counted(len(others), 'more case')} failed like {first.nodeid}: {listed}{more}"


def _pattern(reason: str, case: str) -> str:
    """Return what equal reasons have in common; the quoted ID of the case itself does not matter."""
    return _IDS.sub(_general, _RETRIES.sub("", " ".join(reason.replace(f"'{case}'", "#").split())))


def _general(name: re.Match[str]) -> str:
    return "#" if any(char.isdecimal() for char in name[0]) else name[0]
