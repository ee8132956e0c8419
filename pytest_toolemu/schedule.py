"""Many cases in flight while pytest runs its items one by one.

A case is a handful of model calls in a row that only wait. So cases run on one event loop in a background thread, some
of them ahead of their item's turn, and an item merely waits for its own result.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

# How long a wait blocks before it looks for Ctrl-C again, in seconds.
_TICK: Final = 0.25


class Schedule(Generic[T]):
    """Runs jobs on a loop of its own, at most ``concurrency`` at once, in the order in which they were submitted."""

    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._jobs: dict[Hashable, Future[T]] = {}
        self._cleanups: list[Callable[[], Awaitable[None]]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._slots: asyncio.Semaphore | None = None

    def on_close(self, cleanup: Callable[[], Awaitable[None]]) -> None:
        """Call this on the loop before it ends, after all jobs."""
        self._cleanups.append(cleanup)

    def submit(self, key: Hashable, job: Callable[[], Coroutine[Any, Any, T]]) -> None:
        """Start a job as soon as a slot is free. A key that is known already changes nothing."""
        if key not in self._jobs:
            self._jobs[key] = self._spawn(self._in_a_slot(job))

    def result(self, key: Hashable) -> T:
        """Wait for a job and forget it, so that the same key can be submitted again, as a rerun does."""
        future = self._jobs.pop(key)
        return self._wait(future)

    def run(self, job: Coroutine[Any, Any, R]) -> R:
        """Run something else on the loop, without a slot, and wait for it."""
        return self._wait(self._spawn(job))

    def close(self) -> None:
        """Cancel what runs, wait until it has ended, clean up, and end the thread."""
        if self._loop is None or self._thread is None:
            return
        self._jobs.clear()
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._loop = self._thread = None

    async def _in_a_slot(self, job: Callable[[], Coroutine[Any, Any, T]]) -> T:
        assert self._slots is not None
        async with self._slots:
            return await job()

    def _spawn(self, job: Coroutine[Any, Any, R]) -> Future[R]:
        return asyncio.run_coroutine_threadsafe(job, self._running_loop())

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._slots = asyncio.Semaphore(self._concurrency)
            # A daemon: whatever happens to pytest, this thread never keeps the process alive.
            self._thread = threading.Thread(target=self._loop.run_forever, name="toolemu-cases", daemon=True)
            self._thread.start()
        return self._loop

    def _wait(self, future: Future[R]) -> R:
        """In short waits: a wait without a limit cannot be interrupted on every platform."""
        try:
            while True:
                try:
                    return future.result(_TICK)
                except NotYet:
                    if future.done():
                        raise
        except BaseException:
            # Ctrl-C, pytest-timeout: nobody waits for this job any more.
            future.cancel()
            raise

    async def _end(self) -> None:
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for cleanup in self._cleanups:
            await cleanup()
