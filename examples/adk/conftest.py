from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from club_agent import club_desk
from google.adk.apps import App
from google.adk.runners import InMemoryRunner

from pytest_toolemu import Task, Toolbox
from pytest_toolemu.agents.adapters.adk import emulated


@pytest.fixture(scope="session")
def toolemu_agent() -> Callable[[Task, Toolbox], Awaitable[str]]:
    async def answer(task: Task, toolbox: Toolbox) -> str:
        app = App(name="club", root_agent=club_desk, plugins=[emulated(toolbox)])
        events = await InMemoryRunner(app=app).run_debug(str(task), quiet=True)
        return "".join(part.text or "" for part in events[-1].content.parts)

    return answer
