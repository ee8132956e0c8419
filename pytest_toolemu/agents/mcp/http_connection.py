"""One connection of a client to the server. It notices at once when the client hangs up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from pytest_toolemu.agents.mcp.http_request import (
    CONTINUE,
    MAX_BODY,
    MAX_HEAD,
    BadRequestError,
    HttpRequest,
    HttpResponse,
    RequestReader,
)

_PROBE_SECONDS: Final = 0.1
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
        self._has_received_all = False

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

    def eof_received(self) -> bool:
        """Find out whether the client has hung up, or only sends nothing more and waits for the answer."""
        self._has_received_all = True
        if self._task is not None:
            self._probe()
        return self._task is not None

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the answer: the client does not wait for it any more."""
        del exc
        if self._task is not None:
            self._task.cancel()

    def _probe(self) -> None:
        """Write until the answer is there: the system of a client that has hung up refuses what it gets.

        An interim response is all that may precede the answer; clients ignore it.
        """
        if self._task is not None and not self._transport.is_closing():
            self._transport.write(CONTINUE)
            asyncio.get_running_loop().call_later(_PROBE_SECONDS, self._probe)

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
        keeps_connection = request.keeps_connection and not (self._has_received_all and self._reader.unread == 0)
        self._write(response, keeps_connection=keeps_connection)
        if keeps_connection:
            self._begin()
            if self._has_received_all and self._task is None:  # the rest is no whole request
                self._transport.close()

    def _write(self, response: HttpResponse, *, keeps_connection: bool) -> None:
        self._transport.write(response.encode(keeps_connection=keeps_connection))
        if not keeps_connection:
            self._transport.close()
