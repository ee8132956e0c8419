"""Answer calls by executing the operations that toolkits declare on the rows of the case."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pytest_toolemu.core.identity import identity_of
from pytest_toolemu.core.toolbox import Emulator
from pytest_toolemu.core.trajectory import Call, Observation, Trajectory
from pytest_toolemu.errors import OpenEntityError, WorldError


@dataclass(frozen=True)
class RowsEmulator:
    """Executes calls of tools with an operation, if the case has rows for their toolkit; passes every other call on."""

    next: Emulator

    @property
    def identity(self) -> dict[str, Any]:
        """Identity of the inner emulator; the rows belong to the case, and the operations to the toolkits."""
        return identity_of(self.next)

    @property
    def dialogue_identity(self) -> dict[str, Any]:
        """The identity in runs with a dialogue."""
        return identity_of(self.next, in_dialogue=True)

    async def __call__(self, call: Call, trajectory: Trajectory) -> Observation:
        """Return the result of the operation, or the answer of the inner emulator."""
        world = trajectory.world
        plan = world.plan(call.tool) if world is not None else None
        if world is None or plan is None or call.tool is None:
            return await self.next(call, trajectory)
        try:
            content = world.call(call.tool, call.arguments, call.index)
        except OpenEntityError:
            return await self.next(call, trajectory)
        if "error" not in content and (problems := plan.tool.result_schema.violations(content)):
            raise WorldError(f"{call.tool} does not return what it declares: {problems[0]}; correct its operation")
        return Observation(content=content, source="rows")
