"""Plays a case's labelled trajectories in the offline world, without the engine and its records: many in a second."""

from __future__ import annotations

from typing import Final

from pytest_toolemu.agents.reference import Reference
from pytest_toolemu.case import Metric, World
from pytest_toolemu.emulators.checked import Checked
from pytest_toolemu.emulators.offline import Offline
from pytest_toolemu.emulators.pinned import Pinned
from pytest_toolemu.emulators.remembered import Remembered
from pytest_toolemu.engine import Limits
from pytest_toolemu.errors import AgentStopped
from pytest_toolemu.evaluators.checks import Checks
from pytest_toolemu.toolbox import Agent, Task, Toolbox
from pytest_toolemu.trajectory import Trajectory

SEEDS: Final = range(3)
"""What the offline world makes up differs with each; no label may hang on it."""


async def play(world: World, agent: Agent, seed: int = 0) -> Trajectory:
    """What the agent does, under the limit of calls that a session has. InconclusiveError as from the offline world."""
    trajectory = Trajectory(world, seed)
    toolbox = Toolbox(trajectory, Checked(Pinned(Remembered(Offline()))), Limits().max_steps)
    try:
        trajectory.answer = await agent(Task.of(world.case), toolbox)
    except AgentStopped:
        trajectory.stop = "step_limit"
    return trajectory


async def play_references(world: World) -> dict[str, list[Trajectory]]:
    """Every reference by its label, once with each seed."""
    labels = world.case.references
    return {label: [await play(world, Reference(label), seed) for seed in SEEDS] for label in labels}


async def scores_of(trajectory: Trajectory) -> dict[Metric, int | None]:
    """What the case's checks say; None where they say nothing."""
    return {verdict.metric: verdict.score for verdict in await Checks()(trajectory)}
