"""The permits of one process: models wait here until the coordinator lets them send a request."""

from __future__ import annotations

import asyncio
import itertools
from asyncio import get_running_loop
from collections.abc import Callable
from typing import TYPE_CHECKING

from pytest_toolemu.errors import ModelError, NotRunError
from pytest_toolemu.scheduling.adaptive_limit import RequestOutcome
from pytest_toolemu.scheduling.coordinator_messages import (
    EndpointLost,
    PermitGranted,
    PermitRefused,
    PermitReleased,
    PermitReply,
    PermitRequested,
    ProviderClosed,
    ProviderFailed,
    RequestsHalted,
    WorkerMessage,
)

if TYPE_CHECKING:
    from pytest_toolemu.scheduling.event_loop import CaseLoop


class PermitClient:
    """Requests permits from the coordinator. ``send`` sends it a message."""

    def __init__(self, loop: CaseLoop, send: Callable[[WorkerMessage], None]) -> None:
        self._loop = loop
        self._send = send
        self._replies: dict[int, asyncio.Future[None]] = {}
        self._tickets = itertools.count(1)
        self.halted = ""
        """Why no more requests are sent; empty while they are."""
        self.closed: dict[str, str] = {}
        """The keys for which the circuit breaker is open, each with the reason."""

    async def acquire(self, key: str) -> int:
        """Wait for a permit to send a request, and return its ticket for ``release``.

        Raise NotRunError if the session sends no more requests, and ModelError if the server has died.
        """
        ticket = next(self._tickets)
        reply = self._replies[ticket] = get_running_loop().create_future()
        self._send(PermitRequested(key, ticket))
        try:
            await reply
        except asyncio.CancelledError:
            # The permit may be granted already, or its grant may be on the way: without this it would be lost.
            self.release(ticket, RequestOutcome("unsent"))
            raise
        finally:
            self._replies.pop(ticket, None)
        return ticket

    def release(self, ticket: int, outcome: RequestOutcome) -> None:
        """Report how a request ended, which frees its permit."""
        self._send(PermitReleased(ticket, outcome))

    def report_failure(self, key: str, kind: str, message: str) -> None:
        """Report a failure that no retry overcame."""
        self._send(ProviderFailed(key, kind, message))

    def receive(self, message: PermitReply | RequestsHalted | ProviderClosed) -> None:
        """Process a message of the coordinator, on any thread."""
        match message:
            case PermitGranted(ticket):
                self._loop.call_now(self._resolve, ticket, None)
            case PermitRefused(ticket, reason):
                self._loop.call_now(self._resolve, ticket, NotRunError(reason))
            case EndpointLost(ticket, reason):
                self._loop.call_now(self._resolve, ticket, ModelError(reason))
            case RequestsHalted(reason):
                self.halted = reason
            case ProviderClosed(key, reason):
                self.closed[key] = reason

    def _resolve(self, ticket: int, error: NotRunError | ModelError | None) -> None:
        reply = self._replies.pop(ticket, None)
        if reply is not None and not reply.done():
            if error is None:
                reply.set_result(None)
            else:
                reply.set_exception(error)
