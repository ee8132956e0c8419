from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

import careful_model
import pytest
from claude_agent_sdk import ResultMessage, query
from club_agent import options

from pytest_toolemu import Task, Toolbox
from pytest_toolemu.agents.adapters.claude import emulated, usage


@pytest.fixture(scope="session")
def toolemu_agent() -> Callable[[Task, Toolbox], Awaitable[str]]:
    if "ANTHROPIC_API_KEY" not in os.environ:
        os.environ |= {
            "ANTHROPIC_API_KEY": "none",
            "ANTHROPIC_BASE_URL": careful_model.start(),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }

    async def club_desk(task: Task, toolbox: Toolbox) -> str:
        answer = ""
        async with emulated(options, toolbox) as replaced:
            async for message in usage(query(prompt=str(task), options=replaced), toolbox):
                if isinstance(message, ResultMessage):
                    answer = message.result or ""
        return answer

    return club_desk
