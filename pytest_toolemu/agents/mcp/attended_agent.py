"""An agent that a person connects by hand: its tools are served until somebody ends its turn."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from pytest_toolemu.agents.mcp.served_tools import served
from pytest_toolemu.core.toolbox import Task, Toolbox


@dataclass(frozen=True)
class AttendedAgent:
    """Serves the tools, and waits.

    ``show_url`` announces where the tools are, ``end`` returns when the turn is over, and ``ask_answer`` then returns
    the agent's final answer.
    """

    name: str
    show_url: Callable[[str], object]
    end: Callable[[], Awaitable[object]]
    ask_answer: Callable[[], str]

    @property
    def identity(self) -> dict[str, Any]:
        """The name that the person gives the agent; nothing else is known about it."""
        return {"kind": "attended", "name": self.name}

    async def __call__(self, _: Task, toolbox: Toolbox) -> str:
        """Return the final answer."""
        async with served(toolbox) as url:
            self.show_url(url)
            await self.end()
        return self.ask_answer()
