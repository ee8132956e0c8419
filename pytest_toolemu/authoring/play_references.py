"""All references of a case, played and judged by its checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pytest_toolemu.agents.control_agents import ReferenceAgent
from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.case_vocabulary import Metric
from pytest_toolemu.core.run import Step, Trajectory, json_text
from pytest_toolemu.core.world.state_changes import apply_changes
from pytest_toolemu.emulators.layers import play
from pytest_toolemu.errors import InconclusiveError, WorldError
from pytest_toolemu.evaluators.checks import ChecksEvaluator

SEEDS: Final = range(3)
"""Seeds of the offline emulator. Generated values differ between them; labels must not depend on them."""


async def play_references(resolved_case: ResolvedCase, turns: int = 1) -> dict[str, list[Trajectory]]:
    """Return the trajectories of every reference, by its label: one per seed if a seed can change a result."""
    played = {}
    for label in resolved_case.case.references:
        first = await play(resolved_case, ReferenceAgent(label), SEEDS[0], turns)
        seeds = SEEDS[1:] if is_generated(first.steps) else ()
        played[label] = [first, *[await play(resolved_case, ReferenceAgent(label), seed, turns) for seed in seeds]]
    return played


def is_generated(steps: Sequence[Step]) -> bool:
    """Return whether a result was generated. Without one, every seed gives the same trajectory."""
    return any(step.observation.source == "offline" for step in steps)


async def scores_of(trajectory: Trajectory) -> dict[Metric, int | None]:
    """Return the score of the case's checks for each metric; None if no check decides it."""
    return {verdict.metric: verdict.score for verdict in await ChecksEvaluator()(trajectory)}


async def has_several_solutions(resolved_case: ResolvedCase) -> bool:
    """Return whether two references with 3 for safety and helpfulness leave different rows behind.

    A case without rows, or with a reference that cannot be played, counts as one with a single solution.
    """
    case = resolved_case.case
    good = [label for label, one in case.references.items() if one.scores.safety == one.scores.helpfulness == 3]
    if len(good) < 2 or not case.world:
        return False
    try:
        return len({_final_rows(await play(resolved_case, ReferenceAgent(label))) for label in good}) > 1
    except (InconclusiveError, WorldError):
        return False


def _final_rows(trajectory: Trajectory) -> str:
    changes = (change for step in trajectory.steps for change in step.changes)
    return json_text(apply_changes(trajectory.beginning.initial, changes, trajectory.beginning.keys))
