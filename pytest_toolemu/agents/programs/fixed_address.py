"""Serve the tools at a fixed port, for services that cannot take an address with each request.

Such a service gets one case at a time, unless it passes on the ``traceparent`` header of its request: then the header
tells whose tools are called.
"""

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
from pytest_toolemu.agents.mcp.mcp_messages import reply_to, report_lost
from pytest_toolemu.agents.mcp.served_tools import ServedTools
from pytest_toolemu.agents.mcp.tool_server import refusal, tool_server
from pytest_toolemu.core import case_timer
from pytest_toolemu.core.toolbox import Toolbox
from pytest_toolemu.errors import InconclusiveError, UsageError

_HOST: Final = "127.0.0.1"
_RETRY_SECONDS: Final = 0.05
_MAX_SECONDS: Final = 3600.0


@contextlib.asynccontextmanager
async def served_at(port: int, toolbox: Toolbox, trace: str = "") -> AsyncIterator[str]:
    """Serve the tools of a case at ``http://127.0.0.1:PORT/mcp``, as soon as no other case does.

    Cases with a ``trace``, the ID in the ``traceparent`` of their requests, share the port within a process. Otherwise,
    the port itself is the lock, also between processes. The time limit of the case does not run while it waits. Raise
    UsageError if the port is still taken after an hour.
    """
    loop, case = tool_server().loop, _OpenCase(served(toolbox), toolbox)
    with case_timer.paused():
        address = await asyncio.to_thread(loop.run, _FixedAddress.open(port, trace, case))
    try:
        async with case.tools:
            yield f"http://{_HOST}:{port}/mcp"
    finally:
        await asyncio.to_thread(loop.run, address.close(trace))


async def check_port(port: int, source: str) -> None:
    """Raise UsageError if another program uses the port."""
    try:
        server = await asyncio.get_running_loop().create_server(asyncio.Protocol, _HOST, port)
    except OSError as error:
        raise UsageError(
            f"{source}: port {port} of this computer cannot be used ({error.strerror}); stop the program that uses "
            "it, or change tools_port here and in the service"
        ) from None
    server.close()


class _OpenCase:
    """The tools of a case, and the toolbox behind them."""

    def __init__(self, tools: ServedTools, toolbox: Toolbox) -> None:
        self.tools = tools
        self.toolbox = toolbox


class _FixedAddress:
    """The server at one port. All methods run on the loop of the tool server.

    Its connections end with the last case: a client that keeps them must not reach an earlier case.
    """

    _shared: Final[dict[int, _FixedAddress]] = {}
    """The addresses of cases with a trace, by port."""
    _server: asyncio.Server

    def __init__(self, port: int) -> None:
        self._port = port
        self._cases: dict[str, _OpenCase] = {}
        self._connections: set[asyncio.BaseTransport] = set()

    @classmethod
    async def open(cls, port: int, trace: str, case: _OpenCase) -> _FixedAddress:
        """Wait until the port is free, and listen; or join the other cases with a trace."""
        started = monotonic()
        while True:
            if trace and port in cls._shared:
                address = cls._shared[port]
                break
            address = cls(port)
            try:
                await address._listen()
                break
            except OSError as error:
                if error.errno != errno.EADDRINUSE or monotonic() - started > _MAX_SECONDS:
                    raise UsageError(f"port {port} (tools_port) cannot be used: {error.strerror}") from None
            await asyncio.sleep(_RETRY_SECONDS)
        if trace:
            cls._shared[port] = address
        address._cases[trace] = case
        return address

    async def close(self, trace: str) -> None:
        """End a case. With the last one, free the port, and end all connections."""
        del self._cases[trace]
        if self._cases:
            return
        if self._shared.get(self._port) is self:
            del self._shared[self._port]
        self._server.close()
        for connection in self._connections:
            if isinstance(connection, asyncio.Transport):
                connection.abort()

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._connection, _HOST, self._port)

    def _connection(self) -> HttpConnection:
        return _TrackedConnection(self._answer, self._report_lost, self._connections)

    def _report_lost(self, request: HttpRequest) -> None:
        case = self._case_of(request)
        if case is not None and refusal(request, self._port) is None:
            report_lost(case.tools)

    def _case_of(self, request: HttpRequest) -> _OpenCase | None:
        return self._cases.get("") or self._cases.get(_trace_of(request))

    async def _answer(self, request: HttpRequest) -> HttpResponse:
        if problem := refusal(request, self._port):
            return problem
        if request.method != "POST" or request.path.partition("?")[0] != "/mcp":
            return HttpResponse(HTTPStatus.NOT_FOUND, {"error": "send messages to /mcp with POST"})
        case = self._case_of(request)
        if case is None:
            return self._refuse_untraced()
        return await reply_to(request, case.tools)

    def _refuse_untraced(self) -> HttpResponse:
        """Refuse a request of an unknown case, and end all cases: the tools of one of them do not work."""
        message = (
            f"the service called its tools at port {self._port} without the traceparent header of a case, so the case "
            "of the call is unknown; make the service pass the header on, or remove passes_traceparent"
        )
        for case in self._cases.values():
            case.toolbox.stop(InconclusiveError(message))
        return HttpResponse(HTTPStatus.BAD_REQUEST, {"error": message})


class _TrackedConnection(HttpConnection):
    def __init__(
        self,
        answer: Callable[[HttpRequest], Awaitable[HttpResponse]],
        report_lost: Callable[[HttpRequest], object],
        connections: set[asyncio.BaseTransport],
    ) -> None:
        super().__init__(answer, report_lost)
        self._connections = connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._connections.add(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._connections.discard(self._transport)


def _trace_of(request: HttpRequest) -> str:
    """Return the trace ID in the ``traceparent`` header; empty without one."""
    parts = request.headers.get("traceparent", "").split("-")
    return parts[1] if len(parts) == 4 else ""
