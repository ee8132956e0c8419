"""Serve the tools at a fixed port, for services that cannot take an address with each request: one case at a time."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus
from time import monotonic
from typing import Final

from pytest_toolemu.agents.mcp import served
from pytest_toolemu.agents.mcp.http_connection import HttpConnection
from pytest_toolemu.agents.mcp.http_request import HttpRequest, HttpResponse
from pytest_toolemu.agents.mcp.mcp_messages import reply_to
from pytest_toolemu.agents.mcp.served_tools import ServedTools
from pytest_toolemu.agents.mcp.tool_server import refusal, tool_server
from pytest_toolemu.core import case_timer
from pytest_toolemu.core.toolbox import Toolbox
from pytest_toolemu.errors import UsageError

_HOST: Final = "127.0.0.1"
_RETRY_SECONDS: Final = 0.05
_MAX_SECONDS: Final = 3600.0


@contextlib.asynccontextmanager
async def served_at(port: int, toolbox: Toolbox) -> AsyncIterator[str]:
    """Serve the tools of a case at ``http://127.0.0.1:PORT/mcp``, as soon as no other case does.

    The port itself is the lock, also between processes. The time limit of the case does not run while it waits. Raise
    UsageError if the port is still taken after an hour.
    """
    loop, tools = tool_server().loop, served(toolbox)
    with case_timer.paused():
        address = await asyncio.to_thread(loop.run, _FixedAddress.open(port, tools))
    try:
        async with tools:
            yield f"http://{_HOST}:{port}/mcp"
    finally:
        await asyncio.to_thread(loop.run, address.close())


async def check_port(port: int, source: str) -> None:
    """Raise UsageError if another program uses the port."""
    try:
        server = await asyncio.get_running_loop().create_server(asyncio.Protocol, _HOST, port)
    except OSError as error:
        raise UsageError(
            f"{source}: port {port} of this computer cannot be used ({error.strerror}); end the program that uses it, "
            "or change tools_port here and in the service"
        ) from None
    server.close()


class _FixedAddress:
    """The server of one case. Its connections end with it: a client that keeps them must not reach an earlier case."""

    _server: asyncio.Server

    def __init__(self, port: int, tools: ServedTools) -> None:
        self._port = port
        self._tools = tools
        self._connections: set[asyncio.BaseTransport] = set()

    @classmethod
    async def open(cls, port: int, tools: ServedTools) -> _FixedAddress:
        """Wait until the port is free, and listen."""
        address, started = cls(port, tools), monotonic()
        while True:
            try:
                loop = asyncio.get_running_loop()
                address._server = await loop.create_server(address._connection, _HOST, port)
                return address
            except OSError as error:
                if error.errno != errno.EADDRINUSE or monotonic() - started > _MAX_SECONDS:
                    raise UsageError(f"port {port} (tools_port) cannot be used: {error.strerror}") from None
            await asyncio.sleep(_RETRY_SECONDS)

    async def close(self) -> None:
        """Free the port, and end all connections."""
        self._server.close()
        for connection in self._connections:
            if isinstance(connection, asyncio.Transport):
                connection.abort()

    def _connection(self) -> HttpConnection:
        return _TrackedConnection(self._answer, self._connections)

    async def _answer(self, request: HttpRequest) -> HttpResponse:
        if problem := refusal(request, self._port):
            return problem
        if request.method != "POST" or request.path.partition("?")[0] != "/mcp":
            return HttpResponse(HTTPStatus.NOT_FOUND, {"error": "send messages to /mcp with POST"})
        return await reply_to(request, self._tools)


class _TrackedConnection(HttpConnection):
    def __init__(
        self, answer: Callable[[HttpRequest], Awaitable[HttpResponse]], connections: set[asyncio.BaseTransport]
    ) -> None:
        super().__init__(answer)
        self._connections = connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._connections.add(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._connections.discard(self._transport)
