"""The comparison of two sessions as an HTML file, with the two transcripts of each case side by side."""

from __future__ import annotations

from pathlib import Path

from pytest_toolemu.reporting.comparison import changes_by_importance, compare_sessions
from pytest_toolemu.reporting.html_report import render
from pytest_toolemu.reporting.report_data import read_report
from pytest_toolemu.sessions.reader import run_files


def comparison_page(before: Path, after: Path) -> str:
    """Return the page; UsageError if there are no runs, or it is unclear which agents to compare."""
    files = [run_files([folder]) for folder in (before, after)]
    report = read_report([*files[0], *files[1]], [before, after], with_transcripts=True)
    views = {view.summary.path: view for view in report.runs}
    sides = [[views[str(file)].summary for file in side] for side in files]
    comparisons = compare_sessions(*sides)
    lines = [
        (change.kind, views[change.before.path], views[change.after.path])
        for change in changes_by_importance(comparisons)
    ]
    compared = {view.number for _, *sides in lines for view in sides}
    return render(
        "compare.html.j2",
        "What changed",
        [view for view in report.runs if view.number in compared],
        {view.number: "before: " if view.number <= len(files[0]) else "after: " for view in report.runs},
        sides=[before.name, after.name],
        comparisons=comparisons,
        lines=lines,
    )
