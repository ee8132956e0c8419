"""The one layer that retries, and the bound on requests in flight."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from pytest_toolemu.errors import ModelError
from pytest_toolemu.exchange import Message, Reply, Schema, ToolSpec
from pytest_toolemu.models.wire import Endpoint

ATTEMPTS: Final = 6
PATIENCE: Final = 180.0
_FIRST: Final = 1.0
_LONGEST: Final = 60.0

_log = logging.getLogger(__name__)


class Limited:
    """A model that waits for a slot, and tries again where that may help.

    ``slots`` is entered around each attempt and sees its exception, so whatever bounds requests fits: a semaphore, one
    shared by all models of a key, or a limit that adapts to refusals. Back-off happens outside of it.
    """

    def __init__(
        self,
        model: Endpoint,
        slots: AbstractAsyncContextManager[Any],
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        draw: Callable[[float, float], float] = random.uniform,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._model = model
        self._slots = slots
        self._sleep = sleep
        self._draw = draw
        self._clock = clock
        self.served = model.served
        self.confirm = model.confirm
        self.aclose = model.aclose

    def __repr__(self) -> str:
        return f"<Limited {self._model!r}>"

    @property
    def identity(self) -> dict[str, Any]:
        """The model's own: waiting changes no answer."""
        return self._model.identity

    async def complete(
        self,
        messages: tuple[Message, ...],
        *,
        tools: tuple[ToolSpec, ...] = (),
        schema: Schema | None = None,
        seed: int | None = None,
    ) -> Reply:
        """At most 6 attempts and 180 s of requests and back-off; waiting for a slot is not counted."""
        spent = 0.0
        for attempt in range(1, ATTEMPTS + 1):
            begun = self._clock()
            try:
                async with self._slots:
                    begun = self._clock()
                    return await self._model.complete(messages, tools=tools, schema=schema, seed=seed)
            except ModelError as error:
                if not error.transient:
                    raise
                failure = error
            spent += self._clock() - begun
            delay = self._delay(attempt, failure.retry_after)
            if attempt == ATTEMPTS or spent + delay > PATIENCE:
                break
            _log.info("%s; attempt %d of %d in %.1f s", failure, attempt + 1, ATTEMPTS, delay)
            await self._sleep(delay)
            spent += delay
        raise ModelError(
            f"{failure} (given up after {attempt} attempts in {spent:.0f} s)",
            status=failure.status,
            transient=True,
            retry_after=failure.retry_after,
        )

    def _delay(self, attempt: int, retry_after: float | None) -> float:
        # Full jitter: clients that failed together do not come back together, not even at the time they were told.
        jitter = self._draw(0.0, min(_LONGEST, _FIRST * 2.0 ** (attempt - 1)))
        return jitter if retry_after is None else retry_after + jitter


def limited(model: Endpoint, concurrency: int) -> Limited:
    """The model with retries, and at most ``concurrency`` requests in flight."""
    return Limited(model, asyncio.Semaphore(concurrency))
