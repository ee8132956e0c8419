"""Two runs of the same cases, case by case: is one worse, by how much, and what could have been seen at all."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final

from pytest_toolemu.statistics.intervals import LEVEL, Estimate, mean_of, normal_quantile, wilson

FLIPS: Final = 20_000
POWER: Final = 0.8
_CLOSE: Final = 1e-9


def mcnemar(worse: int, better: int) -> float:
    """One-sided exact p-value (McNemar 1947): the chance of this many worse or more, were better as likely as worse."""
    n = worse + better
    return float(sum(math.comb(n, k) for k in range(worse, n + 1)) / 2**n)


def sign_flip(differences: Sequence[float], seed: int = 0) -> float:
    """One-sided p-value that the differences' sum is this large, were each as likely to have the other sign.

    The permutation test for paired data (Fisher 1935): exact where every difference is -1, 0 or 1, which is McNemar's
    test, and otherwise by 20,000 random flips, counted so that it never falls below its level. 1 without differences.
    """
    moved = [difference for difference in differences if difference]
    if all(abs(abs(difference) - 1) < _CLOSE for difference in moved):
        return mcnemar(sum(d > 0 for d in moved), sum(d < 0 for d in moved))
    import numpy as np

    values = np.asarray(moved, dtype=float)
    generator = np.random.default_rng(seed)
    step = max(1, 2_000_000 // len(values))
    reached = 0
    for start in range(0, FLIPS, step):
        signs = generator.integers(0, 2, size=(min(step, FLIPS - start), len(values)), dtype=np.int8) * 2 - 1
        reached += int((signs @ values >= values.sum() - _CLOSE).sum())
    return (reached + 1) / (FLIPS + 1)


def difference(
    pairs: Sequence[tuple[Sequence[float], Sequence[float]]], span: float, level: float = LEVEL
) -> Estimate | None:
    """Mean over cases of after minus before, each side the mean of its trials; None without a pair.

    ``span`` is the largest difference possible. The interval is Newcombe's where every case has one trial with 0 or 1
    on each side, and otherwise a paired bootstrap over cases.
    """
    if pairs and span == 1 and all(len(before) == len(after) == 1 for before, after in pairs):
        table = Counter((bool(before[0]), bool(after[0])) for before, after in pairs)
        worse, better = table[False, True], table[True, False]
        low, high = newcombe(table[True, True], worse, better, table[False, False], level)
        return Estimate((worse - better) / len(pairs), low, high, len(pairs))
    return mean_of([[value] for value in differences(pairs)], (-span, span), level)


def newcombe(both: int, after: int, before: int, neither: int, level: float = LEVEL) -> tuple[float, float]:
    """Interval of a difference of paired shares, after minus before (Newcombe 1998, Stat. Med. 17:2635, method 10).

    The counts are of pairs in which something holds on both sides, only after, only before, and on neither.
    """
    n = both + after + before + neither
    p_after, p_before = (both + after) / n, (both + before) / n
    (low_after, high_after), (low_before, high_before) = (wilson(p * n, n, level) for p in (p_after, p_before))
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


def differences(pairs: Sequence[tuple[Sequence[float], Sequence[float]]]) -> list[float]:
    """After minus before of each case, each side the mean of its trials."""
    return [math.fsum(after) / len(after) - math.fsum(before) / len(before) for before, after in pairs]


def detectable(values: Sequence[float], level: float, power: float = POWER) -> float | None:
    """The smallest true mean difference that a one-sided test at ``level`` would find with that power.

    By the normal approximation, from the spread of the differences seen; where all are equal, from one case that
    differs by 1. None without values.
    """
    n = len(values)
    if not n:
        return None
    centre = math.fsum(values) / n
    variance = math.fsum((value - centre) ** 2 for value in values) / max(n - 1, 1)
    return (normal_quantile(1 - level) + normal_quantile(power)) * math.sqrt(max(variance, 1 / n) / n)


def holm(p_values: Sequence[float], level: float) -> list[bool]:
    """Which hypotheses are rejected so that any false rejection among all has at most this level (Holm 1979)."""
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    rejected = [False] * len(p_values)
    for place, index in enumerate(order):
        if p_values[index] > level / (len(p_values) - place):
            break
        rejected[index] = True
    return rejected
