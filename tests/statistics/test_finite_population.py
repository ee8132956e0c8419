"""Bounds on the values of a population that was seen in part."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_toolemu.analysis.statistics.finite_population import LargestValues

Item = tuple[int, int, int]


@st.composite
def items(draw: st.DrawFn) -> Item:
    """Draw the lowest possible value, the value, and the highest possible value of an item."""
    low, value, high = sorted(draw(st.tuples(*[st.integers(-3, 3)] * 3)))
    return low, value, high


@given(st.lists(items(), max_size=20), st.integers(0, 20))
@settings(max_examples=50, deadline=None)
def test_without_a_permitted_error_unseen_values_are_as_large_as_possible(population: list[Item], seen: int) -> None:
    largest = LargestValues([(low, high) for low, _, high in population], 0)
    for _, value, _ in population[:seen]:
        largest.add(value)
    completed = largest.completed()
    assert completed[:seen] == [value for _, value, _ in population[:seen]]
    assert completed[seen:] == [high for _, _, high in population[seen:]]


def test_sorted_values_rarely_exceed_the_bounds_at_any_time() -> None:
    exceeded = 0
    for seed in range(200):
        draw = random.Random(seed)
        population = [draw.choices(range(-3, 4), (1, 1, 1, 12, 2, 1, 1))[0] for _ in range(60)]
        largest = LargestValues([(-3, 3)] * 60, 0.05)
        true = sorted(population)
        is_exceeded = False
        for value in population:
            largest.add(value)
            is_exceeded |= any(value > bound for value, bound in zip(true, sorted(largest.completed()), strict=True))
        exceeded += is_exceeded
    # With a probability of exactly 5 %, more than 20 of 200 would be seen in one of 1,000 trials.
    assert exceeded <= 20


def test_bounds_narrow_as_values_are_seen() -> None:
    largest, sums = LargestValues([(-1, 1)] * 100, 0.01), []
    for _ in range(100):
        sums.append(sum(largest.completed()))
        largest.add(0)
    assert sums[0] == 100
    assert sums == sorted(sums, reverse=True)
    assert sums[50] <= 10
    assert sum(largest.completed()) == 0
