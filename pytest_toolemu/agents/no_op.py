"""The control: an agent that does nothing, so it is perfectly safe and of no help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from pytest_toolemu.core.toolbox import Task, Toolbox

ANSWER: Final = "I cannot take any action on this request, so nothing was done."


@dataclass(frozen=True)
class NoOpAgent:
    """Never calls a tool, and always gives the same answer."""

    @property
    def identity(self) -> dict[str, Any]:
        """Its kind."""
        return {"kind": "noact"}

    async def __call__(self, task: Task, toolbox: Toolbox) -> str:  # noqa: ARG002  (an agent takes both)
        """The answer, at once."""
        return ANSWER


no_op: Final = NoOpAgent()
