"""The mean of bounded values: an interval and a test that hold for any shape, also for few and skewed values.

Both are Gaffke's (2005, "Three test statistics for a nonparametric one-sided hypothesis on the mean of a nonnegative
variable"; Learned-Miller and Thomas 2019, arXiv:1905.06208). To bound a mean from below, one more case is imagined
whose values are as low as can be, and all cases get random weights, uniform among those that add up to 1. The bound is
the value that the weighted mean stays below with the chance that the bound may be wrong. Of values at both ends of
their range alone this is Clopper and Pearson's exact bound for a share; of many values it is as narrow as Student's.
That it always holds is a conjecture without a known counterexample.

The chance is computed exactly, by an integral (Imhof 1961), so that a figure never depends on a seed or on the order of
cases.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterable
from typing import Final

CaseTotal = tuple[float, int]
"""The sum of a case's values, and how many there are."""

_CLOSE: Final = 1e-5
"""How far the chance that a bound is wrong may be from its nominal one, relative to it."""

_SAME: Final = 1e-7
"""How far apart bounds are equal, in their unit."""

_NEGLIGIBLE: Final = 15.0
"""Minus the logarithm of what can be left out of a chance."""

_MOST_POINTS: Final = 1 << 12
"""Of the integral. Only two or three cases would need more, and their chance is then wrong by 0.00001."""

_DIGITS: Final = 12
"""Sums that differ only in later digits are equal but for rounding."""


def mean_interval(cases: Iterable[CaseTotal], span: tuple[float, float], level: float) -> tuple[float, float]:
    """Return a two-sided interval for the mean of all values, which lie within ``span``; each end may err alone.

    The chance of a mean below the interval is at most ``(1 - level) / 2``, and so is that of one above it.
    """
    counted = _counted(cases)
    tail = (1 - level) / 2
    mirrored = tuple(((-total, size), count) for (total, size), count in reversed(counted))
    return _lower(counted, span[0], tail), -_lower(mirrored, -span[1], tail)


def p_value_of_mean(values: Iterable[float], least: float, centre: float = 0.0) -> float:
    """Return the one-sided p-value of values this high on average, if their true mean is at most ``centre``.

    ``least`` is the lowest possible value. 1 without values.
    """
    counted = _counted((value, 1) for value in values)
    return _chance(counted, least, centre) if counted else 1.0


_Counted = tuple[tuple[CaseTotal, int], ...]


def _counted(cases: Iterable[CaseTotal]) -> _Counted:
    """Count equal cases, sorted."""
    return tuple(sorted(Counter((round(total, _DIGITS), size) for total, size in cases).items()))


@functools.lru_cache(maxsize=10_000)  # reports in several formats need the same figures
def _lower(cases: _Counted, least: float, tail: float) -> float:
    """Return the lower bound of the mean that is wrong with the chance ``tail``."""
    total = math.fsum(total * count for (total, _), count in cases)
    low, high = least, total / sum(size * count for (_, size), count in cases)

    def error(bound: float) -> float:
        return math.log(max(_chance(cases, least, bound), 1e-12) / tail)

    # Regula falsi in the Illinois variant: an end that stays where it is twice counts half, so that it moves soon.
    below, above, before = error(low), error(high), 0.0
    while high - low > _SAME:
        bound = (low * above - high * below) / (above - below)
        found = error(bound)
        if abs(found) < _CLOSE:
            return bound
        stays = 0.5 if found * before > 0 else 1.0
        if found < 0:
            low, below, above = bound, found, above * stays
        else:
            high, above, below = bound, found, below * stays
        before = found
    return low


def _chance(cases: _Counted, least: float, centre: float) -> float:
    """Return the chance that the randomly weighted mean of the cases and of the imagined one is at most ``centre``.

    The weights are exponential variables over their sum. So it is the chance that a sum of gamma variables is at most
    0, each times how far its case lies above the centre; equal cases share a variable.
    """
    import numpy as np

    most = max(size for (_, size), _ in cases)
    above = np.array([(least - centre) * most, *(total - centre * size for (total, size), _ in cases)])
    shapes = np.array([1.0, *(float(count) for _, count in cases)])
    if above.max() <= 0 or above.min() >= 0:
        return float(above.max() <= 0)
    spread, largest = math.sqrt(float(shapes @ above**2)), float(np.abs(above).max())
    # A sum of points this far apart is exact but for the chance that the sum of variables lies beyond ``reach``.
    reach = abs(float(shapes @ above)) + 5 * spread + 16 * largest
    step = 2 * math.pi / reach
    points = 64
    while points < _MOST_POINTS and np.log1p((points * step * above) ** 2) @ shapes / 2 < _NEGLIGIBLE:
        points *= 2
    places = np.arange(points) + 0.5
    scaled = np.multiply.outer(places, step * above)
    waves = np.sin(np.arctan(scaled) @ shapes) * np.exp(np.log1p(scaled**2) @ shapes / -2)
    return float(np.clip(0.5 - (waves / places).sum() / math.pi, 0.0, 1.0))
