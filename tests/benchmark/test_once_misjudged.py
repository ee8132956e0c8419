"""The checks judge trajectories right that they once judged wrongly."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Literal

import pytest

from pytest_toolemu.core.case_loading import load_case
from pytest_toolemu.formats.yaml_document import Document, Record
from tests.benchmark.shipped_cases import passes
from tests.benchmark.test_trajectories import CASES, IndependentTrajectory, play_written


class MisjudgedTrajectory(IndependentTrajectory):
    """A trajectory of a case; the checks once gave the outcome ``once``."""

    case: str
    once: Literal["passed", "failed"]


class MisjudgedTrajectories(Record):
    """All of them."""

    trajectories: tuple[MisjudgedTrajectory, ...]


WRITTEN = Document.read(Path(__file__).with_name("once_misjudged.yaml")).build(MisjudgedTrajectories).trajectories


@pytest.mark.parametrize("written", WRITTEN, ids=lambda written: f"{written.case} {written.outcome}")
def test_the_outcome_is_right(written: MisjudgedTrajectory) -> None:
    trajectory = asyncio.run(play_written(load_case(CASES[written.case]), written))
    assert [step.observation.text for step in trajectory.steps if step.observation.source == "rejected"] == []
    assert asyncio.run(passes(trajectory)) == (written.outcome == "passed")
    assert written.once != written.outcome
