"""Answer calls by executing the operations that toolkits declare on the rows of the case."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_toolemu.core.trajectory import Call, Observation, Trajectory
from pytest_toolemu.emulators.wrapper_emulator import WrapperEmulator
from pytest_toolemu.errors import OpenEntityError, WorldError


@dataclass(frozen=True)
class RowsEmulator(WrapperEmulator):
    """Executes calls of tools with an operation, if the case has rows for their toolkit; passes every other call on."""

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
