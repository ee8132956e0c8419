"""Paired comparison of two sessions over the same cases: tests for harm, size of change, and detectable change."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final, Literal

from pytest_toolemu.analysis.statistics.intervals import (
    LEVEL,
    Estimate,
    mean_estimate,
    normal_quantile,
    p_value_of_mean,
    wilson_interval,
)

POWER: Final = 0.8

Pairs = Sequence[tuple[Sequence[float], Sequence[float]]]
"""For each case, the values of its trials before and after."""


def mcnemar_p_value(worse: int, better: int) -> float:
    """Return the one-sided exact p-value of McNemar's test (1947).

    It is the probability of at least ``worse`` changes for the worse if both directions were equally likely.
    """
    n = worse + better
    return float(sum(math.comb(n, k) for k in range(worse, n + 1)) / 2**n)


def format_p_value(value: float) -> str:
    """Return a p-value for a text, with three digits. Smaller ones than 0.0001 are not told apart."""
    return f"{value:.3g}" if value >= 0.0001 else "< 0.0001"


def p_worse(pairs: Pairs, worse: int, span: float, margin: float = 0.0) -> float:
    """Return the one-sided p-value of the hypothesis that the mean is worse by no more than ``margin``.

    ``worse`` is 1 if higher values are worse and -1 if lower values are; ``span`` is the largest possible change. For a
    share with one trial of each case this is McNemar's exact test. Otherwise it is a test of the mean that holds for
    any distribution of the changes; see ``bounded_mean``.
    """
    harms = [worse * change for change in case_changes(pairs)]
    if exact_by_mcnemar(pairs, span) and not margin:
        return mcnemar_p_value(sum(harm > 0 for harm in harms), sum(harm < 0 for harm in harms))
    return p_value_of_mean(harms, -span, margin)


def exact_by_mcnemar(pairs: Pairs, span: float) -> bool:
    """Return whether all values are zeros and ones, with one trial of each case on both sides."""
    return span == 1 and all(len(before) == len(after) == 1 for before, after in pairs)


def mean_change(pairs: Pairs, span: float, level: float = LEVEL) -> Estimate | None:
    """Estimate the mean change over cases, after minus before, each side the mean of its trials; None without pairs.

    ``span`` is the largest possible change. The interval is Newcombe's for a share with one trial of each case, and
    otherwise that of a mean over cases.
    """
    if pairs and exact_by_mcnemar(pairs, span):
        table = Counter((bool(before[0]), bool(after[0])) for before, after in pairs)
        worse, better = table[False, True], table[True, False]
        low, high = newcombe_interval(table[True, True], worse, better, table[False, False], level)
        return Estimate((worse - better) / len(pairs), low, high, len(pairs))
    return mean_estimate([[value] for value in case_changes(pairs)], (-span, span), level)


def newcombe_interval(both: int, after: int, before: int, neither: int, level: float = LEVEL) -> tuple[float, float]:
    """Return the interval of a difference of paired shares, after minus before.

    Newcombe 1998, Stat. Med. 17:2635, method 10. The counts are pairs in which the property holds on both sides, only
    after, only before, and on neither side.
    """
    n = both + after + before + neither
    p_after, p_before = (both + after) / n, (both + before) / n
    (low_after, high_after), (low_before, high_before) = (wilson_interval(p * n, n, level) for p in (p_after, p_before))
    margins = (both + after) * (before + neither) * (both + before) * (after + neither)
    product = both * neither - after * before
    # Newcombe applies a continuity correction only if the sides agree more often than by chance.
    corrected = max(product - n / 2, 0) if product > 0 else product
    phi = corrected / math.sqrt(margins) if margins else 0.0

    def distance(one: float, other: float) -> float:
        return math.sqrt(max(one * one - 2 * phi * one * other + other * other, 0.0))

    center = p_after - p_before
    return (
        center - distance(p_after - low_after, high_before - p_before),
        center + distance(high_after - p_after, p_before - low_before),
    )


def case_changes(pairs: Pairs) -> list[float]:
    """Return the change of each case, after minus before, each side the mean of its trials."""
    return [_mean(after) - _mean(before) for before, after in pairs]


def _mean(values: Sequence[float]) -> float:
    return values[0] if len(values) == 1 else math.fsum(values) / len(values)


def detectable_change(pairs: Pairs, span: float, level: float, margin: float = 0.0) -> float | None:
    """Return the smallest true mean change that ``p_worse`` finds at ``level`` with 80 % power; None without pairs.

    The normal approximation uses the variance of the observed changes. If all changes are equal, it uses the variance
    of a single case that changed by 1, because a variance of zero would promise to find any change. The test of a mean
    adds one imaginary case that improved as much as possible, which lowers its power.
    """
    n = len(pairs)
    if not n:
        return None
    values = case_changes(pairs)
    center = math.fsum(values) / n
    variance = max(math.fsum((value - center) ** 2 for value in values) / max(n - 1, 1), 1 / n) / n
    imaginary = 0.0 if exact_by_mcnemar(pairs, span) and not margin else (span + margin) / n
    critical = normal_quantile(1 - level) * math.sqrt(variance + imaginary**2)
    return margin + imaginary + critical + normal_quantile(POWER) * math.sqrt(variance)


def holm_rejections(p_values: Sequence[float], level: float) -> list[bool]:
    """Return which hypotheses are rejected at a family-wise error rate of at most ``level`` (Holm 1979)."""
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    rejected = [False] * len(p_values)
    for rank, index in enumerate(order):
        if p_values[index] > level / (len(p_values) - rank):
            break
        rejected[index] = True
    return rejected


_ALTERNATIVES: Final = 20
"""Number of totals on which a bet stakes. More would divide the capital further; fewer would match worse."""

Side = Literal["at most", "above"]
"""Of the limit: where the total of all values is."""


class SequentialTotalTest:
    """Whether the total of ``size`` values from 0 to ``width`` is at most ``limit``; all are whole numbers.

    Add the values in random order. The probability that ``side`` is ever wrong is at most ``error``; with an error of 0
    it is set only when no remaining value can change it. An unknown value is added with its lowest and highest bound:
    then ``side`` is what holds for either.
    """

    def __init__(self, size: int, width: int, limit: int, error: float) -> None:
        self.side: Side | None = None
        self._remaining, self._width, self._limit, self._error = size, width, limit, error
        self._low = self._high = 0
        # A total above the limit, and, with each value subtracted from its maximum, one that is not.
        self._for_at_most = _Bet(size, width, limit + 1)
        self._for_above = _Bet(size, width, size * width - limit)

    @property
    def extremes(self) -> tuple[int, int]:
        """The lowest and the highest total that is still possible."""
        return self._low, self._high + self._remaining * self._width

    def add(self, low: int, high: int) -> None:
        """Add a value between these bounds. Values after the decision change the extremes only."""
        self._low += low
        self._high += high
        self._remaining -= 1
        if self.side is not None:
            return
        lowest, highest = self.extremes
        if highest <= self._limit or self._wins(self._for_at_most, high):
            self.side = "at most"
        elif lowest > self._limit or self._wins(self._for_above, self._width - low):
            self.side = "above"

    def _wins(self, bet: _Bet, value: int) -> bool:
        return self._error > 0 and self._error * bet.add(value) >= 1


class _Bet:
    """A bet that the total of ``size`` values from 0 to ``width`` is below ``boundary``."""

    def __init__(self, size: int, width: int, boundary: int) -> None:
        self._remaining, self._width, self._boundary = size, width, boundary
        self._total = 0
        self._totals = [boundary * number / _ALTERNATIVES for number in range(_ALTERNATIVES)]
        self._capitals = [1 / _ALTERNATIVES] * _ALTERNATIVES

    def add(self, value: int) -> float:
        """Return the capital after this value."""
        possible = self._remaining * self._width
        # The mean of this and all later values, as a share of the width, if the total is the boundary.
        mean = (self._boundary - self._total) / possible
        if 0 < mean < 1:
            odds = (mean - value / self._width) / (mean * (1 - mean))
            for number, total in enumerate(self._totals):
                expected = min(max((total - self._total) / possible, 0.0), mean)
                self._capitals[number] *= 1 + (mean - expected) * odds
        self._total += value
        self._remaining -= 1
        return sum(self._capitals)
