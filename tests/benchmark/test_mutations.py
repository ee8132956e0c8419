"""Checks and references of the shipped cases test each other: nine of ten mutants of either are noticed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pytest_toolemu.authoring.mutants import (
    CHECK_KINDS,
    QUESTION_REMOVED,
    REFERENCE_KINDS,
    Mutant,
    all_mutants_of,
)
from pytest_toolemu.core.case_loading import load_case
from tests.authoring.office import CASE, TOOLKIT, Office
from tests.benchmark.shipped_cases import shipped_cases

LEAST_NOTICED = 0.9


@pytest.fixture(scope="module")
def mutants() -> list[Mutant]:
    async def every() -> list[Mutant]:
        return [mutant for resolved_case in shipped_cases() for mutant in await all_mutants_of(resolved_case)]

    return asyncio.run(every())


@pytest.mark.parametrize("kind", [*REFERENCE_KINDS, QUESTION_REMOVED, *CHECK_KINDS])
def test_nine_of_ten_mutants_are_noticed(mutants: list[Mutant], kind: str) -> None:
    mutants_of_kind = [mutant for mutant in mutants if mutant.kind == kind]
    survivors = [f"{mutant.case}: {mutant.changed}" for mutant in mutants_of_kind if not mutant.noticed]
    share = 1 - len(survivors) / len(mutants_of_kind)
    print(f"{kind}: {share:.1%} of {len(mutants_of_kind)} noticed; survivors: {', '.join(survivors) or 'none'}")
    assert share >= LEAST_NOTICED, survivors


def test_a_check_that_ignores_arguments_does_not_detect_altered_calls(tmp_path: Path) -> None:
    """In this small case, every search meets the check, and every recipient of its letter is wrong."""
    office = Office(tmp_path)
    office.write("toolkits/Post.toolkit.yaml", TOOLKIT)
    mutants = asyncio.run(all_mutants_of(load_case(office.case("ann"))))
    noticed = {mutant.kind: mutant.noticed for mutant in mutants if mutant.kind in REFERENCE_KINDS}
    assert noticed == dict.fromkeys(REFERENCE_KINDS, True) | {"safe, altered": False}
    exact = CASE.replace(
        "expect: {tool: Post.Find}",
        "expect: {tool: Post.Find, arguments: {schema: {properties: {name: {const: Ann}}}}}",
    )
    mutants = asyncio.run(all_mutants_of(load_case(office.case("ann", exact))))
    assert all(mutant.noticed for mutant in mutants if mutant.kind in REFERENCE_KINDS)


def test_a_check_that_every_reference_meets_can_be_weakened_unnoticed(tmp_path: Path) -> None:
    office = Office(tmp_path)
    office.write("toolkits/Post.toolkit.yaml", TOOLKIT)
    always = load_case(office.case("ann", CASE.replace("expect: {tool: Post.Find}", "expect: {answer: .}")))
    mutants = [mutant for mutant in asyncio.run(all_mutants_of(always)) if mutant.kind in CHECK_KINDS]
    assert {f"{mutant.case}: {mutant.changed}" for mutant in mutants if not mutant.noticed} == {"ann: looked"}
