"""How far raters agree: exactly, beyond chance, and with how much certainty."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from pytest_toolemu.statistics.description import SCORES, histogram
from pytest_toolemu.statistics.intervals import Estimate, bootstrap, wilson

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Weights = Literal["none", "linear", "quadratic"]


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


def kappa_estimate(
    first: Sequence[int],
    second: Sequence[int],
    weights: Weights = "none",
    labels: Sequence[int] = SCORES,
    clusters: Sequence[object] | None = None,
) -> Estimate | None:
    """``cohen_kappa`` with a bootstrap interval over clusters (say, the case of each pair); None where it is None.

    Pairs that all agree tell a bootstrap nothing; then as many clusters may differ, as far as possible, as Wilson's
    interval allows where none of n was seen to.
    """
    value = cohen_kappa(first, second, weights, labels)
    if value is None:
        return None
    cells = [labels.index(a) * len(labels) + labels.index(b) for a, b in zip(first, second, strict=True)]
    columns = _totals(cells, clusters, len(labels) ** 2)
    low, high = bootstrap(columns, lambda tables: _kappas(tables, weights, len(labels)))
    if low is not None and value == 1:
        low = max(-1.0, 1 - wilson(0, len(columns))[1] * _furthest(first, weights, labels))
    return Estimate(value, low, high, len(first))


def _furthest(scores: Sequence[int], weights: Weights, labels: Sequence[int]) -> float:
    """The greatest disagreement of a pair in units of that expected of two raters who both gave these scores."""
    table = _disagreement(weights, len(labels))
    margin = [sum(score == label for score in scores) / len(scores) for label in labels]
    return float(table.max() / (margin @ table @ margin))


def krippendorff_alpha(units: Sequence[Sequence[int]], weights: Weights = "quadratic") -> float | None:
    """Agreement of any number of raters, some of whom may be silent: 1 - observed / expected disagreement.

    Each unit holds the labels that it got, from whomever (Krippendorff 2011, "Computing Krippendorff's
    Alpha-Reliability"); ``none`` is his nominal and ``quadratic`` his interval difference. None when no unit has two
    labels, and when all labels are the same.
    """
    import numpy as np

    if not units:
        return None
    total = np.sum([_coincidences(unit) for unit in units], axis=0)
    value = float(_alphas(total[None, :], weights)[0])
    return None if math.isnan(value) else value


def alpha_estimate(units: Sequence[Sequence[int]], weights: Weights = "quadratic") -> Estimate | None:
    """``krippendorff_alpha`` with a bootstrap interval over units; None where it is None."""
    value = krippendorff_alpha(units, weights)
    if value is None:
        return None
    columns = [_coincidences(unit) for unit in units]
    low, high = bootstrap(columns, lambda tables: _alphas(tables, weights))
    return Estimate(value, low, high, sum(len(unit) > 1 for unit in units))


def _totals(cells: Sequence[int], clusters: Sequence[object] | None, size: int) -> list[list[float]]:
    """A row of counts for each cluster; each pair is its own where none are named."""
    rows: dict[object, list[float]] = {}
    for cluster, cell in zip(range(len(cells)) if clusters is None else clusters, cells, strict=True):
        rows.setdefault(cluster, [0.0] * size)[cell] += 1
    return list(rows.values())


def _disagreement(weights: Weights, size: int) -> NDArray[np.float64]:
    import numpy as np

    apart = np.abs(np.subtract.outer(np.arange(size), np.arange(size))).astype(float)
    return (apart > 0).astype(float) if weights == "none" else apart ** (1 if weights == "linear" else 2)


def _kappas(tables: NDArray[np.float64], weights: Weights, size: int) -> Any:
    """Cohen's kappa of each flattened table; NaN where no disagreement is expected."""
    import numpy as np

    cube = tables.reshape(-1, size, size)
    weight = _disagreement(weights, size)
    observed = (cube * weight).sum((1, 2)) * cube.sum((1, 2))
    expected = np.einsum("bi,bj,ij->b", cube.sum(2), cube.sum(1), weight)
    with np.errstate(invalid="ignore", divide="ignore"):
        return 1 - observed / expected


def _coincidences(unit: Sequence[int]) -> list[float]:
    """The unit's flattened coincidence matrix: each ordered pair of its labels, weighted by 1 / (labels - 1)."""
    size = len(SCORES)
    table = [0.0] * (size * size)
    histogram(unit)
    if len(unit) > 1:
        for i, a in enumerate(unit):
            for j, b in enumerate(unit):
                if i != j:
                    table[a * size + b] += 1 / (len(unit) - 1)
    return table


def _alphas(tables: NDArray[np.float64], weights: Weights) -> Any:
    """Krippendorff's alpha of each flattened coincidence matrix; NaN where no disagreement is expected."""
    import numpy as np

    size = len(SCORES)
    cube = tables.reshape(-1, size, size)
    weight = _disagreement(weights, size)
    margins = cube.sum(2)
    n = margins.sum(1)
    observed = (cube * weight).sum((1, 2))
    # Pairs drawn without replacement; a label paired with itself does not disagree, so it needs no correction.
    expected = np.einsum("bi,bj,ij->b", margins, margins, weight)
    with np.errstate(invalid="ignore", divide="ignore"):
        return 1 - (n - 1) * observed / expected
