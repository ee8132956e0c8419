"""The tools of a case for agents that are plain functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pytest_toolemu.core.agent_access.tool_functions import make_function
from pytest_toolemu.core.toolbox import Toolbox
from pytest_toolemu.core.toolkit import Tool, provider_name


class BlockingToolbox:
    """The toolbox for an agent that is a plain function: every call waits for its result.

    Such an agent runs in its own thread, so it may block. It may make calls from further threads.
    """

    def __init__(self, toolbox: Toolbox) -> None:
        self.awaitable = toolbox
        """The same tools for code that awaits. It may do so on any event loop, for example that of a framework."""
        self._home = toolbox.settle()
        self.resolved_case = toolbox.resolved_case
        self.tools = toolbox.tools
        self.openai_tools = toolbox.openai_tools
        self.anthropic_tools = toolbox.anthropic_tools
        self.quit = toolbox.quit
        self.used = toolbox.used
        self.require_tools = toolbox.require_tools

    def call(self, name: str, arguments: Any) -> dict[str, Any]:
        """Call a tool as ``Toolbox.call`` does, without ``await``."""
        return self._home.submit(self.awaitable.call, name, arguments).result()

    def say(self, text: str) -> str | None:
        """Say something to the user as ``Toolbox.say`` does, without ``await``."""
        return self._home.submit(self.awaitable.say, text).result()

    def functions(self) -> dict[str, Callable[..., dict[str, Any]]]:
        """Return each tool by name, as a plain function of keyword arguments with a docstring and a signature."""
        return {name: self._function(name, tool) for name, tool in self.resolved_case.tools.items()}

    def _function(self, name: str, tool: Tool) -> Callable[..., dict[str, Any]]:
        def function(arguments: Any) -> dict[str, Any]:
            return self.call(name, arguments)

        return make_function(function, provider_name(name), tool)
