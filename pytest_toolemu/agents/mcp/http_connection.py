"""One connection of a client to the server. It notices at once when the client hangs up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from pytest_toolemu.agents.mcp.http_request import (
    MAX_BODY,
    MAX_HEAD,
    BadRequestError,
    HttpRequest,
    HttpResponse,
    RequestReader,
)

_MAX_UNREAD: Final = MAX_HEAD + MAX_BODY


class HttpConnection(asyncio.Protocol):
    """Answers the requests of a connection one after the other.

    If the client closes the connection before it has the answer, the task that computes the answer is canceled.
    ``report_lost`` is called with the head of a request whose body is too long to be read.
    """

    def __init__(
        self,
        answer: Callable[[HttpRequest], Awaitable[HttpResponse]],
        report_lost: Callable[[HttpRequest], object] = lambda _: None,
    ) -> None:
        self._answer = answer
        self._report_lost = report_lost
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to read."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._reader = RequestReader(transport.write)

    def data_received(self, data: bytes) -> None:
        """Begin to answer if the request is complete."""
        self._reader.feed(data)
        if self._task is None:
            self._begin()
        elif self._reader.unread > _MAX_UNREAD:
            self._transport.abort()

    def eof_received(self) -> None:
        """Cancel the answer: the client does not wait for it any more."""
        if self._task is not None:
            self._task.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the answer."""
        del exc
        self.eof_received()

    def _begin(self) -> None:
        try:
            request = self._reader.next_request()
        except BadRequestError as problem:
            if problem.head is not None:
                self._report_lost(problem.head)
            self._write(HttpResponse(problem.status, {"error": str(problem)}), keeps_connection=False)
            return
        if request is not None:
            self._task = asyncio.get_running_loop().create_task(self._respond(request))

    async def _respond(self, request: HttpRequest) -> None:
        response = await self._answer(request)
        self._task = None
        self._write(response, keeps_connection=request.keeps_connection)
        if request.keeps_connection:
            self._begin()

    def _write(self, response: HttpResponse, *, keeps_connection: bool) -> None:
        self._transport.write(response.encode(keeps_connection=keeps_connection))
        if not keeps_connection:
            self._transport.close()
