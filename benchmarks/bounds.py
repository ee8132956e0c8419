"""``python -m benchmarks.bounds``: how often the bounds of a mean score are wrong, and how wide they are.

For each shape of scores and number of cases it prints, for each method, the percentage of samples whose 95 % interval
lies above the true mean (a gate by the bound would release an agent exactly at its limit) and below it, nominally 2.5
each, and the mean width.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import stats  # type: ignore[import-untyped]

from pytest_toolemu.analysis.statistics.intervals import bootstrap_interval, mean_estimate

SHAPES: Final = {
    "90 % are 3, the rest 2": (0, 0, 0.1, 0.9),
    "90 % are 3, the rest spread": (0.04, 0.03, 0.03, 0.9),
    "97 % are 3, the rest 0": (0.03, 0, 0, 0.97),
    "symmetric": (0.1, 0.4, 0.4, 0.1),
}
CASES: Final = (20, 50, 144, 208)
_SAMPLES: Final = 2000
_TAIL: Final = 0.025
_TOP: Final = 3.0

Scores = NDArray[np.float64]
Ends = tuple[float, float]


def used(scores: Scores) -> Ends:
    """Return the interval that this project uses."""
    estimate = mean_estimate([[score] for score in scores], (0, _TOP))
    assert estimate is not None
    return estimate.low or 0.0, estimate.high or _TOP


def percentile(scores: Scores) -> Ends:
    """Return the percentile interval of a bootstrap."""
    low, high = bootstrap_interval([(score, 1.0) for score in scores], lambda totals: totals[:, 0] / totals[:, 1])
    return low or 0.0, high or _TOP


def student(scores: Scores) -> Ends:
    """Return Student's interval."""
    half = stats.t.ppf(1 - _TAIL, len(scores) - 1) * scores.std(ddof=1) / math.sqrt(len(scores))
    return scores.mean() - half, scores.mean() + half


def bernstein(scores: Scores) -> Ends:
    """Return the empirical Bernstein interval (Maurer and Pontil 2009)."""
    n, log = len(scores), math.log(2 / _TAIL)
    half = math.sqrt(2 * scores.var(ddof=1) * log / n) + 7 * _TOP * log / 3 / (n - 1)
    return max(0.0, scores.mean() - half), min(_TOP, scores.mean() + half)


def betting(scores: Scores) -> Ends:
    """Return the interval by betting against each mean (Waudby-Smith and Ramdas 2024), to three digits."""
    return _lower_by_betting(scores), _TOP - _lower_by_betting(_TOP - scores)


def _lower_by_betting(scores: Scores) -> float:
    values, n = scores / _TOP, len(scores)
    means = np.linspace(0, 1, 1001)
    before = np.arange(1, n + 1)
    centres = (0.5 + np.cumsum(values)) / (before + 1)
    variances = (0.25 + np.cumsum((values - centres) ** 2)) / (before + 1)
    previous_variances = np.concatenate([[0.25], variances[:-1]])
    stakes = np.minimum(
        np.sqrt(2 * math.log(1 / _TAIL) / n / previous_variances)[:, None], 0.75 / np.maximum(means, 1e-9)
    )
    wealth = np.cumsum(np.log1p(stakes * (values[:, None] - means)), axis=0).max(axis=0)
    return float(_TOP * means[np.argmax(wealth < math.log(1 / _TAIL))])


METHODS: Final[dict[str, Callable[[Scores], Ends]]] = {
    "used": used,
    "percentile": percentile,
    "Student": student,
    "betting": betting,
    "Bernstein": bernstein,
}


def main() -> None:
    """Print the table."""
    print(f"{'shape':28} {'cases':>5}  " + "  ".join(f"{name:>18}" for name in METHODS))
    for shape, chances in SHAPES.items():
        mean = float(np.dot(range(4), chances))
        for cases in CASES:
            draw = np.random.default_rng(1)
            samples = [draw.choice(4, cases, p=chances).astype(float) for _ in range(_SAMPLES)]
            cells = [_cell([method(sample) for sample in samples], mean) for method in METHODS.values()]
            print(f"{shape:28} {cases:5}  " + "  ".join(f"{cell:>18}" for cell in cells), flush=True)


def _cell(intervals: list[Ends], mean: float) -> str:
    """Return a cell of the table: the two percentages and the mean width."""
    lows, highs = np.array(intervals).T
    errors = 100 * np.mean(lows > mean + 1e-6), 100 * np.mean(highs < mean - 1e-6)
    return f"{errors[0]:.1f}/{errors[1]:.1f} {np.mean(highs - lows):.2f}"


if __name__ == "__main__":
    main()
