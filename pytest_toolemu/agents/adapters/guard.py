"""Refuse tools of known frameworks that would be executed for real while an agent acts."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, Final

from pytest_toolemu.core.toolbox import ACTING, Toolbox
from pytest_toolemu.errors import MissingToolError

_PACKAGE: Final = "pytest_toolemu."
_NOBODY: Final = object()
_OPEN: Final[set[Toolbox]] = set()
"""The toolboxes of agents that act now, for calls in threads and tasks that have lost the context of their case."""


@contextlib.contextmanager
def guarded(toolbox: Toolbox) -> Iterator[None]:
    """Refuse tools that are not emulated in the agent's context and, while the block runs, in contexts of no case.

    The first one ends the session with MissingToolError. Nothing is executed. Covered are the tools of LangChain and
    LangGraph, the OpenAI Agents SDK, Pydantic AI, ADK, Claude Code, and of sessions with MCP servers, as soon as their
    packages are imported. Tools that a provider executes, and plain function calls of an agent, cannot be seen.
    """
    _install()
    _OPEN.add(toolbox)
    ACTING.set(toolbox)  # never reset: the context is that of the agent's task and ends with it
    try:
        yield
    finally:
        _OPEN.discard(toolbox)


def _refuse(name: str, framework: str, adapter: str) -> None:
    """Raise MissingToolError for the tool of a framework, unless no agent acts here or the tool may be executed."""
    toolbox: Any = ACTING.get(_NOBODY)
    if toolbox is _NOBODY:
        toolbox = next(iter(_OPEN), None)
    if toolbox is None or name in toolbox.kept_tools:
        return
    where = f"pytest_toolemu.agents.adapters.{adapter}"
    error = MissingToolError(
        f"the tool {name!r} of {framework} is not emulated, so it would be executed for real; run the agent with "
        f"'emulated' from {where}, or call toolbox.keep({name!r}) before if it may be executed. Nothing was executed"
    )
    toolbox.stop(error)
    raise error


def _is_emulated(*parts: Any) -> bool:
    """Return whether a tool, its class, or its function is of this package, as those of ``toolbox.functions()`` are."""
    return any(str(getattr(part, "__module__", "")).startswith(_PACKAGE) for part in parts)


def _langchain(tool: Any) -> None:
    if not _is_emulated(type(tool), getattr(tool, "func", None), getattr(tool, "coroutine", None)):
        _refuse(tool.name, "LangChain", "langgraph")


def _pydantic_ai(toolset: Any, name: str, _: Any, __: Any, tool: Any) -> None:
    source = toolset.tools.get(name)
    if not _is_emulated(type(toolset), getattr(source, "function", None)):
        _refuse(tool.tool_def.name, "Pydantic AI", "pydantic_ai")


def _openai_agents(tools: list[Any]) -> None:
    for tool in tools:
        # The tools of an agent that serves as a tool are checked when it runs, and calls over MCP in their session.
        is_elsewhere = getattr(tool, "_is_agent_tool", False) or getattr(tool, "_mcp_tool_binding", None)
        functions = (getattr(tool, "on_invoke_tool", None), getattr(tool, "__wrapped__", None))
        if not is_elsewhere and not _is_emulated(*functions):
            _refuse(tool.name, "the OpenAI Agents SDK", "openai_agents")


def _adk(tool: Any) -> None:
    from pytest_toolemu.agents.adapters.adk import is_control

    is_agent = type(tool).__name__ == "AgentTool"
    if not is_agent and not is_control(tool) and not _is_emulated(type(tool), getattr(tool, "func", None)):
        _refuse(tool.name, "ADK", "adk")


def _claude(transport: Any) -> None:
    options = transport._options
    servers = options.mcp_servers.values() if isinstance(options.mcp_servers, dict) else [options.mcp_servers]
    is_local = all("127.0.0.1" in str(server.get("url") if isinstance(server, dict) else server) for server in servers)
    if options.tools != [] or not is_local:
        named = [*(options.tools if isinstance(options.tools, list) else ()), *options.allowed_tools, "Bash"]
        _refuse(named[0], "Claude Code", "claude")


def _mcp(session: Any, name: str) -> None:
    server = session.server_info
    if server is None or (server.name, server.version) != SERVER:
        _refuse(name, f"the MCP server {server.name if server else 'without a name'!r}", "claude")


SERVER: Final = ("tools", "1")
"""Name and version of the MCP server of emulated tools. They do not tell an agent that its tools are emulated."""


@functools.cache
def _install() -> None:
    """Check calls where frameworks execute tools: at once in those that are imported, in others once they are."""
    from wrapt import when_imported, wrap_function_wrapper

    def check(module: str, function: str, before: Callable[..., None]) -> None:
        def called(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
            before(*(() if instance is None else (instance,)), *args, **kwargs)
            return wrapped(*args, **kwargs)

        when_imported(module)(lambda loaded: wrap_function_wrapper(loaded, function, called))

    for method in ("run", "arun"):
        check("langchain_core.tools.base", f"BaseTool.{method}", lambda tool, *_, **__: _langchain(tool))
    check("pydantic_ai.toolsets.function", "FunctionToolset.call_tool", _pydantic_ai)
    check("google.adk.flows.llm_flows.tools._caller", "_call_tool_async", lambda tool, *_, **__: _adk(tool))
    check("google.adk.flows.llm_flows.tools._live_caller", "_call_tool_async", lambda tool, *_, **__: _adk(tool))
    check("claude_agent_sdk._internal.transport.subprocess_cli", "SubprocessCLITransport.connect", _claude)
    check("mcp.client.session", "ClientSession.call_tool", lambda session, name, *_, **__: _mcp(session, name))

    async def get_all_tools(wrapped: Any, _: Any, args: Any, kwargs: Any) -> Any:
        tools = await wrapped(*args, **kwargs)
        _openai_agents(tools)
        return tools

    when_imported("agents.agent")(
        lambda loaded: wrap_function_wrapper(loaded, "AgentBase.get_all_tools", get_all_tools)
    )
