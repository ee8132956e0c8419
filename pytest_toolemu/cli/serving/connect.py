"""``toolemu connect``: the tools of a served case for MCP clients that only start programs."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer


def connect(url: Annotated[str, typer.Argument(help="URL of a case, as 'toolemu serve' prints it.")]) -> None:
    """Connect an MCP client that starts its servers as programs (stdio) with a case that is being served."""
    from pytest_toolemu.errors import UsageError
    from pytest_toolemu.models.sdk_versions import require_sdk

    require_sdk("serve", "toolemu connect")
    address = urlsplit(url)
    if address.scheme != "http" or not address.hostname or not address.path.strip("/"):
        raise UsageError(
            f"{url!r} is not the URL of a case; copy it from the output of 'toolemu serve', such as "
            "http://127.0.0.1:40000/TOKEN/mcp"
        )
    asyncio.run(_pass_on(url))


async def _pass_on(url: str) -> None:
    """Serve the tools at a URL on standard input and output until the client closes its side."""
    import httpx2
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client
    from mcp.server.lowlevel import Server
    from mcp.server.stdio import stdio_server

    from pytest_toolemu.agents.mcp import first_cause
    from pytest_toolemu.errors import UsageError

    async with contextlib.AsyncExitStack() as stack:
        http = await stack.enter_async_context(httpx2.AsyncClient(timeout=httpx2.Timeout(10, read=None)))
        try:
            client = await stack.enter_async_context(Client(streamable_http_client(url, http_client=http), cache=None))
        except Exception as error:
            reason = str(first_cause(error)) or type(first_cause(error)).__name__
            raise UsageError(f"{url} does not answer: {reason}; start 'toolemu serve' again") from None

        async def listed(_context: Any, _params: Any) -> Any:
            return await client.list_tools()

        async def called(_context: Any, params: Any) -> Any:
            return await client.call_tool(params.name, params.arguments)

        server = Server("tools", version="1", on_list_tools=listed, on_call_tool=called)
        reader, writer = await stack.enter_async_context(stdio_server())
        await server.run(reader, writer, server.create_initialization_options())
