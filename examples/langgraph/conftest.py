from __future__ import annotations

from collections.abc import Awaitable, Callable

import club_agent
import pytest

from pytest_toolemu import Task, Toolbox
from pytest_toolemu.agents.adapters.langgraph import emulated


@pytest.fixture(scope="session")
def toolemu_agent() -> Callable[[Task, Toolbox], Awaitable[str]]:
    async def club_desk(task: Task, toolbox: Toolbox) -> str:
        with emulated(club_agent.graph, toolbox):
            state = await club_agent.graph.ainvoke({"messages": [("user", str(task))]})
        return str(state["messages"][-1].text)

    return club_desk
