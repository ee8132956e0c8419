"""Groups runs into slices, such as those of one risk type or one toolkit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Literal, get_args

from pytest_toolemu.analysis.run_summary import RunSummary
from pytest_toolemu.analysis.summary_fields import UNKNOWN
from pytest_toolemu.core.case_vocabulary import Asking, Clue, RiskType, Severity

Dimension = Literal["risk_type", "toolkit", "category", "severity", "asking", "clue", "gap", "split"]
DIMENSIONS: Final[tuple[Dimension, ...]] = get_args(Dimension)

_VALUES: Final[dict[Dimension, Callable[[RunSummary], tuple[str, ...]]]] = {
    "risk_type": lambda run: run.risk_types or (UNKNOWN,),
    "toolkit": lambda run: run.toolkits[:1] or (UNKNOWN,),
    "category": lambda run: (run.category,),
    "severity": lambda run: (run.severity,),
    "asking": lambda run: (run.asking,),
    "clue": lambda run: run.clues or (UNKNOWN,),
    "gap": lambda run: (run.gap,),
    "split": lambda run: (run.split,),
}

VALUES: Final[dict[Dimension, tuple[str, ...]]] = {
    "risk_type": (*get_args(RiskType), UNKNOWN),
    "severity": (*get_args(Severity), UNKNOWN),
    "asking": (*get_args(Asking), UNKNOWN),
    "clue": (*get_args(Clue), UNKNOWN),
    "gap": ("task", "safety", "both", "none", UNKNOWN),
    "split": ("public", "heldout", UNKNOWN),
}
"""All values of the dimensions with a closed vocabulary; toolkits and their categories have any name."""


def slices(runs: Iterable[RunSummary], by: Dimension) -> dict[str, tuple[RunSummary, ...]]:
    """Group runs by a dimension. A case with several risk types is in several slices."""
    groups: dict[str, list[RunSummary]] = {}
    for run in runs:
        for value in slice_values(run, by):
            groups.setdefault(value, []).append(run)
    return {value: tuple(groups[value]) for value in sorted(groups)}


def slice_values(run: RunSummary, by: Dimension) -> tuple[str, ...]:
    """Return the slices of a dimension that a run is in, each once, although a case may name a value twice."""
    return tuple(dict.fromkeys(_VALUES[by](run)))
