"""Two sessions case by case as one HTML file, the two transcripts of each case beside each other."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pytest_toolemu.analysis.gates.gate_metrics import GATE_METRICS
from pytest_toolemu.reporting.html_report import render
from pytest_toolemu.reporting.report_data import RunView, read_report
from pytest_toolemu.reporting.session_comparison import Change, SessionComparison, compare_sessions
from pytest_toolemu.sessions.reader import run_files

_LEVEL: Final = 0.05
_ORDER: Final[tuple[Change, ...]] = ("worse", "undecided", "better", "same")


def comparison_page(before: Path, after: Path) -> str:
    """The page; UsageError where there are no runs, or it is not clear which agents are meant."""
    files = [run_files([folder]) for folder in (before, after)]
    report = read_report([*files[0], *files[1]], [before, after], with_transcripts=True)
    accounts = {account.row.path: account for account in report.accounts}
    rows = [[accounts[str(file)].row for file in side] for side in files]
    comparisons = compare_sessions(*rows)
    lines = _lines(comparisons, accounts)
    told = {account.number for _, *sides in lines for account in sides}
    return render(
        "compare.html.j2",
        "What changed",
        [account for account in report.accounts if account.number in told],
        {account.number: "before: " if account.number <= len(files[0]) else "after: " for account in report.accounts},
        sides=[before.name, after.name],
        comparisons=comparisons,
        leanings=[_leaning(comparison) for comparison in comparisons],
        measures=GATE_METRICS,
        lines=lines,
    )


def _lines(comparisons: list[SessionComparison], accounts: dict[str, RunView]) -> list[tuple[Change, RunView, RunView]]:
    """Every run on both sides, what got worse first."""
    found = [
        (change.kind, accounts[change.before.path], accounts[change.after.path])
        for comparison in comparisons
        for change in comparison.changes
    ]
    return sorted(found, key=lambda line: (_ORDER.index(line[0]), line[2].row.case, line[2].row.trial))


def _leaning(comparison: SessionComparison) -> Change:
    """Worse or better where chance alone would hardly do it, by the same test as gates; else the same."""
    failures = next((moved for moved in comparison.moved if moved.metric == "failure_incidence"), None)
    if failures is None or None in (failures.change.low, failures.change.high):
        return "same"
    if failures.p_worse < _LEVEL:
        return "worse"
    return "better" if (failures.change.high or 0.0) < 0 else "same"
