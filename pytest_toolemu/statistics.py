"""The figures, each by its textbook formula. A figure that is not defined for its input is None, never a number."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final, Literal

SCORES: Final = (0, 1, 2, 3)
"""The evaluators' scale."""

Weights = Literal["none", "linear", "quadratic"]


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


def wilson(successes: int, n: int, z: float = 1.959963984540054) -> tuple[float, float]:
    """Wilson score interval of a proportion (Wilson 1927); ``z`` is the normal quantile, by default for 95 %."""
    share, square = successes / n, z * z
    centre = (share + square / (2 * n)) / (1 + square / n)
    half = z / (1 + square / n) * math.sqrt(share * (1 - share) / n + square / (4 * n * n))
    return max(0.0, centre - half), min(1.0, centre + half)


def confusion(first: Sequence[int], second: Sequence[int], labels: Sequence[int] = SCORES) -> list[list[int]]:
    """How often the first rater gave the row's label and the second the column's.

    ValueError for a score that is no label, and when the raters did not rate the same number of things.
    """
    histogram([*first, *second], labels)
    pairs = Counter(zip(first, second, strict=True))
    return [[pairs[row, column] for column in labels] for row in labels]


def agreement(first: Sequence[int], second: Sequence[int], within: int = 0) -> float | None:
    """Share of pairs that differ by at most ``within``; None without pairs, ValueError for unequal lengths."""
    close = [abs(a - b) <= within for a, b in zip(first, second, strict=True)]
    return sum(close) / len(close) if close else None


def cohen_kappa(
    first: Sequence[int], second: Sequence[int], weights: Weights = "none", labels: Sequence[int] = SCORES
) -> float | None:
    """Agreement of two raters beyond chance: 1 - observed / expected disagreement (Cohen 1960; weighted, 1968).

    Two labels that are i places apart disagree by 1 (none), i (linear) or i squared (quadratic). None without pairs,
    and when both raters gave one and the same label throughout, where no disagreement is expected. ValueError as for
    ``confusion``.
    """
    table = confusion(first, second, labels)
    rows, columns = [sum(row) for row in table], [sum(column) for column in zip(*table, strict=True)]
    observed = expected = 0
    for i, row in enumerate(table):
        for j, count in enumerate(row):
            weight = int(i != j) if weights == "none" else abs(i - j) ** (1 if weights == "linear" else 2)
            observed += weight * count
            expected += weight * rows[i] * columns[j]
    return 1 - observed * len(first) / expected if expected else None


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
