"""Run agents of the Claude Agent SDK with emulated tools."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import AsyncIterator, Iterable
from typing import Any, Final
from weakref import WeakKeyDictionary

from pytest_toolemu.agents.adapters import AnyToolbox, awaitable, stop
from pytest_toolemu.agents.mcp import served
from pytest_toolemu.core.toolbox import Toolbox
from pytest_toolemu.errors import AgentStopped

_SERVER: Final = "tools"
_MCP_TOOL: Final = re.compile(r"mcp__(?P<server>.+?)(?:__(?P<tool>.+))?")
_COUNTS: Final = {
    "inputTokens": "input_tokens",
    "outputTokens": "output_tokens",
    "cacheReadInputTokens": "cache_read_input_tokens",
    "cacheCreationInputTokens": "cache_creation_input_tokens",
}
"""Counts of tokens, as the results of Claude Code and the messages of a model name them."""


@contextlib.asynccontextmanager
async def emulated(options: Any, toolbox: AnyToolbox) -> AsyncIterator[Any]:
    """Yield a copy of ``ClaudeAgentOptions`` whose only tools are those of a case.

    Claude Code's own tools, all MCP servers, plugins, and settings of files are removed. Hooks and permissions are
    kept. If the options have one MCP server, the emulated tools keep its name: ``mcp__NAME__tool``. Without permissions
    and without MCP servers, all emulated tools are allowed.

    Raise MissingToolError, which ends the session, if the options name a tool that no toolkit of the case has; agents
    in the options are such tools. The names of tools that the options do not name are unknown; they are never called.
    """
    box = awaitable(toolbox)
    box.require_tools("of the Claude Agent SDK", _tool_names(options))
    servers = options.mcp_servers if isinstance(options.mcp_servers, dict) else {_SERVER: None}
    server = next(iter(servers)) if len(servers) == 1 else _SERVER
    async with served(box) as url:
        yield dataclasses.replace(
            options,
            tools=[],
            mcp_servers={server: {"type": "http", "url": url}},
            strict_mcp_config=True,
            setting_sources=[],
            plugins=[],
            allowed_tools=_renamed(options.allowed_tools, server)
            if options.allowed_tools or servers
            else [f"mcp__{server}"],
            disallowed_tools=_renamed(options.disallowed_tools, server),
        )


async def usage(messages: AsyncIterator[Any], toolbox: AnyToolbox) -> AsyncIterator[Any]:
    """Yield the messages of ``query(...)`` or ``client.receive_response()``, and count their tokens.

    The result of Claude Code counts. Without one, because the agent was stopped, the counts of its messages do, which
    contain the output only as far as it was known when a message began. Raise AgentStopped if Claude Code reached its
    own limit on turns, which is judged as the step limit is, and at the limit on tokens. Raise RuntimeError if Claude
    Code reports another error, such as one of its model: its text is not an answer.
    """
    meter = ClaudeUsageMeter(awaitable(toolbox))
    try:
        async for message in messages:
            meter.watch(message)
            yield message
    finally:
        with contextlib.suppress(AgentStopped):  # the toolbox keeps it
            meter.report_messages()


class ClaudeUsageMeter:
    """Reports the tokens of Claude Code until its result, and the error of its result."""

    def __init__(self, toolbox: Toolbox) -> None:
        self._toolbox = toolbox
        self._messages: dict[str, tuple[str, dict[str, Any]]] = {}

    def watch(self, message: Any) -> None:
        """Count a message. Raise AgentStopped at the limits on turns and on tokens, RuntimeError for other errors."""
        if type(message).__name__ == "AssistantMessage" and message.usage:
            self._messages[message.message_id] = (message.model, message.usage)
        elif type(message).__name__ == "ResultMessage":
            self._messages.clear()
            for model, counts in (message.model_usage or {}).items():
                totals = [counts.get(name) or 0 for name in _COUNTS]
                self._report(model, self._new(message.session_id, model, totals))
            if message.subtype == "error_max_turns":
                limit = f"Claude Code reached its limit on turns ({message.num_turns})"
                stop(self._toolbox, AgentStopped("step_limit", limit))
            if message.is_error:
                raise RuntimeError(f"Claude Code failed ({message.subtype}): {message.result or message.errors}")

    def report_messages(self) -> None:
        """Report the messages for which no result has arrived. Raise AgentStopped at the limit on tokens."""
        messages, self._messages = self._messages, {}
        for model, counts in messages.values():
            self._report(model, [counts.get(name) or 0 for name in _COUNTS.values()])

    def _new(self, session: str, model: str, totals: list[int]) -> list[int]:
        """Return by how much the totals have grown, because a result counts all turns of its process."""
        key = (session, model)
        counted = _COUNTED.setdefault(self._toolbox, {})
        growth = [total - before for total, before in zip(totals, counted.get(key, [0] * len(totals)), strict=True)]
        counted[key] = totals
        return growth if min(growth) >= 0 else totals  # smaller totals are those of another process

    def _report(self, model: str, counts: Iterable[int]) -> None:
        uncached, output, cached, written = counts
        if any((uncached, output, cached, written)):
            self._toolbox.used(
                f"anthropic:{model}",
                input=uncached + cached + written,
                output=output,
                cached=cached,
                cache_written=written,
            )


_COUNTED: WeakKeyDictionary[Toolbox, dict[tuple[str, str], list[int]]] = WeakKeyDictionary()
"""The totals that were reported last, by session of Claude Code and model."""


def _tool_names(options: Any) -> list[str]:
    """Return the names of the tools that the options name, without servers and the rules of permissions."""
    preset = [options.tools["preset"]] if isinstance(options.tools, dict) else options.tools or []
    names = [*preset, *(name.partition("(")[0] for name in options.allowed_tools), *(options.agents or {})]
    found = [(name, _MCP_TOOL.fullmatch(name)) for name in names]
    return [name if match is None else match["tool"] for name, match in found if match is None or match["tool"]]


def _renamed(names: Iterable[str], server: str) -> list[str]:
    """Return permissions of MCP tools for the server of the emulated tools."""
    found = [_MCP_TOOL.fullmatch(name) for name in names]
    return [f"mcp__{server}__{match['tool']}" if match["tool"] else f"mcp__{server}" for match in found if match]
