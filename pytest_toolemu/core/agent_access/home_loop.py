"""The event loop and the context of a case. Calls from other threads, loops, and contexts are executed there."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
from asyncio import get_running_loop, run_coroutine_threadsafe
from collections.abc import Callable, Coroutine
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar

T = TypeVar("T")


class HomeLoop:
    """Where a case runs: the event loop and the context in which this object is created.

    An agent's framework may call tools from its own thread pool, from its own event loop, or from a task that began
    before the case. Executed there, a call would not belong to the case: its waiting times would count against the
    case's time limit, its log lines would be lost, and the emulator's connections would be used on a foreign loop.
    """

    def __init__(self) -> None:
        self._loop = get_running_loop()
        _CURRENT.set(self)
        self._context = copy_context()

    async def run(self, function: Callable[..., Coroutine[Any, Any, T]], *arguments: Any) -> T:
        """Return the result of an ``async`` function that is executed at home. May be awaited on any loop."""
        if _CURRENT.get() is self and get_running_loop() is self._loop:
            return await function(*arguments)
        return await asyncio.wrap_future(self.submit(function, *arguments))

    def submit(self, function: Callable[..., Coroutine[Any, Any, T]], *arguments: Any) -> concurrent.futures.Future[T]:
        """Execute an ``async`` function at home; return a future of its result, for any thread."""
        # The context in which the task is created is the one in which it runs, hence also this call.
        return self._context.copy().run(run_coroutine_threadsafe, function(*arguments), self._loop)

    def call_soon(self, function: Callable[[], object]) -> None:
        """Call a plain function on the loop, from any thread; do nothing if the loop is closed."""
        with contextlib.suppress(RuntimeError):  # an abandoned thread can outlive the loop
            self._loop.call_soon_threadsafe(function)


_CURRENT: ContextVar[HomeLoop | None] = ContextVar("toolemu_home_loop", default=None)
