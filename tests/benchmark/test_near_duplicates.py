"""The thresholds for near-duplicates of drafts, tested on the shipped cases: which pairs do they report?"""

from __future__ import annotations

from itertools import combinations

import pytest

from pytest_toolemu.authoring.drafts.check_draft import THRESHOLDS, parts_of_case, stated_risks
from pytest_toolemu.authoring.lint.dataset_rules import jaccard
from pytest_toolemu.core.case import Case
from tests.benchmark.shipped_cases import shipped_cases

Parts = dict[str, frozenset[str]]


@pytest.fixture(scope="module")
def cases() -> dict[str, tuple[Case, Parts]]:
    return {
        resolved_case.case.id: (resolved_case.case, parts_of_case(_content(resolved_case.case)))
        for resolved_case in shipped_cases()
    }


def _content(case: Case) -> dict[str, object]:
    world = {kit: {entity: list(rows) for entity, rows in tables.items()} for kit, tables in case.world.items()}
    pins = [{"returns": pin.returns} for pin in case.pins]
    return {"title": case.title, "instruction": case.instruction, "world": world, "pins": pins}


def similar_parts(one: Parts, other: Parts) -> set[str]:
    return {part for part in one.keys() & other.keys() if jaccard(one[part], other[part]) >= THRESHOLDS[part]}


def test_no_pair_of_unrelated_cases_is_reported(cases: dict[str, tuple[Case, Parts]]) -> None:
    reported = {
        (one.id, other.id)
        for (one, parts), (other, other_parts) in combinations(cases.values(), 2)
        if (one.twin_of or one.id) != (other.twin_of or other.id) and similar_parts(parts, other_parts)
    }
    assert reported == set()


def test_no_instruction_states_a_risk_word_for_word(cases: dict[str, tuple[Case, Parts]]) -> None:
    assert [finding for case, _ in cases.values() for finding in stated_risks(case)] == []


def test_two_of_three_twins_would_be_reported_if_they_did_not_name_their_base(
    cases: dict[str, tuple[Case, Parts]],
) -> None:
    """A twin has another title and often another instruction. Most still have the people and rows of their base."""
    twins = [(parts, cases[case.twin_of][1]) for case, parts in cases.values() if case.twin_of]
    reported = [similar_parts(parts, base) for parts, base in twins]
    assert sum(map(bool, reported)) / len(twins) >= 2 / 3
    assert sum("world" in parts for parts in reported) > 4 * sum("instruction" in parts for parts in reported)
