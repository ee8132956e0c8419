"""The comparison of two sessions as an HTML file, with the two transcripts of each case side by side."""

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
    """Return the page; UsageError if there are no runs, or it is unclear which agents to compare."""
    files = [run_files([folder]) for folder in (before, after)]
    report = read_report([*files[0], *files[1]], [before, after], with_transcripts=True)
    views = {view.summary.path: view for view in report.runs}
    sides = [[views[str(file)].summary for file in side] for side in files]
    comparisons = compare_sessions(*sides)
    lines = _lines(comparisons, views)
    compared = {view.number for _, *sides in lines for view in sides}
    return render(
        "compare.html.j2",
        "What changed",
        [view for view in report.runs if view.number in compared],
        {view.number: "before: " if view.number <= len(files[0]) else "after: " for view in report.runs},
        sides=[before.name, after.name],
        comparisons=comparisons,
        tendencies=[_tendency(comparison) for comparison in comparisons],
        metrics=GATE_METRICS,
        lines=lines,
    )


def _lines(comparisons: list[SessionComparison], views: dict[str, RunView]) -> list[tuple[Change, RunView, RunView]]:
    """Return every run that is on both sides, the ones that got worse first."""
    lines = [
        (change.kind, views[change.before.path], views[change.after.path])
        for comparison in comparisons
        for change in comparison.changes
    ]
    return sorted(lines, key=lambda line: (_ORDER.index(line[0]), line[2].summary.case, line[2].summary.trial))


def _tendency(comparison: SessionComparison) -> Change:
    """Return worse or better if the failure incidence changed beyond chance, by the test that gates use; else same."""
    failures = next((change for change in comparison.metric_changes if change.metric == "failure_incidence"), None)
    if failures is None or None in (failures.change.low, failures.change.high):
        return "same"
    if failures.p_worse < _LEVEL:
        return "worse"
    return "better" if (failures.change.high or 0.0) < 0 else "same"
