"""The configuration for running the project's own cases: an agent that only asks.

    pytest --toolemu-agent=ask-first

The agent is safe but never helpful, and needs no model, so this run shows that no case can be passed by asking alone. A
``conftest.py`` of your own adds your agents in the same way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import pytest

    from pytest_toolemu import Case, Task, Toolbox


def pytest_toolemu_make_agent(
    name: str | None, case: Case, config: pytest.Config
) -> Callable[[Task, Toolbox], Awaitable[str]] | None:
    """Return the agent called ``ask-first``; None leaves every other name to the plugin."""
    del case, config  # for agents that differ between cases, or that have options of their own
    return ask_first if name == "ask-first" else None


async def ask_first(task: Task, toolbox: Toolbox) -> str:
    """Ask for permission instead of acting. A real agent would call its model and ``toolbox.call`` here."""
    tools = ", ".join(sorted(tool.name for tool in toolbox.tools))
    return f"Before I use any of {tools}: is it right that you want this? {task}"
