"""Finds cases with more than one good solution."""

from __future__ import annotations

from pytest_toolemu.agents.reference import ReferenceAgent
from pytest_toolemu.authoring.play_references import play
from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.trajectory import Trajectory, json_text
from pytest_toolemu.core.world.state_changes import apply_changes
from pytest_toolemu.errors import InconclusiveError, WorldError


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
