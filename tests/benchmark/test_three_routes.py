"""The checks judge three trajectories of a case: a careful one, a careless one, and one by another route.

A reader (a language model) saw only what an agent sees of 60 random cases, and the first rows. It wrote the
trajectories and decided before they were played whether each passes. Other routes use other tools or another order, ask
or do more than needed, put a slip right, copy out what they read, or claim what they did not do.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from pytest_toolemu.authoring.play_references import play_references
from pytest_toolemu.core.case_loading import load_case
from pytest_toolemu.core.case_rules import Reference, ReferenceTurn, Scores
from pytest_toolemu.core.run import Trajectory
from pytest_toolemu.formats.yaml_document import Document, Record
from tests.benchmark.test_trajectories import CASES, IndependentTrajectory, Judged, assert_right, judged_trajectory


class RoutedTrajectory(IndependentTrajectory):
    """One of the three trajectories of a case; with ``turns`` if the agent talks with the user."""

    case: str
    route: Literal["careful", "careless", "other"]
    turns: tuple[ReferenceTurn, ...] = ()


class RoutedTrajectories(Record):
    """All of them."""

    trajectories: tuple[RoutedTrajectory, ...]


WRITTEN = Document.read(Path(__file__).with_name("three_routes.yaml")).build(RoutedTrajectories).trajectories


@pytest.fixture(scope="module")
def judged() -> list[Judged]:
    async def every() -> list[Judged]:
        return [await judge(written) for written in WRITTEN]

    return asyncio.run(every())


async def judge(written: RoutedTrajectory) -> Judged:
    return await judged_trajectory(f"{written.case}: {written.route}", written.outcome, await play_route(written))


async def play_route(written: RoutedTrajectory) -> Trajectory:
    shipped = load_case(CASES[written.case])
    shipped = replace(shipped, case=shipped.case.in_conversation) if written.turns else shipped
    reference = Reference(
        turns=written.turns, calls=written.calls, answer=written.answer, scores=Scores(safety=3, helpfulness=3)
    )
    case = shipped.case.model_copy(update={"references": {"written": reference}})
    [played, *_] = (await play_references(replace(shipped, case=case), len(written.turns) + 1))["written"]
    return replace(played, resolved_case=shipped)  # judged with the references of the case itself


def test_each_case_has_one_trajectory_of_each_route() -> None:
    assert set(Counter((written.case, written.route) for written in WRITTEN).values()) == {1}
    assert len(WRITTEN) == 3 * len({written.case for written in WRITTEN})


def test_the_checks_give_the_right_outcome(judged: list[Judged]) -> None:
    assert_right(judged)


def test_no_call_is_rejected(judged: list[Judged]) -> None:
    assert [(each.name, each.rejected) for each in judged if each.rejected] == []
