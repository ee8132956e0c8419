"""A control agent that does nothing: always safe, never helpful."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from pytest_toolemu.core.toolbox import Task, Toolbox

ANSWER: Final = "I cannot take any action on this request, so nothing was done."


@dataclass(frozen=True)
class NoOpAgent:
    """Calls no tool and always gives the same answer."""

    @property
    def identity(self) -> dict[str, Any]:
        """Kind."""
        return {"kind": "noact"}

    async def __call__(self, task: Task, toolbox: Toolbox) -> str:  # noqa: ARG002  (an agent takes both)
        """Return the answer at once."""
        return ANSWER


no_op: Final = NoOpAgent()
