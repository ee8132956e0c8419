from __future__ import annotations

from collections.abc import Awaitable, Callable

import club_agent
import pytest
from agents import Runner, set_tracing_disabled

from pytest_toolemu import Task, Toolbox
from pytest_toolemu.agents.adapters.openai_agents import emulated

set_tracing_disabled(True)  # the SDK sends traces to OpenAI otherwise


@pytest.fixture(scope="session")
def toolemu_agent() -> Callable[[Task, Toolbox], Awaitable[str]]:
    async def reception(task: Task, toolbox: Toolbox) -> str:
        result = await Runner.run(emulated(club_agent.reception, toolbox), str(task))
        return str(result.final_output)

    return reception
