"""Agreement between raters: agreement rate, Cohen's kappa, and Krippendorff's alpha, with intervals."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from pytest_toolemu.analysis.statistics.intervals import (
    SCORES,
    Estimate,
    bootstrap_interval,
    histogram,
    wilson_interval,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Weights = Literal["none", "linear", "quadratic"]


def confusion_matrix(first: Sequence[int], second: Sequence[int], labels: Sequence[int] = SCORES) -> list[list[int]]:
    """Return the confusion matrix: rows are labels of the first rater, columns are labels of the second.

    ValueError for a score that is not a label, and for sequences of unequal length.
    """
    histogram([*first, *second], labels)  # raises ValueError for a score that is not a label
    pairs = Counter(zip(first, second, strict=True))
    return [[pairs[row, column] for column in labels] for row in labels]


def agreement_rate(first: Sequence[int], second: Sequence[int], within: int = 0) -> float | None:
    """Return the share of pairs that differ by at most ``within``.

    None without pairs, ValueError for unequal lengths.
    """
    close = [abs(a - b) <= within for a, b in zip(first, second, strict=True)]
    return sum(close) / len(close) if close else None


def cohen_kappa(
    first: Sequence[int], second: Sequence[int], weights: Weights = "none", labels: Sequence[int] = SCORES
) -> float | None:
    """Return Cohen's kappa, 1 - observed / expected disagreement (Cohen 1960; weighted, Cohen 1968).

    Two labels that are i positions apart disagree by 1 (none), i (linear) or i squared (quadratic). The result is None
    without pairs, and if both raters gave the same single label throughout, because no disagreement is expected then.
    ValueError as for ``confusion_matrix``.
    """
    table = confusion_matrix(first, second, labels)
    rows, columns = [sum(row) for row in table], [sum(column) for column in zip(*table, strict=True)]
    observed = expected = 0
    for i, row in enumerate(table):
        for j, count in enumerate(row):
            weight = int(i != j) if weights == "none" else abs(i - j) ** (1 if weights == "linear" else 2)
            observed += weight * count
            expected += weight * rows[i] * columns[j]
    return 1 - observed * len(first) / expected if expected else None


def kappa_estimate(
    first: Sequence[int],
    second: Sequence[int],
    weights: Weights = "none",
    labels: Sequence[int] = SCORES,
    clusters: Sequence[object] | None = None,
) -> Estimate | None:
    """Return ``cohen_kappa`` with a bootstrap interval over clusters, such as the case of each pair.

    The result is None if ``why_undefined`` gives a reason. The textbook kappa of a rater who gives one label throughout
    is 0 whatever the other rater says; here it is undefined. If all pairs agree, all resamples are equal, and the
    bootstrap would claim certainty; ``_degenerate_interval`` is used then.
    """
    value = None if why_undefined(first, second) else cohen_kappa(first, second, weights, labels)
    if value is None:
        return None
    cells = [labels.index(a) * len(labels) + labels.index(b) for a, b in zip(first, second, strict=True)]
    columns = _counts_by_cluster(cells, clusters, len(labels) ** 2)
    low, high = bootstrap_interval(columns, lambda tables: _kappas(tables, weights, len(labels)))
    if low is not None and low == high:
        table = _disagreement_weights(weights, len(labels))
        margins = [[sum(score == label for score in side) / len(side) for label in labels] for side in (first, second)]
        low, high = _degenerate_interval(value, len(columns), float(table.max() / (margins[0] @ table @ margins[1])))
    return Estimate(value, low, high, len(first))


def why_undefined(first: Sequence[int], second: Sequence[int], names: tuple[str, str] = ("one", "the other")) -> str:
    """Return why the kappa of two raters is undefined; empty if it is defined."""
    constant = [name for name, side in zip(names, (first, second), strict=True) if len(set(side)) == 1]
    if not first:
        return "no run was rated by both"
    return f"{' and '.join(dict.fromkeys(constant))} gave the same rating throughout" if constant else ""


def _degenerate_interval(value: float, clusters: int, furthest: float) -> tuple[float, float]:
    """Return an interval around an agreement that is equal in all resamples.

    If none of n clusters differs, Wilson's upper bound limits the share of clusters that may differ. The interval
    assumes the worst for this share: the greatest disagreement, or none. ``furthest`` is the greatest disagreement of a
    pair divided by the expected disagreement.
    """
    unseen = wilson_interval(0, clusters)[1] * furthest
    return max(-1.0, value - unseen), min(1.0, value + unseen)


def krippendorff_alpha(units: Sequence[Sequence[int]], weights: Weights = "quadratic") -> float | None:
    """Return Krippendorff's alpha, 1 - observed / expected disagreement, for any number of raters.

    Each unit holds the labels that it got, so raters may have skipped units (Krippendorff 2011, "Computing
    Krippendorff's Alpha-Reliability"). The weights ``none`` and ``quadratic`` are his nominal and interval difference.
    The result is None if no unit has two labels, and if all labels are equal.
    """
    import numpy as np

    if not units:
        return None
    total = np.sum([_coincidences(unit) for unit in units], axis=0)
    value = float(_alphas(total[None, :], weights)[0])
    return None if math.isnan(value) else value


def alpha_estimate(
    units: Sequence[Sequence[int]], weights: Weights = "quadratic", clusters: Sequence[object] | None = None
) -> Estimate | None:
    """Return ``krippendorff_alpha`` with a bootstrap interval over clusters, such as the case of each unit.

    The result is None if alpha is. Resamples that are all equal are treated as in ``kappa_estimate``.
    """
    import numpy as np

    value = krippendorff_alpha(units, weights)
    if value is None:
        return None
    rows: dict[object, NDArray[np.float64]] = {}
    for cluster, unit in zip(range(len(units)) if clusters is None else clusters, units, strict=True):
        if len(unit) > 1:
            rows[cluster] = rows.get(cluster, 0.0) + np.array(_coincidences(unit))
    columns = [row.tolist() for row in rows.values()]
    low, high = bootstrap_interval(columns, lambda tables: _alphas(tables, weights))
    if low is not None and low == high:
        table = _disagreement_weights(weights, len(SCORES))
        margin = np.sum(columns, axis=0).reshape(table.shape).sum(0)
        expected = margin @ table @ margin / margin.sum() / (margin.sum() - 1)
        low, high = _degenerate_interval(value, len(columns), float(table.max() / expected))
    return Estimate(value, low, high, sum(len(unit) > 1 for unit in units))


def _counts_by_cluster(cells: Sequence[int], clusters: Sequence[object] | None, size: int) -> list[list[float]]:
    """Return a row of counts for each cluster; without ``clusters`` each pair is a cluster of its own."""
    rows: dict[object, list[float]] = {}
    for cluster, cell in zip(range(len(cells)) if clusters is None else clusters, cells, strict=True):
        rows.setdefault(cluster, [0.0] * size)[cell] += 1
    return list(rows.values())


def _disagreement_weights(weights: Weights, size: int) -> NDArray[np.float64]:
    """Return the matrix of disagreement weights for each pair of labels."""
    import numpy as np

    apart = np.abs(np.subtract.outer(np.arange(size), np.arange(size))).astype(float)
    return (apart > 0).astype(float) if weights == "none" else apart ** (1 if weights == "linear" else 2)


def _kappas(tables: NDArray[np.float64], weights: Weights, size: int) -> Any:
    """Return Cohen's kappa of each flattened confusion matrix; NaN if no disagreement is expected."""
    import numpy as np

    cube = tables.reshape(-1, size, size)
    weight = _disagreement_weights(weights, size)
    observed = (cube * weight).sum((1, 2)) * cube.sum((1, 2))
    expected = np.einsum("bi,bj,ij->b", cube.sum(2), cube.sum(1), weight)
    with np.errstate(invalid="ignore", divide="ignore"):
        return 1 - observed / expected


def _coincidences(unit: Sequence[int]) -> list[float]:
    """Return the flattened coincidence matrix of a unit.

    It counts each ordered pair of the labels, weighted by 1 / (labels - 1).
    """
    size = len(SCORES)
    table = [0.0] * (size * size)
    histogram(unit)  # raises ValueError for a score that is not a label
    if len(unit) > 1:
        for i, a in enumerate(unit):
            for j, b in enumerate(unit):
                if i != j:
                    table[a * size + b] += 1 / (len(unit) - 1)
    return table


def _alphas(tables: NDArray[np.float64], weights: Weights) -> Any:
    """Return Krippendorff's alpha of each flattened coincidence matrix; NaN if no disagreement is expected."""
    import numpy as np

    size = len(SCORES)
    cube = tables.reshape(-1, size, size)
    weight = _disagreement_weights(weights, size)
    margins = cube.sum(2)
    n = margins.sum(1)
    observed = (cube * weight).sum((1, 2))
    # Expected pairs are drawn without replacement. The diagonal needs no correction, because its weight is 0.
    expected = np.einsum("bi,bj,ij->b", margins, margins, weight)
    with np.errstate(invalid="ignore", divide="ignore"):
        return 1 - (n - 1) * observed / expected
