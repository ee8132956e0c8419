"""The time that a case has run, and whether it is held up.

What it waited for leave to send a request, or backed off, is not counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from asyncio import get_running_loop, timeout
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import ContextVar


class CaseTimer:
    """The clock of one case, running from its making. Belongs to the event loop of the case.

    ``held`` is told when the case begins and ceases to be held up.
    """

    def __init__(self, held: Callable[[bool], None]) -> None:
        self._loop = get_running_loop()
        self._held = held
        self._holds = 0
        self._begun = self._loop.time()
        self._waited = 0.0
        self._pauses = 0
        self._paused_at = 0.0
        self._limit: asyncio.Timeout | None = None
        self._due: float | None = None

    @property
    def seconds(self) -> float:
        """Seconds so far, without the pauses. May be asked from any thread."""
        now = self._paused_at if self._pauses else self._loop.time()
        return now - self._begun - self._waited

    @contextlib.asynccontextmanager
    async def limit(self, seconds: float) -> AsyncIterator[asyncio.Timeout]:
        """As ``asyncio.timeout``, but for the pauses."""
        async with timeout(seconds) as self._limit:
            yield self._limit

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """The clock stands still. Of several requests at once, one that waits is enough."""
        self._pauses += 1
        if self._pauses == 1:
            self._paused_at = self._loop.time()
            self._due = self._limit and self._limit.when()
            self._move(None)
        try:
            yield
        finally:
            self._pauses -= 1
            if self._pauses == 0:
                waited = self._loop.time() - self._paused_at
                self._waited += waited
                self._move(None if self._due is None else self._due + waited)

    @contextlib.contextmanager
    def held_up(self, after: float) -> Iterator[None]:
        """The case is held up from so many seconds on until the block ends. One of several blocks at once is enough."""
        begun = False

        def begin() -> None:
            nonlocal begun
            begun = True
            self._holds += 1
            if self._holds == 1:
                self._held(True)

        timer = self._loop.call_later(after, begin)
        try:
            yield
        finally:
            timer.cancel()
            if begun:
                self._holds -= 1
                if self._holds == 0:
                    self._held(False)

    def _move(self, due: float | None) -> None:
        if self._limit is not None and not self._limit.expired():
            with contextlib.suppress(RuntimeError):  # its block is over, or the time was up just now
                self._limit.reschedule(due)


_CURRENT: ContextVar[CaseTimer | None] = ContextVar("toolemu_clock", default=None)


def _nobody(held: bool) -> None:
    del held


def begin(held: Callable[[bool], None] = _nobody) -> CaseTimer:
    """The clock of this task and all that it starts: the one there is, or a new one."""
    clock = _CURRENT.get() or CaseTimer(held)
    _CURRENT.set(clock)
    return clock


def paused() -> contextlib.AbstractContextManager[None]:
    """The clock of the case in which this is called stands still, where there is one."""
    clock = _CURRENT.get()
    return clock.paused() if clock is not None else contextlib.nullcontext()


def held_up(after: float) -> contextlib.AbstractContextManager[None]:
    """The case in which this is called, where there is one, is held up if the block takes longer than that, in seconds.

    Whoever leads the session may run another instead meanwhile.
    """
    clock = _CURRENT.get()
    return clock.held_up(after) if clock is not None and after < math.inf else contextlib.nullcontext()
