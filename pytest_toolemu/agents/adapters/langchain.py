"""Run agents of LangChain and LangGraph with emulated tools."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any

from pytest_toolemu.agents.adapters import AnyToolbox, OnceCounter, awaitable, counter_of, is_error, option_name
from pytest_toolemu.core.messages import ToolSpec
from pytest_toolemu.core.toolbox import Toolbox
from pytest_toolemu.formats.text import compact_json


def tools(toolbox: AnyToolbox) -> list[Any]:
    """Return the tools of a case for ``create_agent``, ``ToolNode``, and ``bind_tools``.

    A tool's error is a message with the status ``error``. Arguments are not checked before the emulator gets them.
    """
    box = awaitable(toolbox)
    return [emulated_tool(box, spec) for spec in box.provider_tools]


def emulated_tool(toolbox: Toolbox, spec: ToolSpec, handle_tool_error: Any = True) -> Any:
    """Return a tool of a case.

    ``handle_tool_error`` is what it does with an error: a message with the status ``error``, or an exception.
    """
    return _tool_class()(
        name=spec.name,
        description=spec.description,
        args_schema=spec.parameters,
        toolbox=toolbox,
        handle_tool_error=handle_tool_error,
    )


@functools.cache
def _tool_class() -> Any:
    """Return the class of emulated tools.

    Functions in a StructuredTool would not get arguments named ``config`` or ``run_manager``.
    """
    from langchain_core.tools import BaseTool, ToolException

    def checked(result: dict[str, Any]) -> dict[str, Any]:
        if is_error(result):
            raise ToolException(compact_json(result))
        return result

    class ToolOfCase(BaseTool):
        toolbox: Any

        def _run(self, /, **arguments: Any) -> dict[str, Any]:
            return checked(_wait(self.toolbox, self.name, arguments))

        async def _arun(self, /, **arguments: Any) -> dict[str, Any]:
            # At home, because what replaces the agent's tools and counts its tokens must not apply to an emulator.
            pending = self.toolbox.settle().submit(self.toolbox.call, self.name, arguments)
            return checked(await asyncio.wrap_future(pending))

    return ToolOfCase


def emulated(toolbox: AnyToolbox) -> Any:
    """Return middleware for ``create_agent(..., middleware=[...])`` that replaces the tools of the agent.

    The model sees the tools as the toolkits declare them, and every call is emulated, also one of a tool that does not
    exist. Raise MissingToolError, which ends the session, before the first request if the agent has a tool that no
    toolkit of the case has. Put it last: what other middleware adds before it is checked, too.
    """
    from langchain.agents.middleware import AgentMiddleware
    from langchain_core.messages import ToolMessage

    box = awaitable(toolbox)
    replacements = {tool.name: tool for tool in tools(toolbox)}

    def with_emulated_tools(request: Any) -> Any:
        names = [tool_name(tool) for tool in request.tools]
        box.require_tools("of LangChain", names)
        return request.override(tools=[replacements[name] for name in names])

    def checked_call(request: Any) -> tuple[str, Any]:
        call = request.tool_call
        if request.tool is not None:
            box.require_tools("of LangChain", [request.tool.name])
        return call["name"], call["args"]

    def message(request: Any, result: dict[str, Any]) -> Any:
        return ToolMessage(
            compact_json(result),
            name=request.tool_call["name"],
            tool_call_id=request.tool_call["id"],
            status="error" if is_error(result) else "success",
        )

    class EmulatedTools(AgentMiddleware[Any, Any]):
        def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
            return handler(with_emulated_tools(request))

        async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
            return await handler(with_emulated_tools(request))

        def wrap_tool_call(self, request: Any, handler: Any) -> Any:
            del handler  # it would execute the real tool
            return message(request, _wait(box, *checked_call(request)))

        async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
            del handler
            return message(request, await box.call(*checked_call(request)))

    return EmulatedTools()


def usage(toolbox: AnyToolbox) -> Any:
    """Return a callback that counts tokens, for ``graph.ainvoke(state, {"callbacks": [...]})``."""
    from langchain_core.callbacks import BaseCallbackHandler

    counter = counter_of(awaitable(toolbox), OnceCounter)

    class TokenCounter(BaseCallbackHandler):
        run_inline = True  # in a thread, the exception of a limit would be lost

        def on_llm_end(self, response: Any, *, run_id: Any, **_: Any) -> None:
            if counter.is_first(response, run_id):
                _count(counter.toolbox, response)

    return TokenCounter()


def _count(toolbox: Toolbox, response: Any) -> None:
    """Report the tokens of a response. Raise AgentStopped at the limit on tokens."""
    for generations in response.generations:
        # All candidates of a request carry the tokens of the whole request.
        message = getattr(generations[0], "message", None) if generations else None
        if message is not None and (tokens := getattr(message, "usage_metadata", None)):
            details = tokens.get("input_token_details") or {}
            metadata = message.response_metadata
            toolbox.used(
                option_name(metadata.get("model_provider"), metadata.get("model_name")),
                input=tokens["input_tokens"],
                output=tokens["output_tokens"],
                cached=details.get("cache_read") or 0,
                cache_written=details.get("cache_creation") or 0,
            )


def _wait(toolbox: Toolbox, name: str, arguments: Any) -> dict[str, Any]:
    return toolbox.settle().submit(toolbox.call, name, arguments).result()


def tool_name(tool: Any) -> str:
    """Return the name of a tool; a provider executes those that are mappings, which may have only a type."""
    if isinstance(tool, dict):
        return str(tool.get("name") or tool.get("function", {}).get("name") or tool.get("type"))
    return str(tool.name)
