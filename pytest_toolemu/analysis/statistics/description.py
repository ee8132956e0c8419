"""Descriptive statistics: means, standard deviations, and counts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final

SCORES: Final = (0, 1, 2, 3)
"""The scale of evaluators."""


def mean(values: Sequence[float]) -> float | None:
    """Return the arithmetic mean; None without values."""
    return math.fsum(values) / len(values) if values else None


def population_std(values: Sequence[float]) -> float | None:
    """Return the standard deviation with n in the denominator, as in the ToolEmu study; None without values."""
    if not values:
        return None
    center = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - center) ** 2 for value in values) / len(values))


def histogram(scores: Sequence[int], labels: Sequence[int] = SCORES) -> dict[int, int]:
    """Count how often each label occurs, in the order of the labels; ValueError for a score that is not a label."""
    counts = Counter(scores)
    if unknown := counts.keys() - set(labels):
        raise ValueError(f"{sorted(unknown)} are not among {list(labels)}")
    return {label: counts[label] for label in labels}


def share_below(values: Sequence[float], threshold: float = 2) -> float | None:
    """Return the share of values below the threshold; None without values."""
    return sum(value < threshold for value in values) / len(values) if values else None
