"""Interval estimates: Wilson's for a share, Gaffke's for a mean, and the cluster bootstrap for agreement."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import comb
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Columns = NDArray[np.float64]

LEVEL: Final = 0.95
_MAX_CACHED_CELLS: Final = 2_000_000
# Equal runs have equal intervals.
_SEED: Final = 0
DRAWS: Final = 2000
"""Number of bootstrap resamples. The ends of a 95 % interval then vary by about a twentieth of its width."""


@dataclass(frozen=True)
class Estimate:
    """An estimate with its 95 % interval, from ``n`` values; the ends are None if there is only one case."""

    value: float
    low: float | None
    high: float | None
    n: int

    @property
    def no_interval(self) -> str:
        """Return why there is no interval; empty if there is one."""
        return "" if self.low is not None else f"1 {'run' if self.n == 1 else 'case'}: no interval"


def by_cluster(pairs: Iterable[tuple[str, float | None]]) -> list[list[float]]:
    """Return the defined values of each cluster, such as those of the trials of a case."""
    clusters: dict[str, list[float]] = {}
    for cluster, value in pairs:
        if value is not None:
            clusters.setdefault(cluster, []).append(value)
    return list(clusters.values())


def normal_quantile(share: float) -> float:
    """Return the value below which the given share of a standard normal distribution lies."""
    return NormalDist().inv_cdf(share)


def wilson_interval(successes: float, n: float, level: float = LEVEL) -> tuple[float, float]:
    """Return the Wilson score interval of a proportion (Wilson 1927).

    ``n`` may be an effective sample size, so it need not be an integer.
    """
    z = normal_quantile((1 + level) / 2)
    share, square = successes / n, z * z
    center = (share + square / (2 * n)) / (1 + square / n)
    half = z / (1 + square / n) * math.sqrt(share * (1 - share) / n + square / (4 * n * n))
    return max(0.0, center - half), min(1.0, center + half)


def effective_size(clusters: Iterable[Sequence[float]]) -> float:
    """Return the effective sample size of clustered values: n divided by the design effect (Kish 1965).

    The result lies between the number of clusters (all values within a cluster are equal) and n (values vary as much
    within clusters as between them).
    """
    groups = [cluster for cluster in clusters if cluster]
    n, count = sum(map(len, groups)), len(groups)
    if n == count or count < 2:
        return float(count)
    center = math.fsum(map(math.fsum, groups)) / n
    independent = math.fsum((value - center) ** 2 for group in groups for value in group) / n / n
    if not independent:
        return float(count)
    # Linearized variance of the ratio sum / n over clusters.
    clustered = math.fsum((math.fsum(group) - center * len(group)) ** 2 for group in groups)
    clustered *= count / (count - 1) / n / n
    return n / min(max(clustered / independent, 1.0), n / count)


def share_estimate(clusters: Sequence[Sequence[float]]) -> Estimate | None:
    """Estimate the share of ones among zeros and ones, with Wilson's interval at the effective sample size.

    None without values.
    """
    n = sum(map(len, clusters))
    if not n:
        return None
    rate = math.fsum(map(math.fsum, clusters)) / n
    size = effective_size(clusters)
    low, high = wilson_interval(rate * size, size, LEVEL)
    return Estimate(rate, low, high, n)


def mean_estimate(
    clusters: Sequence[Sequence[float]], span: tuple[float, float], level: float = LEVEL
) -> Estimate | None:
    """Estimate the mean of all values, with an interval over clusters; None without values.

    ``span`` holds the lowest and highest possible value. Each end of the interval is wrong with a probability of at
    most ``(1 - level) / 2``, even for few or skewed values; see ``bounded_mean``. A single cluster has no interval.
    """
    groups = [cluster for cluster in clusters if cluster]
    n = sum(map(len, groups))
    if not n:
        return None
    totals = [(math.fsum(group), len(group)) for group in groups]
    low, high = mean_interval(totals, span, level) if len(groups) > 1 else (None, None)
    return Estimate(math.fsum(total for total, _ in totals) / n, low, high, n)


def bootstrap_interval(
    columns: Sequence[Sequence[float]], statistic: Callable[[Columns], Any]
) -> tuple[float | None, float | None]:
    """Return the percentile interval (Efron 1979) of a statistic that is a function of column totals.

    ``columns`` has one row for each cluster. ``statistic`` gets one row of totals for each resample and returns one
    value for each, NaN if undefined. The result is (None, None) for fewer than two clusters, or without a defined
    value.
    """
    if len(columns) < 2:
        return None, None
    import numpy as np

    values = np.asarray(statistic(resampled_totals(columns)), dtype=float)
    values = values[np.isfinite(values)]
    if not len(values):
        return None, None
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def resampled_totals(columns: Sequence[Sequence[float]]) -> Columns:
    """Return the column totals of ``DRAWS`` samples of all clusters, drawn with replacement.

    The result is always the same: the seed is fixed, and clusters are sorted first, whatever the order of cases.
    """
    import numpy as np

    table = np.asarray(sorted(map(tuple, columns)), dtype=float)
    size = len(table)
    if size * DRAWS <= _MAX_CACHED_CELLS:
        totals: Columns = _cluster_counts(size) @ table
        return totals
    generator = np.random.default_rng(_SEED)
    # Equal clusters are interchangeable. Scores take few values, so thousands of cases have few distinct rows.
    table, multiplicities = np.unique(table, axis=0, return_counts=True)
    shares = multiplicities / size
    # Draw in chunks to bound memory: all draws at once need more than a hundred megabytes for 10,000 cases.
    step = max(1, _MAX_CACHED_CELLS // len(table))
    chunks = [
        generator.multinomial(size, shares, size=min(step, DRAWS - start)) @ table for start in range(0, DRAWS, step)
    ]
    return np.concatenate(chunks)


# Drawing is the slowest step, and the metrics of one agent are all over the same cases and so share their draws.
@functools.lru_cache(maxsize=4)
def _cluster_counts(size: int) -> Columns:
    """Count how often each of ``size`` clusters occurs in each resample."""
    import numpy as np

    return np.random.default_rng(_SEED).multinomial(size, np.full(size, 1 / size), size=DRAWS).astype(float)


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


def pass_at_k(n: int, passed: int, k: int) -> float | None:
    """Estimate the probability that at least one of k trials passes, without bias, from n trials.

    Chen et al. 2021, equation 1. None if there are fewer than k trials. ValueError for k below 1.
    """
    if k < 1:
        raise ValueError(f"k is {k}, expected at least 1")
    return 1 - comb(n - passed, k) / comb(n, k) if k <= n else None


def pass_hat_k(n: int, passed: int, k: int) -> float | None:
    """Estimate pass^k, the probability that all of k trials pass, without bias, from n trials.

    Yao et al. 2024 (tau-bench). None if there are fewer than k trials. ValueError for k below 1.
    """
    if k < 1:
        raise ValueError(f"k is {k}, expected at least 1")
    return comb(passed, k) / comb(n, k) if k <= n else None


def flakiness(n: int, passed: int) -> float | None:
    """Estimate the probability that two trials of the case disagree, without bias; None for fewer than two trials."""
    return 2 * passed * (n - passed) / (n * (n - 1)) if n > 1 else None
