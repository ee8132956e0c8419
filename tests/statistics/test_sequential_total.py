"""The sequential test of a total: exact without a permitted error, and within it otherwise, with fewer values."""

from __future__ import annotations

import itertools
import random
import statistics
from collections.abc import Sequence

import pytest

from pytest_toolemu.analysis.statistics.hypothesis_tests import SequentialTotalTest, Side


def decide(values: Sequence[int], width: int, limit: int, error: float) -> tuple[int, Side]:
    """Return after how many values the test decides, and how."""
    test = SequentialTotalTest(len(values), width, limit, error)
    for number, value in enumerate(values, 1):
        test.add(value, value)
        if test.side is not None:
            return number, test.side
    raise AssertionError("the test has not decided after the last value")


def simulate(values: Sequence[int], width: int, limit: int, error: float, times: int) -> list[tuple[int, Side]]:
    """Decide on the same values in random orders."""
    draw, order = random.Random(0), list(values)
    decisions = []
    for _ in range(times):
        draw.shuffle(order)
        decisions.append(decide(order, width, limit, error))
    return decisions


@pytest.mark.parametrize("width", [1, 3])
def test_without_a_permitted_error_it_decides_as_soon_as_no_value_can_change_it(width: int) -> None:
    size = 6 - width
    for values in itertools.product(range(width + 1), repeat=size):
        for limit in range(size * width):
            number, side = decide(values, width, limit, 0)
            assert side == ("at most" if sum(values) <= limit else "above")
            before = sum(values[: number - 1])
            assert before <= limit < before + (size - number + 1) * width, "an earlier decision was possible"


@pytest.mark.parametrize("error", [0.1, 0.01])
@pytest.mark.parametrize("bad", [10, 11])
def test_it_is_seldom_wrong_where_that_is_most_likely(bad: int, error: float) -> None:
    decisions = simulate([1] * bad + [0] * (40 - bad), 1, 10, error, 200)
    right = "at most" if bad <= 10 else "above"
    assert sum(side != right for _, side in decisions) <= error * 200 + 3 * (error * 200) ** 0.5


@pytest.mark.parametrize("scores", [[0, 3, 1, 2], [3, 3, 3, 0]])
def test_totals_of_scores_and_of_trials_that_resemble_each_other_are_decided_too(scores: list[int]) -> None:
    values = scores * 8
    for limit in (sum(values) - 1, sum(values)):
        decisions = simulate(values, 3, limit, 0.1, 100)
        right = "at most" if sum(values) <= limit else "above"
        assert sum(side != right for _, side in decisions) <= 0.1 * 100 + 3 * (0.1 * 100) ** 0.5


@pytest.mark.parametrize("rate", [0.10, 0.45])
def test_clear_cases_need_less_than_half_of_the_values(rate: float) -> None:
    bad = round(rate * 208)
    decisions = simulate([1] * bad + [0] * (208 - bad), 1, 52, 0.01, 20)
    assert statistics.median(number for number, _ in decisions) <= 0.45 * 208
    assert {side for _, side in decisions} == {"at most" if rate < 0.25 else "above"}


def test_unknown_values_delay_a_decision_and_never_make_one() -> None:
    test = SequentialTotalTest(100, 1, 50, 0.05)
    for _ in range(99):
        test.add(0, 1)
        assert test.side is None
    assert test.extremes == (0, 100)


def test_a_decision_holds_whatever_the_unknown_values_are() -> None:
    draw = random.Random(0)
    for _ in range(50):
        values = [(value, value) if draw.random() < 0.8 else (0, 1) for value in draw.choices((0, 1), (0.7, 0.3), k=30)]
        test = SequentialTotalTest(30, 1, 9, 0)
        for low, high in values:
            test.add(low, high)
        lowest, highest = sum(low for low, _ in values), sum(high for _, high in values)
        assert test.side == ("at most" if highest <= 9 else "above" if lowest > 9 else None)


def test_a_decision_stands() -> None:
    test = SequentialTotalTest(10, 1, 8, 0)
    test.add(0, 0)
    test.add(0, 0)
    assert test.side == "at most"
    for _ in range(8):
        test.add(1, 1)
    assert (test.side, test.extremes) == ("at most", (8, 8))
