"""Give the same answer to the same question as long as nothing changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pytest_toolemu.core.identity import identity_of
from pytest_toolemu.core.toolbox import Emulator
from pytest_toolemu.core.toolkit import Tool
from pytest_toolemu.core.trajectory import Call, Observation, Step, Trajectory


@dataclass(frozen=True)
class ConsistentEmulator:
    """Repeats an earlier answer to the same read, unless some other call may have changed the world since then."""

    next: Emulator

    @property
    def identity(self) -> dict[str, Any]:
        """That of the emulator inside."""
        return identity_of(self.next)

    async def __call__(self, call: Call, trajectory: Trajectory) -> Observation:
        """The earlier content, or the answer of the emulator inside."""
        tools = trajectory.resolved_case.tools
        if tools[call.name].effect == "read":
            for step in reversed(trajectory.steps):
                if step.call.tool == call.tool and step.call.text == call.text:
                    return Observation(content=step.observation.content, source="remembered")
                if _changed(step, tools):
                    break
        return await self.next(call, trajectory)


def _changed(step: Step, tools: dict[str, Tool]) -> bool:
    """Whether the step was a success of anything but a read; of any toolkit, since one may show another's data."""
    tool = tools.get(step.call.name)
    return tool is not None and tool.effect != "read" and not step.observation.is_error
