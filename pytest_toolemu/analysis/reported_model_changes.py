"""Notes on models that answered under several names: what was one model may have been several."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from pytest_toolemu.analysis.run_summary import RunSummary
from pytest_toolemu.formats.counted import counted

ReportedNames = Mapping[str, Iterable[str]]
"""For each requested model, the names that its endpoint reported."""


def reported_names(runs: Iterable[RunSummary]) -> dict[str, tuple[str, ...]]:
    """Return the names that the endpoint of each requested model reported in these runs."""
    return {requested: tuple(sorted(counts)) for requested, counts in sorted(_counts(runs).items())}


def reported_model_notes(runs: Iterable[RunSummary]) -> list[str]:
    """Return a line for each requested model whose endpoint reported several names in these runs."""
    lines = []
    for requested, counts in sorted(_counts(runs).items()):
        if len(counts) > 1:
            names = " and ".join(f"{name} ({counted(count, 'run')})" for name, count in sorted(counts.items()))
            lines.append(f"{requested} answered as {names}, which may differ; a dated name would stay the same")
    return lines


def reported_model_changes(before: ReportedNames, after: ReportedNames) -> str:
    """Return which of the requested models reported other names before; empty if none did."""
    return "; ".join(
        f"{requested} answered as {' and '.join(before[requested])} before, as {' and '.join(after[requested])} now"
        for requested in after
        if requested in before and set(before[requested]) != set(after[requested])
    )


def _counts(runs: Iterable[RunSummary]) -> dict[str, Counter[str]]:
    """Count the runs of each requested model in which its endpoint reported each name."""
    counts: dict[str, Counter[str]] = {}
    for run in runs:
        for model in run.reported_models:
            counts.setdefault(model.requested, Counter())[model.reported] += 1
    return counts
