"""Repeat the answer to a repeated read as long as nothing has changed."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_toolemu.core.toolkit import Tool
from pytest_toolemu.core.trajectory import Call, Observation, Step, Trajectory
from pytest_toolemu.emulators.wrapper_emulator import WrapperEmulator


@dataclass(frozen=True)
class ConsistentEmulator(WrapperEmulator):
    """Repeats an earlier answer to the same read, unless another call may have changed the world in between.

    Errors are not repeated, because they may be temporary, nor are results that the case fixes for one call: the answer
    to the next one is up to the inner emulator.
    """

    async def __call__(self, call: Call, trajectory: Trajectory) -> Observation:
        """Return the earlier content, or the answer of the inner emulator."""
        tools = trajectory.resolved_case.tools
        if tools[call.name].effect == "read":
            for step in reversed(trajectory.steps):
                if step.call.tool == call.tool and step.call.text == call.text and not step.observation.is_error:
                    if step.observation.source == "pinned":  # for this call only: otherwise the pin would answer again
                        break
                    return Observation(content=step.observation.content, source="remembered")
                if _changed(step, tools):
                    break
        return await self.next(call, trajectory)


def _changed(step: Step, tools: dict[str, Tool]) -> bool:
    """Tell whether the step may have changed the world: a success of anything but a read, in any toolkit.

    Toolkits are not independent: one may show data of another.
    """
    tool = tools.get(step.call.name)
    return tool is not None and tool.effect != "read" and not step.observation.is_error
