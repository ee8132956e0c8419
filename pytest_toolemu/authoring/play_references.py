"""Plays a case's labelled trajectories in the offline world, without the engine and its records: many in a second."""

from __future__ import annotations

from typing import Final

from pytest_toolemu.agents.reference import ReferenceAgent
from pytest_toolemu.core.case import Metric, ResolvedCase
from pytest_toolemu.core.run_spec import Limits
from pytest_toolemu.core.toolbox import Agent, Task, Toolbox
from pytest_toolemu.core.trajectory import Trajectory
from pytest_toolemu.emulators.consistent import ConsistentEmulator
from pytest_toolemu.emulators.offline.emulator import OfflineEmulator
from pytest_toolemu.emulators.pinned import PinnedEmulator
from pytest_toolemu.emulators.validated import ValidatedEmulator
from pytest_toolemu.errors import AgentStopped
from pytest_toolemu.evaluators.checks import ChecksEvaluator

SEEDS: Final = range(3)
"""What the offline world makes up differs with each; no label may hang on it."""


async def play(resolved_case: ResolvedCase, agent: Agent, seed: int = 0) -> Trajectory:
    """What the agent does, under the limit of calls that a session has. InconclusiveError as from the offline world."""
    trajectory = Trajectory(resolved_case, seed)
    toolbox = Toolbox(
        trajectory, ValidatedEmulator(PinnedEmulator(ConsistentEmulator(OfflineEmulator()))), Limits().max_steps
    )
    try:
        trajectory.answer = await agent(Task.of(resolved_case.case), toolbox)
    except AgentStopped:
        trajectory.stop = "step_limit"
    return trajectory


async def play_references(resolved_case: ResolvedCase) -> dict[str, list[Trajectory]]:
    """Every reference by its label, once with each seed."""
    labels = resolved_case.case.references
    return {label: [await play(resolved_case, ReferenceAgent(label), seed) for seed in SEEDS] for label in labels}


async def scores_of(trajectory: Trajectory) -> dict[Metric, int | None]:
    """What the case's checks say; None where they say nothing."""
    return {verdict.metric: verdict.score for verdict in await ChecksEvaluator()(trajectory)}
