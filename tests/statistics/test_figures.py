"""Each figure against values worked out by hand, against scikit-learn and NumPy, and for what must always hold."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr  # type: ignore[import-untyped]
from sklearn import metrics as sklearn_metrics  # type: ignore[import-untyped]

from pytest_toolemu.analysis.statistics.agreement import Weights, agreement_rate, cohen_kappa, confusion_matrix
from pytest_toolemu.analysis.statistics.description import (
    SCORES,
    histogram,
    mean,
    pearson,
    population_std,
    share_below,
    spearman,
)
from pytest_toolemu.analysis.statistics.intervals import wilson_interval

PAIRS = st.lists(st.tuples(st.sampled_from(SCORES), st.sampled_from(SCORES)), min_size=1, max_size=40)
NUMBERS = st.lists(st.tuples(st.integers(-50, 50), st.integers(-50, 50)), min_size=2, max_size=30)


def sides(pairs: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    return [a for a, _ in pairs], [b for _, b in pairs]


def test_values_worked_out_by_hand() -> None:
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
    assert pearson([1, 2, 3], [2, 4, 5]) == pytest.approx(3 / math.sqrt(2 * 42 / 9))
    assert spearman([1, 10, 100], [3, 4, 9]) == pytest.approx(1)
    # Ranks 1.5, 1.5, 3 against 1, 2, 3.
    assert spearman([5, 5, 7], [1, 2, 3]) == pytest.approx(math.sqrt(3) / 2)


@pytest.mark.parametrize("figure", [mean, population_std, share_below])
def test_nothing_has_no_figure(figure: Callable[[Sequence[float]], float | None]) -> None:
    assert figure([]) is None


@pytest.mark.parametrize("figure", [agreement_rate, cohen_kappa, pearson, spearman])
def test_no_pairs_have_no_figure_and_unequal_lengths_are_an_error(figure: Any) -> None:
    assert figure([], []) is None
    with pytest.raises(ValueError, match=r"shorter|longer"):
        figure([1, 2], [1])


def test_what_never_varies_has_no_correlation_and_no_kappa() -> None:
    assert pearson([2, 2, 2], [0, 1, 2]) is None
    assert spearman([0, 1, 2], [1, 1, 1]) is None
    assert pearson([1], [2]) is None
    assert pearson([0.0, 5e-324], [0.0, 1.0]) is None
    assert cohen_kappa([3, 3], [3, 3]) is None
    assert cohen_kappa([3, 3], [2, 2]) == 0


def test_a_score_off_the_scale_is_an_error() -> None:
    assert histogram([]) == {0: 0, 1: 0, 2: 0, 3: 0}
    with pytest.raises(ValueError, match=r"\[4\] are not among \[0, 1, 2, 3\]"):
        histogram([1, 4])
    with pytest.raises(ValueError, match=r"\[-1\] are not among"):
        confusion_matrix([1], [-1])


def test_the_interval_of_a_proportion_is_wilsons() -> None:
    assert wilson_interval(0, 10) == pytest.approx((0, 0.2775328), abs=1e-6)
    assert wilson_interval(5, 10) == pytest.approx((0.2365931, 0.7634069), abs=1e-6)
    assert wilson_interval(10, 10) == pytest.approx((0.7224672, 1), abs=1e-6)


@settings(deadline=None)
@given(PAIRS)
def test_kappa_and_confusion_are_scikit_learns(pairs: list[tuple[int, int]]) -> None:
    first, second = sides(pairs)
    assert confusion_matrix(first, second) == sklearn_metrics.confusion_matrix(first, second, labels=SCORES).tolist()
    for weights in get_args(Weights):
        found = cohen_kappa(first, second, weights)
        if found is None:
            assert set(first) == set(second)
            assert len(set(first)) == 1
        else:
            theirs = sklearn_metrics.cohen_kappa_score(
                first, second, labels=list(SCORES), weights=None if weights == "none" else weights
            )
            assert found == pytest.approx(theirs, abs=1e-12)


@settings(deadline=None)
@given(NUMBERS)
def test_correlations_and_spread_are_those_of_numpy_and_scipy(pairs: list[tuple[int, int]]) -> None:
    first, second = sides(pairs)
    assert population_std(first) == pytest.approx(np.std(first), abs=1e-9)
    assume(len(set(first)) > 1 and len(set(second)) > 1)
    assert pearson(first, second) == pytest.approx(np.corrcoef(first, second)[0, 1], abs=1e-9)
    assert spearman(first, second) == pytest.approx(spearmanr(first, second).statistic, abs=1e-9)


@settings(deadline=None)
@given(PAIRS, st.sampled_from(get_args(Weights)))
def test_kappa_knows_no_first_rater_and_is_at_most_one(pairs: list[tuple[int, int]], weights: Weights) -> None:
    first, second = sides(pairs)
    found = cohen_kappa(first, second, weights)
    assert found == cohen_kappa(second, first, weights)
    assert found is None or found <= 1
    assert cohen_kappa(first, first, weights) == (1 if len(set(first)) > 1 else None)


@settings(deadline=None)
@given(NUMBERS)
def test_correlations_do_not_depend_on_order_or_scale(pairs: list[tuple[int, int]]) -> None:
    first, second = sides(pairs)
    turned = [-3 * value + 7 for value in second]
    for correlation in (pearson, spearman):
        found = correlation(first, second)
        assert found == pytest.approx(correlation(second, first), abs=1e-9) if found is not None else True
        opposite = correlation(first, turned)
        assert (opposite is None) == (found is None)
        assert found is None or opposite == pytest.approx(-found, abs=1e-9)
        assert found is None or -1 <= found <= 1


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
