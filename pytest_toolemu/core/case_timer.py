"""How long a case has run, and whether it is stalled.

Time spent waiting for a permit to send a request, or backing off after a failure, is excluded: a busy provider must not
make a case run into its timeout.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from asyncio import get_running_loop, timeout
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import ContextVar


class CaseTimer:
    """The timer of one case, which starts when it is created. It belongs to the event loop of the case.

    ``on_stall`` is called with True when the case becomes stalled, and with False when it makes progress again.
    """

    def __init__(self, on_stall: Callable[[bool], None]) -> None:
        self._loop = get_running_loop()
        self._on_stall = on_stall
        self._stalls = 0
        self._started_at = self._loop.time()
        self._paused_seconds = 0.0
        self._pauses = 0
        self._paused_at = 0.0
        self._limit: asyncio.Timeout | None = None
        self._due: float | None = None

    @property
    def seconds(self) -> float:
        """Running time in seconds, without the pauses. Can be read from any thread."""
        now = self._paused_at if self._pauses else self._loop.time()
        return now - self._started_at - self._paused_seconds

    @property
    def is_paused(self) -> bool:
        """Whether a request of the case waits for a permit, or backs off. Can be read from any thread."""
        return self._pauses > 0

    @contextlib.asynccontextmanager
    async def limit(self, seconds: float) -> AsyncIterator[asyncio.Timeout]:
        """Limit the running time of a block, as ``asyncio.timeout`` does, but without the pauses."""
        async with timeout(seconds) as self._limit:
            yield self._limit

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Pause the timer. If several requests of a case wait at a time, it stays paused until none of them waits."""
        self._pauses += 1
        if self._pauses == 1:
            self._paused_at = self._loop.time()
            self._due = self._limit and self._limit.when()
            self._reschedule(None)
        try:
            yield
        finally:
            self._pauses -= 1
            if self._pauses == 0:
                paused = self._loop.time() - self._paused_at
                self._paused_seconds += paused
                self._reschedule(None if self._due is None else self._due + paused)

    @contextlib.contextmanager
    def stalled(self, after: float) -> Iterator[None]:
        """Report the case as stalled from ``after`` seconds on until the block ends.

        If several blocks are active at a time, the case is stalled as long as one of them is.
        """
        has_begun = False

        def begin() -> None:
            nonlocal has_begun
            has_begun = True
            self._stalls += 1
            if self._stalls == 1:
                self._on_stall(True)

        timer = self._loop.call_later(after, begin)
        try:
            yield
        finally:
            timer.cancel()
            if has_begun:
                self._stalls -= 1
                if self._stalls == 0:
                    self._on_stall(False)

    def _reschedule(self, due: float | None) -> None:
        if self._limit is not None and not self._limit.expired():
            with contextlib.suppress(RuntimeError):  # the block has ended, or has just timed out
                self._limit.reschedule(due)


_CURRENT: ContextVar[CaseTimer | None] = ContextVar("toolemu_case_timer", default=None)


def begin(on_stall: Callable[[bool], None] = lambda _: None) -> CaseTimer:
    """Return the timer of this task and of all tasks it starts; create it if there is none."""
    timer = _CURRENT.get() or CaseTimer(on_stall)
    _CURRENT.set(timer)
    return timer


def paused() -> contextlib.AbstractContextManager[None]:
    """Pause the timer of the current case, if any."""
    timer = _CURRENT.get()
    return timer.paused() if timer is not None else contextlib.nullcontext()


def stalled(after: float) -> contextlib.AbstractContextManager[None]:
    """Report the current case, if any, as stalled if the block takes longer than ``after`` seconds.

    The coordinator may start another case meanwhile.
    """
    timer = _CURRENT.get()
    return timer.stalled(after) if timer is not None and after < math.inf else contextlib.nullcontext()
