"""Permits to send requests: what the retrying model needs, and an implementation for a single process."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

from pytest_toolemu.errors import NotRunError
from pytest_toolemu.scheduling.adaptive_limit import AdaptiveLimit, RequestOutcome
from pytest_toolemu.scheduling.request_limits import CircuitBreaker


class RateLimiter(Protocol):
    """Grants permits to send requests. ``key`` names what shares a rate limit: provider, credential, and model."""

    async def acquire(self, key: str) -> int:
        """Wait for a permit, and return its ticket for ``release``. Raise NotRunError if none will be granted."""
        ...

    def release(self, ticket: int, outcome: RequestOutcome) -> None:
        """Report how the request ended, which frees its permit."""
        ...

    def report_failure(self, key: str, kind: str, message: str) -> None:
        """Count a failure that no retry overcame; after too many of one kind in a row, permits are refused."""
        ...


class LocalRateLimiter:
    """A rate limiter for one process without a coordinator, with an adaptive limit for each key."""

    def __init__(self, start: int) -> None:
        self._start = start
        self._breaker = CircuitBreaker()
        self._limits: dict[str, AdaptiveLimit[int]] = {}
        self._keys: dict[int, str] = {}
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._last_ticket = 0

    async def acquire(self, key: str) -> int:
        """Wait for a permit, and return its ticket. Raise NotRunError once too many requests with this key failed."""
        self._refuse(key)
        self._last_ticket += 1
        ticket = self._last_ticket
        limit = self._limits.setdefault(key, AdaptiveLimit(self._start))
        granted = self._waiting[ticket] = asyncio.get_running_loop().create_future()
        self._keys[ticket] = key
        limit.enqueue(ticket)
        self._grant(limit)
        try:
            await granted
        except asyncio.CancelledError:
            self.release(ticket, RequestOutcome("unsent"))
            raise
        finally:
            del self._waiting[ticket]
        try:
            self._refuse(key)
        except NotRunError:
            self.release(ticket, RequestOutcome("unsent"))
            raise
        return ticket

    def report_failure(self, key: str, kind: str, message: str) -> None:
        """Count a failure that no retry overcame."""
        self._breaker.record_failure(key, kind, message)

    def _refuse(self, key: str) -> None:
        if reason := self._breaker.open.get(key):
            raise NotRunError(reason)

    def release(self, ticket: int, outcome: RequestOutcome) -> None:
        """Free the permit of a request that has ended."""
        key = self._keys.pop(ticket)
        if outcome.status == "ok":
            self._breaker.record_success(key)
        limit = self._limits[key]
        limit.release(ticket, outcome, time.monotonic())
        self._grant(limit)

    def _grant(self, limit: AdaptiveLimit[int]) -> None:
        now = time.monotonic()
        for ticket in limit.grant(now):
            if not self._waiting[ticket].done():  # it is done if its request was canceled
                self._waiting[ticket].set_result(None)
        due = limit.next_grant(now)
        if due is not None:
            asyncio.get_running_loop().call_later(due - now, self._grant, limit)
