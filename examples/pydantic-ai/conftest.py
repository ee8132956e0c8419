from __future__ import annotations

from collections.abc import Awaitable, Callable

import club_agent
import pytest

from pytest_toolemu import Task, Toolbox
from pytest_toolemu.agents.adapters.pydantic_ai import emulated


@pytest.fixture(scope="session")
def toolemu_agent() -> Callable[[Task, Toolbox], Awaitable[str]]:
    async def club_desk(task: Task, toolbox: Toolbox) -> str:
        with emulated(club_agent.agent, toolbox):
            return (await club_agent.agent.run(task)).output

    return club_desk
