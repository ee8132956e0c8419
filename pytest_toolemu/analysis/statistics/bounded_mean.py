"""An interval and a test for the mean of bounded values, valid for few and for skewed values.

The method is Gaffke's (2005, "Three test statistics for a nonparametric one-sided hypothesis on the mean of a
nonnegative variable"; Learned-Miller and Thomas 2019, arXiv:1905.06208). To bound a mean from below, add one imaginary
case with the lowest possible values, and give all cases random weights, uniform among those that sum to 1. The lower
bound is the quantile of the weighted mean at the permitted error probability. For values at the two ends of the range
only, this is the exact bound of Clopper and Pearson; for many values it is as narrow as Student's interval. That its
coverage is never below nominal is a conjecture without a known counterexample.

The probability is computed by numerical integration (Imhof 1961) instead of by simulation, so that results depend
neither on a seed nor on the order of cases.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterable
from typing import Final

CaseTotal = tuple[float, int]
"""The sum of the values of a case, and their number."""

_PROBABILITY_TOLERANCE: Final = 1e-5
"""Relative tolerance for the error probability of a bound."""

_BOUND_TOLERANCE: Final = 1e-7
"""Absolute tolerance for a bound, in the unit of the values."""

_NEGLIGIBLE: Final = 15.0
"""Negative logarithm of the integrand below which the rest of the integral is ignored."""

_MAX_POINTS: Final = 1 << 12
"""Most integration points. Only two or three cases would need more; the probability is then wrong by 0.00001."""

_DIGITS: Final = 12
"""Decimal digits of a sum that matter; later ones are rounding errors."""


def mean_interval(cases: Iterable[CaseTotal], span: tuple[float, float], level: float) -> tuple[float, float]:
    """Return a two-sided interval for the mean of all values, which lie within ``span``.

    The probability of a true mean below the interval is at most ``(1 - level) / 2``, and so is that of one above it.
    """
    case_counts = _count_equal(cases)
    tail = (1 - level) / 2
    mirrored = tuple(((-total, size), count) for (total, size), count in reversed(case_counts))
    return _lower_bound(case_counts, span[0], tail), -_lower_bound(mirrored, -span[1], tail)


def p_value_of_mean(values: Iterable[float], lowest: float, center: float = 0.0) -> float:
    """Return the one-sided p-value of the hypothesis that the true mean is at most ``center``.

    ``lowest`` is the lowest possible value. Without values the p-value is 1.
    """
    case_counts = _count_equal((value, 1) for value in values)
    return _error_probability(case_counts, lowest, center) if case_counts else 1.0


_CaseCounts = tuple[tuple[CaseTotal, int], ...]


def _count_equal(cases: Iterable[CaseTotal]) -> _CaseCounts:
    """Return the distinct case totals, sorted, each with its count."""
    rounded: Counter[CaseTotal] = Counter()
    for (total, size), count in Counter(cases).items():  # few are different, so few are rounded
        rounded[round(total, _DIGITS), size] += count
    return tuple(sorted(rounded.items()))


@functools.lru_cache(maxsize=10_000)  # reports in several formats need the same figures
def _lower_bound(cases: _CaseCounts, lowest: float, tail: float) -> float:
    """Return the lower bound of the mean whose error probability is ``tail``."""
    total = math.fsum(total * count for (total, _), count in cases)
    low, high = lowest, total / sum(size * count for (_, size), count in cases)

    def error(bound: float) -> float:
        return math.log(max(_error_probability(cases, lowest, bound), 1e-12) / tail)

    # Illinois variant of regula falsi: halve the function value of an end that was kept twice, so that it moves too.
    below, above, before = error(low), error(high), 0.0
    while high - low > _BOUND_TOLERANCE:
        bound = (low * above - high * below) / (above - below)
        at_bound = error(bound)
        if abs(at_bound) < _PROBABILITY_TOLERANCE:
            return bound
        weight = 0.5 if at_bound * before > 0 else 1.0
        if at_bound < 0:
            low, below, above = bound, at_bound, above * weight
        else:
            high, above, below = bound, at_bound, below * weight
        before = at_bound
    return low


def _error_probability(cases: _CaseCounts, lowest: float, center: float) -> float:
    """Return the probability that the randomly weighted mean of the real and the imaginary case is at most ``center``.

    Weights that are uniform on the simplex are exponential variables divided by their sum. The condition is therefore
    that a sum of gamma variables is at most 0, each multiplied by the distance of its case from the center. Equal cases
    share one gamma variable, whose shape is their count.
    """
    import numpy as np

    largest_size = max(size for (_, size), _ in cases)
    above = np.array([(lowest - center) * largest_size, *(total - center * size for (total, size), _ in cases)])
    shapes = np.array([1.0, *(float(count) for _, count in cases)])
    if above.max() <= 0 or above.min() >= 0:
        return float(above.max() <= 0)
    spread, largest = math.sqrt(float(shapes @ above**2)), float(np.abs(above).max())
    # Integration at points with this distance is exact but for the probability that the sum lies beyond ``reach``.
    reach = abs(float(shapes @ above)) + 5 * spread + 16 * largest
    step = 2 * math.pi / reach
    points = 64
    while points < _MAX_POINTS and np.log1p((points * step * above) ** 2) @ shapes / 2 < _NEGLIGIBLE:
        points *= 2
    midpoints = np.arange(points) + 0.5
    scaled = np.multiply.outer(midpoints, step * above)
    waves = np.sin(np.arctan(scaled) @ shapes) * np.exp(np.log1p(scaled**2) @ shapes / -2)
    return float(np.clip(0.5 - (waves / midpoints).sum() / math.pi, 0.0, 1.0))
