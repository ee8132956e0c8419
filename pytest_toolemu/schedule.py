"""Many cases in flight while pytest runs its items one by one.

A case is a handful of model calls in a row that only wait. So cases run on one event loop in a background thread, some
of them ahead of their item's turn, and an item merely waits for its own result.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from typing import Any, Final, Generic, TypeVar

from pytest_toolemu.errors import UsageError

T = TypeVar("T")
R = TypeVar("R")

# How long a wait blocks before it looks for Ctrl-C again, and how long cancelled jobs may take to end, in seconds.
_TICK: Final = 0.25
_GRACE: Final = 2.0


class Schedule(Generic[T]):
    """Runs jobs on a loop of its own, at most ``concurrency`` at once, in the order in which they were submitted.

    A job ends itself in time. One that is not over ``patience`` seconds after its start blocks the loop, or ignores
    that it was cancelled; whoever waits for it is told so.
    """

    def __init__(self, concurrency: int, patience: float) -> None:
        self._concurrency = concurrency
        self._patience = patience
        self._jobs: dict[Hashable, Future[T]] = {}
        self._started: dict[Hashable, float] = {}
        self._unanswered: float | None = None
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
            self._started.pop(key, None)
            self._jobs[key] = self._spawn(self._in_a_slot(key, job))

    def result(self, key: Hashable) -> T:
        """Wait for a job and forget it, so that the same key can be submitted again, as a rerun does.

        UsageError when the job does not end though its time is up.
        """
        return self._wait(self._jobs.pop(key), key)

    def run(self, job: Coroutine[Any, Any, R]) -> R:
        """Run something else on the loop, without a slot, and wait for it."""
        return self._wait(self._spawn(job))

    def close(self) -> None:
        """Cancel what runs, clean up, and end the thread; what does not end by then is left behind in its daemon."""
        atexit.unregister(self.close)
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        self._jobs.clear()
        if loop is None or thread is None or not thread.is_alive():
            return
        try:
            asyncio.run_coroutine_threadsafe(self._end(), loop).result(3 * _GRACE)
        except NotYet:
            return
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    async def _in_a_slot(self, key: Hashable, job: Callable[[], Coroutine[Any, Any, T]]) -> T:
        assert self._slots is not None
        async with self._slots:
            self._started[key] = time.monotonic()
            return await job()

    def _spawn(self, job: Coroutine[Any, Any, R]) -> Future[R]:
        return asyncio.run_coroutine_threadsafe(job, self._running_loop())

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = _Loop()
            self._loop.set_default_executor(_DaemonThreads())
            self._slots = asyncio.Semaphore(self._concurrency)
            # A daemon: whatever happens to pytest, this thread never keeps the process alive.
            self._thread = threading.Thread(target=self._loop.run_forever, name="toolemu-cases", daemon=True)
            self._thread.start()
            # For a process that is interrupted before anybody closes this: a running loop complains when it dies.
            atexit.register(self.close)
        return self._loop

    def _wait(self, future: Future[R], key: Hashable = None) -> R:
        """In short waits: a wait without a limit cannot be interrupted on every platform."""
        try:
            while True:
                try:
                    return future.result(_TICK)
                except NotYet:
                    if future.done():
                        raise
                    self._check_alive(key)
        except BaseException:
            # Ctrl-C, pytest-timeout: nobody waits for this job any more.
            future.cancel()
            raise

    def _check_alive(self, key: Hashable) -> None:
        """UsageError when the loop does not answer, is gone, or the job is long overdue."""
        now = time.monotonic()
        if self._loop is None or self._thread is None or not self._thread.is_alive():
            raise UsageError(
                "the loop that runs cases has ended: an agent stopped it, or raised KeyboardInterrupt in a task"
            )
        # Read once: the loop's own thread clears it when it answers.
        unanswered = self._unanswered
        if unanswered is None:
            unanswered = self._unanswered = now
            self._loop.call_soon_threadsafe(self._answer)
        if now - min(unanswered, self._started.get(key, now)) > self._patience:
            raise UsageError(
                f"a case has not ended after {self._patience:g} s: its agent blocks the event loop (a blocking call in "
                "an async function; use a plain 'def', which runs in a thread) or ignores that it was cancelled"
            )

    def _answer(self) -> None:
        self._unanswered = None

    async def _end(self) -> None:
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_GRACE)
        for cleanup in self._cleanups:
            await cleanup()


class _Loop(asyncio.SelectorEventLoop):
    """A loop that dies in silence: a process that Ctrl-C ends may leave it running, of which asyncio complains."""

    def __del__(self) -> None:
        """Nothing: the process is ending, and its descriptors with it."""


class _DaemonThreads(ThreadPoolExecutor):
    """For ``asyncio.to_thread`` in an agent: the usual pool's threads would keep the process alive until they end."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run the call in a thread of its own; cases in flight bound their number."""
        future: Future[Any] = Future()

        def work() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(fn(*args, **kwargs))
                except BaseException as error:
                    future.set_exception(error)

        threading.Thread(target=work, name="toolemu-call", daemon=True).start()
        return future
