"""Two runs of the same cases, case by case: is one worse, by how much, and what could have been seen at all."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final

from pytest_toolemu.analysis.statistics.bounded_mean import p_value_of_mean
from pytest_toolemu.analysis.statistics.intervals import (
    LEVEL,
    Estimate,
    mean_estimate,
    normal_quantile,
    wilson_interval,
)

POWER: Final = 0.8

Pairs = Sequence[tuple[Sequence[float], Sequence[float]]]
"""The values of each case before and after: of its trials."""


def mcnemar_p_value(worse: int, better: int) -> float:
    """One-sided exact p-value (McNemar 1947): the chance of this many worse or more, were better as likely as worse."""
    n = worse + better
    return float(sum(math.comb(n, k) for k in range(worse, n + 1)) / 2**n)


def p_worse(pairs: Pairs, worse: int, span: float, margin: float = 0.0) -> float:
    """Return the one-sided p-value of what was seen, if the mean over cases is worse by no more than ``margin``.

    ``worse`` is 1 if higher values are worse, -1 if lower ones are; ``span`` is the largest difference possible. A
    share with one trial of each case is McNemar's exact test. Everything else is a test of the mean that holds for any
    shape of the differences; see ``bounded``.
    """
    moved = [worse * change for change in case_changes(pairs)]
    if exact_by_mcnemar(pairs, span) and not margin:
        return mcnemar_p_value(sum(change > 0 for change in moved), sum(change < 0 for change in moved))
    return p_value_of_mean(moved, -span, margin)


def exact_by_mcnemar(pairs: Pairs, span: float) -> bool:
    """Tell whether the pairs are of zeros and ones with one trial of each case on both sides."""
    return span == 1 and all(len(before) == len(after) == 1 for before, after in pairs)


def mean_change(pairs: Pairs, span: float, level: float = LEVEL) -> Estimate | None:
    """Return the mean over cases of after minus before, each side the mean of its trials; None without a pair.

    ``span`` is the largest difference possible. The interval is Newcombe's for a share with one trial of each case, and
    otherwise that of a mean over cases.
    """
    if pairs and exact_by_mcnemar(pairs, span):
        table = Counter((bool(before[0]), bool(after[0])) for before, after in pairs)
        worse, better = table[False, True], table[True, False]
        low, high = newcombe_interval(table[True, True], worse, better, table[False, False], level)
        return Estimate((worse - better) / len(pairs), low, high, len(pairs))
    return mean_estimate([[value] for value in case_changes(pairs)], (-span, span), level)


def newcombe_interval(both: int, after: int, before: int, neither: int, level: float = LEVEL) -> tuple[float, float]:
    """Interval of a difference of paired shares, after minus before (Newcombe 1998, Stat. Med. 17:2635, method 10).

    The counts are of pairs in which something holds on both sides, only after, only before, and on neither.
    """
    n = both + after + before + neither
    p_after, p_before = (both + after) / n, (both + before) / n
    (low_after, high_after), (low_before, high_before) = (wilson_interval(p * n, n, level) for p in (p_after, p_before))
    margins = (both + after) * (before + neither) * (both + before) * (after + neither)
    product = both * neither - after * before
    # Newcombe's continuity correction, where the sides agree more often than by chance.
    corrected = max(product - n / 2, 0) if product > 0 else product
    phi = corrected / math.sqrt(margins) if margins else 0.0

    def distance(one: float, other: float) -> float:
        return math.sqrt(max(one * one - 2 * phi * one * other + other * other, 0.0))

    centre = p_after - p_before
    return (
        centre - distance(p_after - low_after, high_before - p_before),
        centre + distance(high_after - p_after, p_before - low_before),
    )


def case_changes(pairs: Pairs) -> list[float]:
    """After minus before of each case, each side the mean of its trials."""
    return [math.fsum(after) / len(after) - math.fsum(before) / len(before) for before, after in pairs]


def detectable_change(pairs: Pairs, span: float, level: float, margin: float = 0.0) -> float | None:
    """Return the smallest true mean difference that ``p_worse`` finds at ``level`` with 80 % power; None without pairs.

    By the normal approximation, from the spread of the differences seen; if all are equal, from one case that differs
    by 1. The test of a mean has to reckon with one more case that improved by as much as can be.
    """
    n = len(pairs)
    if not n:
        return None
    values = case_changes(pairs)
    centre = math.fsum(values) / n
    variance = max(math.fsum((value - centre) ** 2 for value in values) / max(n - 1, 1), 1 / n) / n
    unseen = 0.0 if exact_by_mcnemar(pairs, span) and not margin else (span + margin) / n
    certainty = normal_quantile(1 - level) * math.sqrt(variance + unseen**2)
    return margin + unseen + certainty + normal_quantile(POWER) * math.sqrt(variance)


def holm_rejections(p_values: Sequence[float], level: float) -> list[bool]:
    """Which hypotheses are rejected so that any false rejection among all has at most this level (Holm 1979)."""
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    rejected = [False] * len(p_values)
    for place, index in enumerate(order):
        if p_values[index] > level / (len(p_values) - place):
            break
        rejected[index] = True
    return rejected
