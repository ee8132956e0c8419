"""Interval estimates: Wilson's for a share, Gaffke's for a mean, and the cluster bootstrap for agreement."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Final

from pytest_toolemu.analysis.statistics.bounded_mean import mean_interval

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
