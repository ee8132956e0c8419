"""How sure a figure is: Wilson's interval for a share, an exact one for a mean, the bootstrap for agreement."""

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
_KEPT: Final = 2_000_000
DRAWS: Final = 2000
"""Resamples of a bootstrap: the ends of a 95 % interval then vary by about a twentieth of its width."""


@dataclass(frozen=True)
class Estimate:
    """A figure with its 95 % interval, from ``n`` values. The ends are None where one case alone tells nothing."""

    value: float
    low: float | None
    high: float | None
    n: int


def normal_quantile(share: float) -> float:
    """The value below which that share of a standard normal distribution lies."""
    return NormalDist().inv_cdf(share)


def wilson_interval(successes: float, n: float, level: float = LEVEL) -> tuple[float, float]:
    """Wilson score interval of a proportion (Wilson 1927). ``n`` may be an effective sample size, so not whole."""
    z = normal_quantile((1 + level) / 2)
    share, square = successes / n, z * z
    centre = (share + square / (2 * n)) / (1 + square / n)
    half = z / (1 + square / n) * math.sqrt(share * (1 - share) / n + square / (4 * n * n))
    return max(0.0, centre - half), min(1.0, centre + half)


def effective_size(clusters: Iterable[Sequence[float]]) -> float:
    """How many independent values the clusters are worth: n over the design effect (Kish 1965), from clusters to n.

    Equal values within each cluster are worth one value a cluster; values that vary within as much as between are
    worth all of n.
    """
    groups = [cluster for cluster in clusters if cluster]
    n, count = sum(map(len, groups)), len(groups)
    if n == count or count < 2:
        return float(count)
    centre = math.fsum(map(math.fsum, groups)) / n
    independent = math.fsum((value - centre) ** 2 for group in groups for value in group) / n / n
    if not independent:
        return float(count)
    # Linearised variance of the ratio sum / n over clusters.
    clustered = math.fsum((math.fsum(group) - centre * len(group)) ** 2 for group in groups)
    clustered *= count / (count - 1) / n / n
    return n / min(max(clustered / independent, 1.0), n / count)


def share_estimate(clusters: Sequence[Sequence[float]], level: float = LEVEL) -> Estimate | None:
    """The share of ones among zeros and ones, with Wilson's interval at the effective size; None without a value."""
    n = sum(map(len, clusters))
    if not n:
        return None
    rate = math.fsum(map(math.fsum, clusters)) / n
    size = effective_size(clusters)
    low, high = wilson_interval(rate * size, size, level)
    return Estimate(rate, low, high, n)


def mean_estimate(
    clusters: Sequence[Sequence[float]], span: tuple[float, float], level: float = LEVEL
) -> Estimate | None:
    """Return the mean of all values, with an interval over clusters; None without a value.

    ``span`` are the lowest and highest value possible. Each end of the interval errs with a chance of at most
    ``(1 - level) / 2``, however few and skewed the values are; see ``bounded``. One cluster has no interval.
    """
    groups = [cluster for cluster in clusters if cluster]
    n = sum(map(len, groups))
    if not n:
        return None
    totals = [(math.fsum(group), len(group)) for group in groups]
    low, high = mean_interval(totals, span, level) if len(groups) > 1 else (None, None)
    return Estimate(math.fsum(map(math.fsum, groups)) / n, low, high, n)


def bootstrap_interval(
    columns: Sequence[Sequence[float]],
    figure: Callable[[Columns], Any],
    level: float = LEVEL,
    seed: int = 0,
) -> tuple[float | None, float | None]:
    """Percentile interval (Efron 1979) of a figure that is a function of column totals.

    ``columns`` has a row for each cluster; ``figure`` gets one row of totals for each resample and gives a value for
    each, NaN where it is not defined. (None, None) when there are fewer than two clusters, or no defined value.
    """
    if len(columns) < 2:
        return None, None
    import numpy as np

    values = np.asarray(figure(resampled_totals(columns, seed)), dtype=float)
    values = values[np.isfinite(values)]
    if not len(values):
        return None, None
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def resampled_totals(columns: Sequence[Sequence[float]], seed: int = 0, draws: int = DRAWS) -> Columns:
    """Return column totals of ``draws`` samples of clusters with replacement, each as large as the whole.

    Clusters are sorted first, so that the order of cases makes no difference.
    """
    import numpy as np

    table = np.asarray(sorted(map(tuple, columns)), dtype=float)
    size = len(table)
    if size * draws <= _KEPT:
        totals: Columns = _drawn(size, seed, draws) @ table
        return totals
    generator = np.random.default_rng(seed)
    # Of equal clusters it makes no difference which is drawn; scores are few, so that many cases are few kinds.
    table, alike = np.unique(table, axis=0, return_counts=True)
    shares = alike / size
    # In parts: a draw of a thousand clusters at once would need a hundred megabytes for 10,000 cases.
    step = max(1, _KEPT // len(table))
    parts = [
        generator.multinomial(size, shares, size=min(step, draws - start)) @ table for start in range(0, draws, step)
    ]
    return np.concatenate(parts)


# Drawing takes longer than anything made of it, and the figures of one agent are all over the same cases.
@functools.lru_cache(maxsize=4)
def _drawn(size: int, seed: int, draws: int) -> Columns:
    """How often each of ``size`` clusters is in each resample."""
    import numpy as np

    return np.random.default_rng(seed).multinomial(size, np.full(size, 1 / size), size=draws).astype(float)
