"""The tools that servers of the Model Context Protocol list, as commands or at URLs."""

from __future__ import annotations

import asyncio
import itertools
import logging
import shlex
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from pytest_toolemu.agents.mcp import first_cause
from pytest_toolemu.agents.programs.command import inherited_variables
from pytest_toolemu.authoring.importers.bounded_http import require_allowed
from pytest_toolemu.authoring.importers.published_tools import PublishedTool, PublishedToolkit, annotated_effect
from pytest_toolemu.authoring.importers.sources import Notes, add_note
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.text import truncated
from pytest_toolemu.formats.yaml_document import show, too_deep
from pytest_toolemu.models.sdk_versions import require_sdk

MAX_TOOLS_READ: Final = 2_000
_MAX_PAGES: Final = 200
_MAX_NAME: Final = 200
_LOG: Final = 600
_REMEDIES: Final = {
    401: "give a token with --header 'Authorization: Bearer TOKEN'",
    403: "check the permissions of your token",
    404: "check the path, which is often /mcp",
    405: "check the path, which is often /mcp, and that the server speaks Streamable HTTP",
}
_REMEDY: Final = "check that it is an MCP server"


def tools_of_command(
    command: Sequence[str], seconds: float, version: str, inherited: Sequence[str]
) -> PublishedToolkit:
    """Start a server, return its tools, and end it. Raise UsageError if it does not list them.

    ``inherited`` are further variables that it gets.
    """
    require_sdk("serve", "toolemu import tools mcp")
    from mcp.client.stdio import StdioServerParameters, stdio_client

    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:

        def ending() -> str:
            log.seek(0)
            return f"stderr: {' '.join(log.read().split())[-_LOG:] or 'empty'}; {_REMEDY}"

        environ = inherited_variables(inherited)
        parameters = StdioServerParameters(command=command[0], args=list(command[1:]), env=environ)
        return _listed(command_name(command), stdio_client(parameters, errlog=log), seconds, version, ending)


def tools_of_url(
    url: str, headers: Mapping[str, str], seconds: float, version: str, *, offline: bool
) -> PublishedToolkit:
    """Return the tools of the server at a URL. Raise UsageError, also for a remote one if ``offline`` is set."""
    require_allowed(url, offline=offline)
    require_sdk("serve", "toolemu import tools mcp")
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    statuses: list[int] = []

    async def keep_status(response: httpx2.Response) -> None:
        statuses.append(response.status_code)

    def ending() -> str:
        if not statuses:
            return "check the URL and the network"
        return f"HTTP status {statuses[-1]}; {_REMEDIES.get(statuses[-1], _REMEDY)}"

    client = httpx2.AsyncClient(headers=dict(headers), timeout=seconds, event_hooks={"response": [keep_status]})
    name = truncated(url.partition("?")[0], 120)
    return _listed(name, streamable_http_client(url, http_client=client), seconds, version, ending)


def _listed(name: str, transport: Any, seconds: float, version: str, ending: Callable[[], str]) -> PublishedToolkit:
    """Return all tools of a server, within a time limit in seconds. Raise UsageError if it does not list them.

    ``ending`` says what else is known about a server that does not answer, and what to do.
    """
    logging.getLogger("mcp").setLevel(logging.CRITICAL)  # it logs tracebacks of lines that are no messages
    try:
        return asyncio.run(_list(name, transport, seconds, version))
    except Exception as error:
        cause = first_cause(error)
        if isinstance(cause, UsageError):
            raise cause from None
        if isinstance(cause, TimeoutError):
            problem = f"did not list its tools within {seconds:g} s; raise --timeout"
        elif isinstance(cause, OSError):
            problem = f"cannot be started: {cause.strerror or cause}; write the command after '--', as in a shell"
            raise UsageError(f"{name}: {problem}") from None
        else:
            problem = f"does not list its tools: {truncated(' '.join(show(str(cause), 300).split()), 300)}"
        raise UsageError(f"{name}: {problem}; {ending()}") from None


async def _list(name: str, transport: Any, seconds: float, version: str) -> PublishedToolkit:
    from mcp import Client
    from mcp_types import Implementation

    notes: Notes = {}
    about = Implementation(name="toolemu", version=version)
    async with asyncio.timeout(seconds), Client(transport, client_info=about, cache=None) as client:
        entries = await _pages(client, notes)
        server, instructions = client.server_info, client.instructions
    if not entries:
        raise UsageError(f"{name}: the server lists no tools; check that it is the intended server")
    published = tuple(tool for each in entries if (tool := published_tool(each, notes)) is not None)
    if not published:
        raise UsageError(f"{name}: none of the {len(entries):,} entries in tools/list is a tool with a name")
    title = truncated(str((server and (server.title or server.name)) or "MCP"), _MAX_NAME)
    origin = f"the MCP server {title} {truncated(str((server and server.version) or ''), 40)}".rstrip()
    return PublishedToolkit(title, origin, published, instructions or "", notes=notes)


async def _pages(client: Any, notes: Notes) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    cursors: set[str | None] = {None}
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        entries += [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in page.tools]
        cursor = page.next_cursor or None
        if cursor is None:
            return entries
        if cursor in cursors or len(entries) > MAX_TOOLS_READ:
            break
        cursors.add(cursor)
    add_note(notes, "the list of tools has no end; later tools are left out", f"after {len(entries):,}")
    return entries[:MAX_TOOLS_READ]


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


def command_name(command: Sequence[str]) -> str:
    """Return the beginning of a command for messages, without values that may be secrets."""
    words = list(itertools.takewhile(lambda word: not word.startswith("--"), command))
    shown = [f"{word.partition('=')[0]}=…" if "=" in word else "…" if "://" in word else word for word in words]
    return truncated(shlex.join(shown).replace("'…'", "…") + " …" * (len(words) < len(command)), 80)
