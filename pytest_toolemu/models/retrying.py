"""The one layer that retries, and that asks for leave before it sends a request."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from pytest_toolemu.core import case_timer as clocks
from pytest_toolemu.core.messages import ModelRequest, Reply
from pytest_toolemu.errors import ModelError, NotRunError
from pytest_toolemu.models.endpoint import RemoteModel
from pytest_toolemu.models.wrapper import WrapperModel
from pytest_toolemu.scheduling.adaptive_limit import AdaptiveLimit, RequestOutcome
from pytest_toolemu.scheduling.circuit_breaker import CircuitBreaker

# Failures of one request, of which refusals for load are worth more patience, and seconds spent on it.
ATTEMPTS: Final = 8
REFUSALS: Final = 20
PATIENCE: Final = 180.0
# A request that takes so many times longer than those like it holds its case up; which is known after so many answers,
# and nothing quicker than so many seconds is called slow.
_SLOW: Final = 2.0
_KNOWN: Final = 8
_QUICK: Final = 0.25
_FIRST: Final = 0.25
_LONGEST: Final = 60.0
# Too many requests, and Anthropic's word for it.
_BUSY: Final = (429, 529)

# What says nothing about the single request: no answer at all, no reply in it, or a refusal whatever is asked.
_UNUSABLE: Final = (None, 200, 401, 402, 403, 404, 408, 429)

_log = logging.getLogger(__name__)


class RateLimiter(Protocol):
    """Grants permits to send requests."""

    async def acquire(self, account: str) -> int:
        """Wait for a permit, and return its ticket for ``release``. Raise NotRunError if none will be granted."""
        ...

    def release(self, ticket: int, outcome: RequestOutcome) -> None:
        """Report how the request ended, which frees its permit."""
        ...

    def report_failure(self, account: str, kind: str, message: str) -> None:
        """Count a failure that no retry overcame; after too many of one kind in a row, permits are refused."""
        ...


class RetryingModel(WrapperModel):
    """A model that waits for leave, and tries again where that may help. Back-off happens without a ticket."""

    def __init__(
        self,
        model: RemoteModel,
        gate: RateLimiter,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        draw: Callable[[float, float], float] = random.uniform,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(model)
        self._gate = gate
        self._sleep = sleep
        self._draw = draw
        self._clock = clock
        self._paces: defaultdict[str, _Pace] = defaultdict(_Pace)

    async def complete(self, request: ModelRequest) -> Reply:
        """At most 8 failures, 20 refusals for load, and 180 s of requests and back-off; waiting for leave is free."""
        spent, failures, refusals = 0.0, 0, 0
        pace = self._paces[request.schema.name if request.schema else "an agent's"]
        while True:
            with clocks.paused():
                ticket = await self._gate.acquire(self.account)
            begun = self._clock()
            answer = RequestOutcome("failed")  # so much is true of a request that is cancelled
            try:
                with clocks.stalled(pace.slow_after):
                    reply = await self._inner.complete(request)
                answer = self._answer("ok", begun, reply)
                pace.learn(answer.seconds)
                return reply
            except ModelError as error:
                failure = error
                answer = self._answer("busy" if _is_busy(error) else "failed", begun, retry_after=error.retry_after)
            finally:
                self._gate.release(ticket, answer)
            if not failure.transient:
                raise self._final(failure)
            refusals += _is_busy(failure)
            failures += not _is_busy(failure)
            spent += answer.seconds
            delay = self._delay(failures + refusals, failure.retry_after)
            if failures == ATTEMPTS or refusals == REFUSALS or spent + delay > PATIENCE:
                raise self._final(_given_up(failure, failures + refusals, spent))
            _log.info("%s; attempt %d in %.1f s", failure, failures + refusals + 1, delay)
            with clocks.paused(), clocks.stalled(0.0):
                await self._sleep(delay)
            spent += delay

    def _final(self, failure: ModelError) -> ModelError:
        """Report a failure that would meet any request, not only this one."""
        if failure.status in _UNUSABLE or (failure.status or 0) >= 500:
            self._gate.report_failure(self.account, str(failure.status), str(failure))
        return failure

    def _answer(
        self, status: Any, begun: float, reply: Reply | None = None, retry_after: float | None = None
    ) -> RequestOutcome:
        tokens = reply.usage.total if reply is not None else 0
        return RequestOutcome(status, self._clock() - begun, tokens, retry_after, *self._inner.quotas())

    def _delay(self, attempt: int, retry_after: float | None) -> float:
        # Full jitter: clients that failed together do not come back together, not even at the time they were told.
        jitter = self._draw(0.0, min(_LONGEST, _FIRST * 2.0 ** (attempt - 1)))
        return jitter if retry_after is None else retry_after + jitter


@dataclass
class _Pace:
    """How long requests of one kind take: a judge writes for longer than an agent."""

    answered: int = 0
    mean: float = 0.0

    @property
    def slow_after(self) -> float:
        """Seconds from which on one takes longer than usual; infinite as long as that is not known."""
        return max(_QUICK, _SLOW * self.mean) if self.answered >= _KNOWN else math.inf

    def learn(self, seconds: float) -> None:
        """One was answered; the last 32 or so count."""
        self.answered += 1
        self.mean += (seconds - self.mean) / min(self.answered, 4 * _KNOWN)


class Unlimited:
    """A gate for one process, with a throttle for each account."""

    def __init__(self, start: int) -> None:
        self._start = start
        self._breaker = CircuitBreaker()
        self._throttles: dict[str, AdaptiveLimit[int]] = {}
        self._open: dict[int, str] = {}
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._next = 0

    async def acquire(self, account: str) -> int:
        """Wait for a permit, and return its ticket. Raise NotRunError once the account has failed too often."""
        self._refuse(account)
        self._next += 1
        ticket = self._next
        throttle = self._throttles.setdefault(account, AdaptiveLimit(self._start))
        granted = self._waiting[ticket] = asyncio.get_running_loop().create_future()
        self._open[ticket] = account
        throttle.enqueue(ticket)
        self._grant(throttle)
        try:
            await granted
        except asyncio.CancelledError:
            self.release(ticket, RequestOutcome("unsent"))
            raise
        finally:
            del self._waiting[ticket]
        try:
            self._refuse(account)
        except NotRunError:
            self.release(ticket, RequestOutcome("unsent"))
            raise
        return ticket

    def report_failure(self, account: str, kind: str, message: str) -> None:
        """Count a failure that no retry overcame."""
        self._breaker.record_failure(account, kind, message)

    def _refuse(self, account: str) -> None:
        if reason := self._breaker.open.get(account):
            raise NotRunError(reason)

    def release(self, ticket: int, outcome: RequestOutcome) -> None:
        """Free the permit of a request that has ended."""
        account = self._open.pop(ticket)
        if outcome.status == "ok":
            self._breaker.record_success(account)
        throttle = self._throttles[account]
        throttle.release(ticket, outcome, time.monotonic())
        self._grant(throttle)

    def _grant(self, throttle: AdaptiveLimit[int]) -> None:
        now = time.monotonic()
        for ticket in throttle.grant(now):
            if not self._waiting[ticket].done():
                self._waiting[ticket].set_result(None)
        due = throttle.next_grant(now)
        if due is not None:
            asyncio.get_running_loop().call_later(due - now, self._grant, throttle)


def _is_busy(error: ModelError) -> bool:
    return error.status in _BUSY and error.transient


def _given_up(failure: ModelError, attempts: int, spent: float) -> ModelError:
    return ModelError(
        f"{failure} (given up after {attempts} attempts in {spent:.0f} s)",
        status=failure.status,
        transient=True,
        retry_after=failure.retry_after,
    )
