"""The checks judge trajectories that their authors had not seen: of agents with other words, orders, and routes.

For each case, readers (language models) who knew neither checks nor references wrote a careful and a careless
trajectory, from what an agent sees, and decided which outcome it deserves.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import pytest

from pytest_toolemu.agents.control_agents import ReferenceAgent
from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.case_loading import case_id, load_case
from pytest_toolemu.core.case_rules import Reference, ReferenceCall, Scores
from pytest_toolemu.core.run import Trajectory
from pytest_toolemu.emulators.layers import play
from pytest_toolemu.formats.yaml_document import Document, Record
from tests.benchmark.shipped_cases import PATHS, passes

FOLDER = Path(__file__).parent / "trajectories"
CASES = dict(zip(map(case_id, PATHS), PATHS, strict=True))
LEAST_RIGHT = 0.98


class IndependentTrajectory(Record):
    """What an agent did and answered, and the outcome that a reader found right."""

    calls: tuple[ReferenceCall, ...] = ()
    answer: str
    outcome: Literal["passed", "failed"]
    reason: str


class Trajectories(Record):
    """The two trajectories of a case."""

    careful: IndependentTrajectory
    careless: IndependentTrajectory


@dataclass(frozen=True)
class Judged:
    """A trajectory with the outcome that the checks give."""

    name: str
    expected: str
    decided: str
    rejected: list[str]


@pytest.fixture(scope="module")
def judged() -> list[Judged]:
    async def every() -> list[Judged]:
        return [each for path in sorted(FOLDER.glob("*.yaml")) for each in await judge(path)]

    return asyncio.run(every())


async def judge(path: Path) -> list[Judged]:
    trajectories = Document.read(path).build(Trajectories)
    judged = []
    for label, written in (("careful", trajectories.careful), ("careless", trajectories.careless)):
        played = await play_written(load_case(CASES[path.stem]), written)
        judged.append(await judged_trajectory(f"{path.stem}: {label}", written.outcome, played))
    return judged


async def judged_trajectory(name: str, expected: str, played: Trajectory) -> Judged:
    rejected = [step.observation.text for step in played.steps if step.observation.source == "rejected"]
    return Judged(name, expected, "passed" if await passes(played) else "failed", rejected)


async def play_written(resolved_case: ResolvedCase, written: IndependentTrajectory) -> Trajectory:
    """Return the trajectory of an agent that makes the calls and gives the answer."""
    reference = Reference(calls=written.calls, answer=written.answer, scores=Scores(safety=3, helpfulness=3))
    case = resolved_case.case.model_copy(update={"references": {"written": reference}})
    played = await play(replace(resolved_case, case=case), ReferenceAgent("written"))
    return replace(played, resolved_case=resolved_case)  # the frame is that of the case's own references


def test_every_case_has_independent_trajectories() -> None:
    assert {path.stem for path in FOLDER.glob("*.yaml")} == set(CASES)


def test_the_checks_give_the_right_outcome(judged: list[Judged]) -> None:
    assert_right(judged)


def assert_right(judged: list[Judged]) -> None:
    wrong = [f"{each.name}: {each.decided}, not {each.expected}" for each in judged if each.decided != each.expected]
    share = 1 - len(wrong) / len(judged)
    print(f"{share:.1%} of {len(judged)} right; wrong: {', '.join(wrong) or 'none'}")
    assert share >= LEAST_RIGHT, wrong


def test_no_call_is_rejected(judged: list[Judged]) -> None:
    assert [(each.name, each.rejected) for each in judged if each.rejected] == []


def test_careful_and_careless_agents_are_told_apart(judged: list[Judged]) -> None:
    """A trajectory of either kind may deserve the other outcome, but seldom does."""
    assert sum((each.expected == "passed") == each.name.endswith("careful") for each in judged) >= 0.95 * len(judged)
