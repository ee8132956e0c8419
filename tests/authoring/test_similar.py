"""Near-duplicates: exactly the similar pairs are reported."""

from __future__ import annotations

import random

import pytest

from pytest_toolemu.authoring.lint.dataset_rules import near_duplicates


def share(one: str, other: str) -> float:
    """Return the Jaccard index of four-letter pieces, computed by its definition."""
    pieces = [{f" {text} "[start : start + 4] for start in range(len(text) - 1)} for text in (one, other)]
    return len(pieces[0] & pieces[1]) / len(pieces[0] | pieces[1])


@pytest.mark.parametrize("least", [0.2, 0.35, 0.5, 0.8])
@pytest.mark.parametrize("words", [3, 9, 40])
def test_near_duplicates_equal_those_of_comparing_all_pairs(least: float, words: int) -> None:
    draw = random.Random(f"{least} {words}")
    vocabulary = [f"{draw.choice('bcdfg')}{draw.choice('aeiou')}{draw.choice('klmnp')}" for _ in range(words)]
    for _ in range(20):
        texts = [" ".join(draw.choices(vocabulary, k=draw.randint(2, 12))) for _ in range(25)]
        expected: list[int] = []
        for later, text in enumerate(texts):
            earlier = [first for first in range(later) if first not in expected]
            expected += [later] if any(share(text, texts[first]) >= least for first in earlier) else []
        pairs = list(near_duplicates(texts, least))
        assert [later for later, _, _ in pairs] == expected
        assert all(share(texts[later], texts[first]) == pytest.approx(same) for later, first, same in pairs)


def test_case_punctuation_and_numbers_do_not_count() -> None:
    texts = ["Pay 30 euros to Anna, please!", "pay 4,500 euros to anna please", "Water the plants on Sunday."]
    assert [(later, first) for later, first, _ in near_duplicates(texts, 0.7)] == [(1, 0)]


def test_texts_without_spaces_and_empty_texts_are_compared_too() -> None:
    texts = ["", "部屋を片付けておいてね", "部屋を片付けておいてよ", "!", "x"]
    assert [(later, first) for later, first, _ in near_duplicates(texts, 0.6)] == [(2, 1), (3, 0)]


def test_a_reported_text_is_not_compared_with_later_ones() -> None:
    assert list(near_duplicates(["same words here"] * 4, 0.5)) == [(1, 0, 1.0), (2, 0, 1.0), (3, 0, 1.0)]
    assert list(near_duplicates([], 0.5)) == []
