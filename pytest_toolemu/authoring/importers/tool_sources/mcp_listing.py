"""Asks a server of the Model Context Protocol for its tools, as a client with nothing but the standard library.

The packages of the protocol exclude one another in most environments, and listing tools needs three methods.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from pytest_toolemu.authoring.importers.notes import Notes, add_note
from pytest_toolemu.authoring.importers.tool_sources.published_tools import PublishedTool, PublishedToolkit
from pytest_toolemu.authoring.importers.tool_sources.tool_effects import annotated_effect
from pytest_toolemu.authoring.importers.traces.json_values import objects
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.truncation import truncated
from pytest_toolemu.formats.yaml_document import show, too_deep

Json = dict[str, Any]

PROTOCOL_VERSION: Final = "2025-06-18"
MAX_TOOLS_READ: Final = 2_000
_MAX_PAGES: Final = 200
_MAX_NAME: Final = 200


class McpTransport(Protocol):
    """Sends messages to one server. Each method raises UsageError if the server does not answer, with the reason."""

    name: str

    def request(self, method: str, params: Json, seconds: float) -> Json:
        """Return the ``result`` or ``error`` of the reply, as ``{"result": ...}`` or ``{"error": ...}``."""

    def notify(self, method: str) -> None:
        """Send a notification, to which there is no reply."""


def list_tools(transport: McpTransport, seconds: float, version: str) -> PublishedToolkit:
    """Return all tools of a server, within a time limit in seconds. Raise UsageError if it does not list them."""
    deadline = time.monotonic() + seconds

    def ask(method: str, params: Json) -> Json:
        return _result(transport, method, transport.request(method, params, deadline - time.monotonic()))

    client = {"name": "toolemu", "version": version}
    about = ask("initialize", {"protocolVersion": PROTOCOL_VERSION, "capabilities": {}, "clientInfo": client})
    transport.notify("notifications/initialized")
    notes: Notes = {}
    tools = _pages(transport, ask, notes)
    if not tools:
        raise UsageError(f"{transport.name}: the server lists no tools; check that it is the intended server")
    published = tuple(tool for each in tools if (tool := published_tool(each, notes)) is not None)
    if not published:
        raise UsageError(f"{transport.name}: none of the {len(tools):,} entries in tools/list is a tool with a name")
    server = about.get("serverInfo")
    server = server if isinstance(server, dict) else {}
    name = truncated(str(server.get("title") or server.get("name") or "MCP"), _MAX_NAME)
    origin = f"the MCP server {name} {truncated(str(server.get('version') or ''), 40)}".rstrip()
    instructions = about.get("instructions")
    description = instructions if isinstance(instructions, str) else ""
    return PublishedToolkit(name, origin, published, description, notes=notes)


def _result(transport: McpTransport, method: str, reply: Json) -> Json:
    if "error" in reply:
        error = reply["error"]
        message = error.get("message") if isinstance(error, dict) else error
        raise UsageError(f"{transport.name}: the server refuses {method}: {show(message, 300)}")
    result = reply.get("result")
    if not isinstance(result, dict):
        raise UsageError(f"{transport.name}: the server's reply to {method} is not an object: {show(result)}")
    return result


def _pages(transport: McpTransport, ask: Callable[[str, Json], Json], notes: Notes) -> list[Any]:
    tools: list[Any] = []
    cursors: set[str] = set()
    params: Json = {}
    for _ in range(_MAX_PAGES):
        page = ask("tools/list", params)
        listed = page.get("tools")
        if not isinstance(listed, list):
            raise UsageError(f"{transport.name}: the server's reply to tools/list has no list of tools: {show(page)}")
        tools += listed
        cursor = page.get("nextCursor")
        if not isinstance(cursor, str) or not cursor:
            return tools
        if cursor in cursors or len(tools) > MAX_TOOLS_READ:
            break
        cursors.add(cursor)
        params = {"cursor": cursor}
    add_note(notes, "the list of tools has no end; later tools are left out", f"after {len(tools):,}")
    return tools[:MAX_TOOLS_READ]


def published_tool(entry: Any, notes: Notes) -> PublishedTool | None:
    """Return the tool in an entry of ``tools/list``; None if it has no name, or is nested too deeply."""
    name = entry.get("name") if isinstance(entry, dict) else None
    if not isinstance(name, str) or not name or too_deep(entry):
        add_note(notes, "an entry that is not a tool with a name, or is nested too deeply, is left out", show(name, 40))
        return None
    annotations = entry.get("annotations")
    hints: Mapping[str, Any] = annotations if isinstance(annotations, dict) else {}
    effect, is_stated = annotated_effect(name, hints)
    return PublishedTool(
        name=truncated(name, _MAX_NAME),
        description=str(entry.get("description") or ""),
        parameters=entry.get("inputSchema"),
        returns=entry.get("outputSchema"),
        effect=effect,
        effect_is_stated=is_stated,
    )


def reply_to(message: Any, request_id: int) -> Json | None:
    """Return the reply in a message of a server if it belongs to the request, and None for any other message."""
    for each in objects(message if isinstance(message, list) else [message]):
        if each.get("id") == request_id and ("result" in each or "error" in each):
            return each
    return None
