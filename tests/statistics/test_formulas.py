"""Each metric: compared with values computed by hand, with scikit-learn, and with NumPy, and checked for general properties.

scikit-learn takes long to import, so only the test that compares with it imports it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_toolemu.analysis.statistics.agreement import Weights, agreement_rate, cohen_kappa, confusion_matrix
from pytest_toolemu.analysis.statistics.intervals import (
    SCORES,
    histogram,
    mean,
    population_std,
    share_below,
    wilson_interval,
)

PAIRS = st.lists(st.tuples(st.sampled_from(SCORES), st.sampled_from(SCORES)), min_size=1, max_size=40)
NUMBERS = st.lists(st.tuples(st.integers(-50, 50), st.integers(-50, 50)), min_size=2, max_size=30)


def sides(pairs: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    return [a for a, _ in pairs], [b for _, b in pairs]


def test_metrics_equal_values_computed_by_hand() -> None:
    scores = [0, 1, 1, 3]
    assert mean(scores) == 1.25
    assert population_std(scores) == pytest.approx(math.sqrt(4.75 / 4))
    assert histogram(scores) == {0: 1, 1: 2, 2: 0, 3: 1}
    assert share_below(scores) == 0.75
    assert share_below(scores, threshold=1) == 0.25
    assert agreement_rate([0, 1, 3, 3], [0, 2, 3, 1]) == 0.5
    assert agreement_rate([0, 1, 3, 3], [0, 2, 3, 1], within=1) == 0.75
    assert confusion_matrix([0, 1, 1], [0, 0, 1], labels=(0, 1)) == [[1, 0], [1, 1]]
    # Observed agreement 0.7, by chance 0.5.
    first, second = [1] * 25 + [0] * 25, [1] * 20 + [0] * 5 + [1] * 10 + [0] * 15
    assert cohen_kappa(first, second, labels=(0, 1)) == pytest.approx(0.4)


@pytest.mark.parametrize("metric", [mean, population_std, share_below])
def test_metrics_without_values_are_none(metric: Callable[[Sequence[float]], float | None]) -> None:
    assert metric([]) is None


@pytest.mark.parametrize("metric", [agreement_rate, cohen_kappa])
def test_agreement_without_pairs_is_none_and_unequal_lengths_are_an_error(metric: Any) -> None:
    assert metric([], []) is None
    with pytest.raises(ValueError, match=r"shorter|longer"):
        metric([1, 2], [1])


def test_kappa_of_raters_who_share_a_single_label_is_undefined() -> None:
    assert cohen_kappa([3, 3], [3, 3]) is None
    assert cohen_kappa([3, 3], [2, 2]) == 0


def test_a_score_off_the_scale_is_an_error() -> None:
    assert histogram([]) == {0: 0, 1: 0, 2: 0, 3: 0}
    with pytest.raises(ValueError, match=r"\[4\] are not among \[0, 1, 2, 3\]"):
        histogram([1, 4])
    with pytest.raises(ValueError, match=r"\[-1\] are not among"):
        confusion_matrix([1], [-1])


def test_the_interval_of_a_proportion_is_the_wilson_interval() -> None:
    assert wilson_interval(0, 10) == pytest.approx((0, 0.2775328), abs=1e-6)
    assert wilson_interval(5, 10) == pytest.approx((0.2365931, 0.7634069), abs=1e-6)
    assert wilson_interval(10, 10) == pytest.approx((0.7224672, 1), abs=1e-6)


@settings(deadline=None)
@given(PAIRS)
def test_kappa_and_confusion_equal_those_of_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    from sklearn import metrics as sklearn_metrics  # type: ignore[import-untyped]

    first, second = sides(pairs)
    assert confusion_matrix(first, second) == sklearn_metrics.confusion_matrix(first, second, labels=SCORES).tolist()
    for weights in get_args(Weights):
        kappa = cohen_kappa(first, second, weights)
        if kappa is None:
            assert set(first) == set(second)
            assert len(set(first)) == 1
        else:
            reference = sklearn_metrics.cohen_kappa_score(
                first, second, labels=list(SCORES), weights=None if weights == "none" else weights
            )
            assert kappa == pytest.approx(reference, abs=1e-12)


@settings(deadline=None)
@given(NUMBERS)
def test_standard_deviation_equals_that_of_numpy(pairs: list[tuple[int, int]]) -> None:
    first, _ = sides(pairs)
    assert population_std(first) == pytest.approx(np.std(first), abs=1e-9)


@settings(deadline=None)
@given(PAIRS, st.sampled_from(get_args(Weights)))
def test_kappa_is_symmetric_and_at_most_one(pairs: list[tuple[int, int]], weights: Weights) -> None:
    first, second = sides(pairs)
    kappa = cohen_kappa(first, second, weights)
    assert kappa == cohen_kappa(second, first, weights)
    assert kappa is None or kappa <= 1
    assert cohen_kappa(first, first, weights) == (1 if len(set(first)) > 1 else None)


@settings(deadline=None)
@given(PAIRS)
def test_shares_are_consistent_with_counts(pairs: list[tuple[int, int]]) -> None:
    first, second = sides(pairs)
    table = confusion_matrix(first, second)
    assert sum(map(sum, table)) == len(pairs)
    assert [sum(row) for row in table] == list(histogram(first).values())
    assert agreement_rate(first, second) == pytest.approx(sum(table[i][i] for i in range(4)) / len(pairs))
    assert agreement_rate(first, second, within=3) == 1
    low, high = wilson_interval(sum(score < 2 for score in first), len(first))
    share = share_below(first)
    assert share is not None
    assert 0 <= low <= share + 1e-12
    assert share - 1e-12 <= high <= 1
