"""The tools of MCP servers, however they are reached."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

from pytest_toolemu.authoring.importers.tool_sources.bounded_http import require_allowed
from pytest_toolemu.authoring.importers.tool_sources.mcp_command import ChildProcess, McpCommand
from pytest_toolemu.authoring.importers.tool_sources.mcp_http import McpUrl
from pytest_toolemu.authoring.importers.tool_sources.mcp_listing import list_tools
from pytest_toolemu.authoring.importers.tool_sources.published_tools import PublishedToolkit


def tools_of_command(command: Sequence[str], seconds: float, version: str) -> PublishedToolkit:
    """Start a server, return its tools, and end it with all its processes. Raise UsageError."""
    with ChildProcess(command) as child, contextlib.closing(McpCommand(child)) as server:
        return list_tools(server, seconds, version)


def tools_of_url(
    url: str, headers: Mapping[str, str], seconds: float, version: str, *, offline: bool
) -> PublishedToolkit:
    """Return the tools of the server at a URL. Raise UsageError, also for a remote one if ``offline`` is set."""
    require_allowed(url, offline=offline)
    with contextlib.closing(McpUrl(url, headers)) as server:
        return list_tools(server, seconds, version)
