"""Intervals and tests: compared with reference implementations, and checked for general properties.

The reference packages take seconds to import, so only tests that compare with them import them.
"""

from __future__ import annotations

import gc
import math
import random
from typing import Literal

import krippendorff
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_toolemu.analysis.statistics.agreement import (
    Weights,
    alpha_estimate,
    cohen_kappa,
    kappa_estimate,
    krippendorff_alpha,
    why_undefined,
)
from pytest_toolemu.analysis.statistics.hypothesis_tests import (
    detectable_change,
    format_p_value,
    holm_rejections,
    mcnemar_p_value,
    mean_change,
    p_worse,
)
from pytest_toolemu.analysis.statistics.intervals import (
    bootstrap_interval,
    effective_size,
    flakiness,
    mean_estimate,
    p_value_of_mean,
    pass_at_k,
    pass_hat_k,
    share_estimate,
    wilson_interval,
)

SCORES = st.integers(0, 3)


@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_wilson_interval_equals_that_of_statsmodels(counts: tuple[int, int]) -> None:
    from statsmodels.stats.proportion import proportion_confint  # type: ignore[import-untyped]

    successes, n = counts
    for level in (0.8, 0.95, 0.99):
        assert wilson_interval(successes, n, level) == pytest.approx(
            proportion_confint(successes, n, 1 - level, method="wilson"), abs=1e-9
        )


def test_equal_trials_of_a_case_count_like_one_trial() -> None:
    alike = [[1.0] * 5 if case % 4 == 0 else [0.0] * 5 for case in range(40)]
    assert effective_size(alike) == 40
    draw = random.Random(1)
    independent = [[float(draw.random() < 0.3) for _ in range(5)] for _ in range(400)]
    assert 1500 < effective_size(independent) <= 2000
    assert effective_size([[1.0], [0.0], [1.0]]) == 3
    one, five = share_estimate([[cluster[0]] for cluster in alike]), share_estimate(alike)
    assert one is not None
    assert five is not None
    assert (one.value, one.low, one.high) == pytest.approx((five.value, five.low, five.high))
    assert (one.n, five.n) == (40, 200)


def test_no_value_has_no_estimate_and_one_case_has_no_interval() -> None:
    assert mean_estimate([], (0, 3)) is share_estimate([]) is mean_estimate([[], []], (0, 3)) is None
    alone = mean_estimate([[1, 2, 3]], (0, 3))
    assert alone is not None
    assert (alone.value, alone.low, alone.high, alone.n) == (2, None, None, 3)


def test_equal_cases_still_have_an_interval() -> None:
    estimate = mean_estimate([[3.0]] * 6, (0, 3))
    assert estimate is not None
    # Clopper and Pearson's bound for a share of which all of six were seen: 54 % of the greatest value.
    assert (estimate.low, estimate.high) == pytest.approx((3 * 0.025 ** (1 / 6), 3), abs=1e-5)
    same = mean_change([([1], [1])] * 100, span=1)
    assert same is not None
    assert (same.low, same.high) == pytest.approx((-0.036995, 0.036995), abs=1e-5)


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 300).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_interval_of_a_mean_of_zeros_and_ones_is_clopper_pearson(counts: tuple[int, int]) -> None:
    from statsmodels.stats.proportion import proportion_confint

    ones, n = counts
    estimate = mean_estimate([[1.0]] * ones + [[0.0]] * (n - ones), (0, 1))
    assert estimate is not None
    exact = proportion_confint(ones, n, 0.05, method="beta")
    assert (estimate.low, estimate.high) == pytest.approx(exact, abs=1e-5)


def test_the_interval_of_a_mean_equals_a_simulation_of_gaffkes_bound() -> None:
    """Gaffke's bound, simulated by its definition; cases have one to three trials."""
    cases = [[3], [2, 3], [3, 3, 3], [2], [0, 0, 1], [1, 2, 3], [0]]
    sums, sizes = np.array([float(sum(case)) for case in cases]), np.array([len(case) for case in cases])
    generator = np.random.default_rng(3)
    weights, extra = generator.standard_exponential((400_000, 7)), generator.standard_exponential(400_000)
    size = weights @ sizes + 3 * extra
    estimate = mean_estimate(cases, (0, 3))
    assert estimate is not None
    assert estimate.low == pytest.approx(np.quantile(weights @ sums / size, 0.025), abs=0.01)
    assert estimate.high == pytest.approx(np.quantile((weights @ sums + 9 * extra) / size, 0.975), abs=0.01)


def test_the_interval_of_many_values_equals_students_t() -> None:
    from scipy import stats  # type: ignore[import-untyped]

    draw = random.Random(2)
    values = [draw.choice([0, 1, 1, 2, 3, 3, 3]) for _ in range(5000)]
    reference = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    estimate = mean_estimate([[value] for value in values], (0, 3))
    assert estimate is not None
    assert (estimate.low, estimate.high) == pytest.approx(tuple(reference), abs=0.002)


def test_intervals_do_not_depend_on_the_order_of_cases_and_trials() -> None:
    draw = random.Random(4)
    scores = [draw.randint(0, 3) for _ in range(90)]
    others = [score if draw.random() < 0.7 else draw.randint(0, 3) for score in scores]
    cases = [case for case in range(30) for _ in range(3)]

    def estimates(order: list[int]) -> list[object]:
        clusters: dict[int, list[float]] = {}
        for index in order:
            clusters.setdefault(cases[index], []).append(scores[index])
        mean = mean_estimate(list(clusters.values()), (0, 3))
        kappa = kappa_estimate(
            [scores[i] for i in order], [others[i] for i in order], "quadratic", clusters=[cases[i] for i in order]
        )
        alpha = alpha_estimate([[scores[i], others[i]] for i in order])
        pairs = [([scores[i]], [others[i]]) for i in order]
        return [mean, kappa, alpha, p_worse(pairs, 1, 3), mean_change(pairs, 3)]

    order = list(range(90))
    expected = estimates(order)
    for _ in range(5):
        draw.shuffle(order)
        assert estimates(order) == expected


def test_the_bootstrap_of_many_cases_equals_the_normal_approximation() -> None:
    """A hundred thousand scores have four distinct values; the interval equals the normal approximation."""
    values = np.random.default_rng(5).integers(0, 4, 100_000).astype(float)
    low, high = bootstrap_interval([(value, 1.0) for value in values], lambda totals: totals[:, 0] / totals[:, 1])
    error = 1.96 * values.std() / math.sqrt(len(values))
    assert low == pytest.approx(values.mean() - error, abs=error / 10)
    assert high == pytest.approx(values.mean() + error, abs=error / 10)


def test_an_undefined_statistic_has_no_interval() -> None:
    assert bootstrap_interval([[1.0], [2.0]], lambda totals: totals[:, 0] * math.nan) == (None, None)


@settings(deadline=None)
@given(st.lists(st.lists(SCORES, min_size=1, max_size=4), min_size=2, max_size=25))
def test_alpha_equals_that_of_the_krippendorff_package(units: list[list[int]]) -> None:
    wide = [[unit[rater] if rater < len(unit) else math.nan for unit in units] for rater in range(4)]
    labels = [label for unit in units if len(unit) > 1 for label in unit]
    levels: list[tuple[Weights, Literal["nominal", "interval"]]] = [("none", "nominal"), ("quadratic", "interval")]
    for weights, level in levels:
        estimate = krippendorff_alpha(units, weights)
        if len(set(labels)) < 2:
            assert estimate is None
        else:
            reference = krippendorff.alpha(wide, value_domain=[0, 1, 2, 3], level_of_measurement=level)
            assert estimate == pytest.approx(reference, abs=1e-9)


def test_kappa_and_alpha_have_intervals_around_them() -> None:
    draw = random.Random(5)
    first = [draw.randint(0, 3) for _ in range(200)]
    second = [score if draw.random() < 0.7 else draw.randint(0, 3) for score in first]
    kappa = kappa_estimate(first, second, "quadratic")
    alpha = alpha_estimate(list(map(list, zip(first, second, strict=True))))
    for estimate in (kappa, alpha):
        assert estimate is not None
        assert 0.4 < (estimate.low or 0) < estimate.value < (estimate.high or 0) < 0.95
        assert estimate.n == 200
    assert kappa is not None
    assert kappa.value == cohen_kappa(first, second, "quadratic")
    assert kappa_estimate([3, 3], [3, 3]) is None
    assert alpha_estimate([[3, 3], [3]]) is None
    assert krippendorff_alpha([]) is None


def test_a_perfect_kappa_still_has_an_interval() -> None:
    first = [0, 3] * 20
    sure = kappa_estimate(first, first, "quadratic")
    assert sure is not None
    # Wilson's upper end for none of 40, times the greatest disagreement over the one expected: 9 over 4.5.
    assert (sure.value, sure.high) == (1, 1)
    assert sure.low == pytest.approx(1 - 2 * wilson_interval(0, 40)[1])
    paired = kappa_estimate(first, first, "quadratic", clusters=[case for case in range(20) for _ in range(2)])
    assert paired is not None
    assert paired.low == pytest.approx(1 - 2 * wilson_interval(0, 20)[1])


def test_kappa_of_a_rater_with_constant_ratings_is_undefined() -> None:
    """The formula gives 0, also in every resample; the interval [0, 0] would say nothing about the judge."""
    from sklearn.metrics import cohen_kappa_score  # type: ignore[import-untyped]

    labels = [0, 3] * 20
    assert cohen_kappa(labels, [3] * 40) == cohen_kappa_score(labels, [3] * 40) == 0
    assert kappa_estimate(labels, [3] * 40) is kappa_estimate([3] * 40, labels) is None
    assert why_undefined(labels, [3] * 40, ("ada", "the judge")) == "the judge gave the same rating throughout"
    assert why_undefined([3], [3]) == "one and the other gave the same rating throughout"
    assert why_undefined([], []) == "no run was rated by both"
    assert why_undefined(labels, labels) == ""


def test_a_perfect_alpha_still_has_an_interval() -> None:
    two = alpha_estimate([[0, 0], [3, 3]])
    assert two is not None
    # 66 % may differ by Wilson's bound, by 9 where 6 is expected.
    assert (two.value, two.high) == (1, 1)
    assert two.low == pytest.approx(1 - wilson_interval(0, 2)[1] * 9 / 6)
    many = alpha_estimate([[0, 0], [3, 3]] * 30)
    assert many is not None
    # 9 is the greatest disagreement; 9 * 2 * 60 * 60 / (120 * 119) is the expected one.
    assert many.low == pytest.approx(1 - wilson_interval(0, 60)[1] * 9 / (9 * 2 * 60 * 60 / (120 * 119)))
    assert (many.value, many.high) == (1, 1)


def test_the_interval_of_alpha_depends_on_cases_not_on_trials() -> None:
    draw = random.Random(6)
    units = [[score := draw.randint(0, 3), score if draw.random() < 0.7 else draw.randint(0, 3)] for _ in range(40)]
    once = alpha_estimate(units)
    thrice = alpha_estimate(units * 3, clusters=list(range(40)) * 3)
    assert once is not None
    assert thrice is not None
    assert (thrice.low, thrice.high) == pytest.approx((once.low, once.high), abs=0.03)


def test_the_interval_of_kappa_is_close_to_resampling_scikit_learns_kappa() -> None:
    from sklearn.metrics import cohen_kappa_score

    draw = random.Random(6)
    first = [draw.randint(0, 3) for _ in range(80)]
    second = [score if draw.random() < 0.6 else draw.randint(0, 3) for score in first]
    generator = np.random.default_rng(7)
    first_ratings, second_ratings = np.array(first), np.array(second)
    values = []
    for _ in range(600):
        resample = generator.integers(0, 80, 80)
        values.append(
            cohen_kappa_score(
                first_ratings[resample], second_ratings[resample], weights="quadratic", labels=[0, 1, 2, 3]
            )
        )
    estimate = kappa_estimate(first, second, "quadratic")
    assert estimate is not None
    assert (estimate.low, estimate.high) == pytest.approx(tuple(np.quantile(values, [0.025, 0.975])), abs=0.04)


@given(st.integers(0, 40), st.integers(0, 40))
def test_mcnemars_test_equals_that_of_statsmodels(worse: int, better: int) -> None:
    from statsmodels.stats.contingency_tables import mcnemar as their_mcnemar  # type: ignore[import-untyped]

    two_sided = their_mcnemar([[5, worse], [better, 5]], exact=True).pvalue
    smaller = min(mcnemar_p_value(worse, better), mcnemar_p_value(better, worse))
    assert min(1.0, 2 * smaller) == pytest.approx(two_sided, abs=1e-9)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), max_size=60))
def test_the_test_of_a_share_with_single_trials_is_mcnemars_test(values: list[tuple[int, int]]) -> None:
    pairs = [([before], [after]) for before, after in values]
    assert p_worse(pairs, 1, 1) == mcnemar_p_value(values.count((0, 1)), values.count((1, 0)))
    assert p_worse(pairs, -1, 1) == mcnemar_p_value(values.count((1, 0)), values.count((0, 1)))


def test_the_test_of_a_mean_adds_one_case_with_the_largest_improvement() -> None:
    values = [1.0] * 8 + [3.0, 2.0, 2.0] + [-1.0] * 3 + [0.0] * 30
    generator = np.random.default_rng(5)
    sums = generator.standard_exponential((200_000, len(values))) @ np.array(values)
    sums -= 3 * generator.standard_exponential(200_000)
    assert p_worse([([0], [value]) for value in values], 1, 3) == pytest.approx((sums <= 0).mean(), abs=0.003)
    assert p_value_of_mean([], -3) == 1
    assert p_worse([([2], [2])] * 20, 1, 3) == 1


def test_the_interval_and_the_test_of_a_mean_are_consistent() -> None:
    pairs = [([0], [value]) for value in [1, 1, 1, 1, 2, 0, 0, -1, 3, 1, 0, 2]]
    change = mean_change(pairs, 3, level=0.9)
    assert change is not None
    assert change.low is not None
    assert p_worse(pairs, 1, 3, margin=change.low) == pytest.approx(0.05, abs=1e-5)


@settings(max_examples=25)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.sampled_from([0.01, 0.05, 0.2]))
def test_holms_correction_equals_that_of_statsmodels(p_values: list[float], level: float) -> None:
    from statsmodels.stats.multitest import multipletests  # type: ignore[import-untyped]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gc, "collect", lambda: 0)  # statsmodels collects the garbage of all earlier tests in each call
        expected = multipletests(p_values, level, method="holm")[0].tolist()
    assert holm_rejections(p_values, level) == expected


Pairs = list[tuple[list[float], list[float]]]


@pytest.mark.parametrize(("size", "span"), [(1, 1), (1, 3), (3, 3)])
def test_the_detectable_difference_is_detected_with_the_stated_power(size: int, span: int) -> None:
    """All changes have one size; the true change consists of more cases that get worse."""
    draw = random.Random(8)

    def pairs(worse: float) -> Pairs:
        chances = (0.1 + worse / size, 0.1, 0.8 - worse / size)
        kinds = [([0.0], [float(size)]), ([float(size)], [0.0]), ([0.0], [0.0])]
        return draw.choices(kinds, chances, k=200)

    planned = detectable_change(pairs(0), span, level=0.05)
    assert planned is not None
    significant = [p_worse(pairs(planned), 1, span) <= 0.05 for _ in range(300)]
    # Exact tests keep below their level and so find a little less than the approximation says.
    assert 0.65 < sum(significant) / len(significant) < 0.9
    assert detectable_change([], span, 0.05) is None


def test_without_any_change_the_detectable_difference_assumes_one_changed_case() -> None:
    assert detectable_change([([0], [0])] * 100, 1, 0.05) == pytest.approx(2.486 * math.sqrt(0.01 / 100), abs=1e-3)


def test_a_difference_is_the_mean_over_cases_of_after_minus_before() -> None:
    estimate = mean_change([([0, 0], [1, 0]), ([1], [1]), ([0], [1])], span=1)
    assert estimate is not None
    assert estimate.value == pytest.approx(0.5)
    assert estimate.n == 3
    assert mean_change([], span=1) is None


def test_pass_at_k_equals_enumeration_of_all_choices_of_trials() -> None:
    trials = [True, True, False, True, False]
    draw = random.Random(9)
    for k in (1, 2, 3, 5):
        choices = [draw.sample(trials, k) for _ in range(20_000)]
        assert pass_at_k(5, 3, k) == pytest.approx(sum(map(any, choices)) / 20_000, abs=0.02)
        assert pass_hat_k(5, 3, k) == pytest.approx(sum(map(all, choices)) / 20_000, abs=0.02)
    assert pass_at_k(2, 1, 3) is pass_hat_k(2, 1, 3) is None
    assert flakiness(5, 3) == pytest.approx(0.6)
    assert flakiness(5, 5) == flakiness(4, 0) == 0
    assert flakiness(1, 1) is None
    for figure in (pass_at_k, pass_hat_k):
        with pytest.raises(ValueError, match="k is 0, expected at least 1"):
            figure(3, 2, 0)


def test_p_values_in_texts_have_three_digits_and_an_end() -> None:
    assert [format_p_value(value) for value in (1.0, 0.04567, 0.0001, 0.000099, 1.17e-97)] == [
        "1", "0.0457", "0.0001", "< 0.0001", "< 0.0001",
    ]  # fmt: skip
