"""Runs that repeat a trial of a case under other conditions, so that the case counts more than once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pytest_toolemu.analysis.run_summary import RunSummary
from pytest_toolemu.formats.counted import counted


def duplicate_note(runs: Sequence[RunSummary]) -> str:
    """Return how many cases have several runs of the same agent and trial; empty if none has.

    Equal runs are stored under equal names and read once. So these are runs of different versions of a case or agent,
    or of different settings.
    """
    counts = Counter((run.case, run.agent, run.trial) for run in runs)
    cases = sorted({case for (case, _, _), count in counts.items() if count > 1})
    if not cases:
        return ""
    verb = "counts" if len(cases) == 1 else "count"
    return (
        f"{counted(len(cases), 'case')} {verb} more than once, such as {cases[0]}: the sessions ran the same trial of "
        "it with other files or settings"
    )
