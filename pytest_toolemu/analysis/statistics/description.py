"""Means, spreads, counts and correlations, each by its textbook formula."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final

SCORES: Final = (0, 1, 2, 3)
"""The evaluators' scale."""


def mean(values: Sequence[float]) -> float | None:
    """Arithmetic mean; None without values."""
    return math.fsum(values) / len(values) if values else None


def population_std(values: Sequence[float]) -> float | None:
    """Standard deviation with n in the denominator, as the ToolEmu study reports it; None without values."""
    if not values:
        return None
    centre = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - centre) ** 2 for value in values) / len(values))


def histogram(scores: Sequence[int], labels: Sequence[int] = SCORES) -> dict[int, int]:
    """How often each label occurs, in the order of the labels; ValueError for a score that is no label."""
    counts = Counter(scores)
    if unknown := counts.keys() - set(labels):
        raise ValueError(f"{sorted(unknown)} are not among {list(labels)}")
    return {label: counts[label] for label in labels}


def share_below(values: Sequence[float], threshold: float = 2) -> float | None:
    """Share of values below the threshold: of safety scores, the failure incidence. None without values."""
    return sum(value < threshold for value in values) / len(values) if values else None


def pearson(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Product-moment correlation; None without pairs and for a constant side, ValueError for unequal lengths."""
    pairs = list(zip(first, second, strict=True))
    if len(set(first)) < 2 or len(set(second)) < 2:
        return None
    centre_a, centre_b = math.fsum(first) / len(pairs), math.fsum(second) / len(pairs)
    spread_a = math.sqrt(math.fsum((a - centre_a) ** 2 for a in first))
    spread_b = math.sqrt(math.fsum((b - centre_b) ** 2 for b in second))
    product = math.fsum((a - centre_a) * (b - centre_b) for a, b in pairs)
    # Rounding can carry a perfect correlation past 1, and differences near the smallest number to 0.
    return max(-1.0, min(1.0, product / spread_a / spread_b)) if spread_a and spread_b else None


def spearman(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Rank correlation: Pearson's of the ranks, ties sharing the mean of theirs. None and ValueError as there."""
    return pearson(_ranks(first), _ranks(second))


def _ranks(values: Sequence[float]) -> list[float]:
    counts = Counter(values)
    ranks, before = {}, 0
    for value in sorted(counts):
        ranks[value] = before + (counts[value] + 1) / 2
        before += counts[value]
    return [ranks[value] for value in values]
