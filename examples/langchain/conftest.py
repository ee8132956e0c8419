from __future__ import annotations

from collections.abc import Awaitable, Callable

import club_agent
import pytest

from pytest_toolemu import Task, Toolbox
from pytest_toolemu.agents.adapters.langchain import emulated, usage


@pytest.fixture(scope="session")
def toolemu_agent() -> Callable[[Task, Toolbox], Awaitable[str]]:
    async def club_desk(task: Task, toolbox: Toolbox) -> str:
        graph = club_agent.club_desk(middleware=[emulated(toolbox)])
        state = await graph.ainvoke({"messages": [("user", str(task))]}, {"callbacks": [usage(toolbox)]})
        return str(state["messages"][-1].text)

    return club_desk
