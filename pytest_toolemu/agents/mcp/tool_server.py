"""The HTTP server of this process, at which every case has an address of its own."""

from __future__ import annotations

import asyncio
import re
import secrets
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from pytest_toolemu.agents.mcp.http_connection import HttpConnection
from pytest_toolemu.agents.mcp.http_request import HttpRequest, HttpResponse
from pytest_toolemu.agents.mcp.mcp_messages import CaseTools, error_message, reply_to, report_lost
from pytest_toolemu.agents.once_per_process import OncePerProcess
from pytest_toolemu.scheduling.event_loop import CaseLoop

_HOSTS: Final = ("127.0.0.1", "localhost")
_LOCAL_ORIGIN: Final = re.compile(r"https?://(127\.0\.0\.1|localhost)(:\d+)?", re.IGNORECASE)
_BACKLOG: Final = 512


class ToolServer:
    """Serves the tools of many cases on a port of the loopback interface, in a daemon thread.

    The path of a case is unguessable. Requests of web pages are refused: they carry the host name or the origin under
    which a browser has loaded the page.
    """

    def __init__(self) -> None:
        self._cases: dict[str, CaseTools] = {}
        self.loop = CaseLoop("toolemu-mcp")
        self._port = self.loop.run(self._listen())

    def open(self, tools: CaseTools) -> str:
        """Serve the tools of a case, and return their URL."""
        token = secrets.token_urlsafe(16)
        self._cases[token] = tools
        return f"http://127.0.0.1:{self._port}/{token}/mcp"

    def close(self, url: str) -> None:
        """Serve the tools at this URL no longer."""
        self._cases.pop(_token(urlsplit(url).path), None)

    async def _listen(self) -> int:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(self._connection, "127.0.0.1", 0, backlog=_BACKLOG)

        async def close() -> None:
            server.close()

        self.loop.on_close(close)
        port: int = server.sockets[0].getsockname()[1]
        return port

    def _connection(self) -> HttpConnection:
        return HttpConnection(self._answer, self._report_lost)

    def _report_lost(self, request: HttpRequest) -> None:
        tools = self._tools_for(request)
        if tools is not None and refusal(request, self._port) is None:
            report_lost(tools)

    def _tools_for(self, request: HttpRequest) -> CaseTools | None:
        return self._cases.get(_token(request.path.partition("?")[0]))

    async def _answer(self, request: HttpRequest) -> HttpResponse:
        if problem := refusal(request, self._port):
            return problem
        tools = self._tools_for(request)
        if tools is None:
            return _error(
                HTTPStatus.NOT_FOUND, "no case is served at this address, which is valid only until its case ends"
            )
        if request.method != "POST":
            # The other methods belong to streams and sessions, which servers need not have.
            return HttpResponse(
                HTTPStatus.METHOD_NOT_ALLOWED,
                error_message(None, -32600, f"{request.method} is not served; send messages with POST"),
                {"Allow": "POST"},
            )
        return await reply_to(request, tools)


def refusal(request: HttpRequest, port: int) -> HttpResponse | None:
    """Return the response to a request that comes from a web page, or for another host; None for any other one."""
    host = request.headers.get("host", "")
    if host.lower() not in {f"{name}:{port}" for name in _HOSTS}:
        return _error(HTTPStatus.MISDIRECTED_REQUEST, f"the host {host!r} is not served; connect to 127.0.0.1:{port}")
    origin = request.headers.get("origin")
    if origin is not None and not _LOCAL_ORIGIN.fullmatch(origin):
        return _error(HTTPStatus.FORBIDDEN, f"requests of the web page {origin!r} are refused")
    return None


tool_server: Final = OncePerProcess(ToolServer)
"""Returns the server of this process. It starts on first use, and ends with the process."""


def _token(path: str) -> str:
    token, _, rest = path.removeprefix("/").partition("/")
    return token if rest == "mcp" else ""


def _error(status: HTTPStatus, message: str) -> HttpResponse:
    return HttpResponse(status, error_message(None, -32600, message))
