"""An event loop in a daemon thread, which whatever happens never keeps the process alive."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import sys
import threading
from asyncio import get_running_loop, run_coroutine_threadsafe, shield
from asyncio import wait as asyncio_wait
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from time import monotonic
from types import FrameType
from typing import Any, Final, TypeVar

R = TypeVar("R")

# How long a wait blocks before it looks for Ctrl-C again, and how long cancelled tasks may take to end, in seconds.
TICK: Final = 0.25
_GRACE: Final = 2.0

# Disks take several files at once in little more time than one.
_WRITERS: Final = 8


class CaseLoop:
    """The loop starts with its first use. ``unanswered`` tells how long it has not come round."""

    def __init__(self) -> None:
        self._cleanups: list[Callable[[], Awaitable[None]]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._asked: float | None = None
        self._starting = threading.Lock()
        self._apart = _DaemonThreads("toolemu-apart", 1)
        self._writers = _DaemonThreads("toolemu-write", _WRITERS)

    def on_close(self, cleanup: Callable[[], Awaitable[None]]) -> None:
        """Call this on the loop before it ends, after all tasks."""
        self._cleanups.append(cleanup)

    @property
    def is_dead(self) -> bool:
        """Whether somebody has ended the loop: an agent that stopped it, or raised KeyboardInterrupt in a task."""
        return self._thread is not None and not self._thread.is_alive()

    def call(self, function: Callable[..., Any], *args: Any) -> None:
        """Call a function on the loop when it comes round, in the order of these calls. Nothing once it is gone."""
        loop, thread = self._start()
        if thread is threading.current_thread():
            loop.call_soon(function, *args)
        else:
            with contextlib.suppress(RuntimeError):  # closed meanwhile
                loop.call_soon_threadsafe(function, *args)

    def reach(self, function: Callable[..., Any], *args: Any) -> None:
        """Call a function on the loop: now, where this is its thread. A busy loop comes round late."""
        if self._thread is threading.current_thread():
            function(*args)
        else:
            self.call(function, *args)

    def run(self, job: Coroutine[Any, Any, R]) -> R:
        """Run something and wait for it, from another thread."""
        return wait(run_coroutine_threadsafe(job, self._start()[0]))

    async def apart(self, function: Callable[[], R]) -> R:
        """What a plain function returns, called in a thread beside the loop; one such call after the other."""
        return await get_running_loop().run_in_executor(self._apart, function)

    async def written(self, function: Callable[[], R]) -> R:
        """What a function returns that writes a file, called beside the loop, to its end also when cancelled."""
        writing = get_running_loop().run_in_executor(self._writers, function)
        try:
            return await shield(writing)
        except asyncio.CancelledError:
            await asyncio_wait([writing])
            raise

    def unanswered(self) -> float:
        """Seconds for which the loop has not answered. To be asked again and again."""
        if self._loop is None:
            return 0.0
        # Read once: the loop's own thread clears it when it answers.
        asked, now = self._asked, monotonic()
        if asked is None:
            self._asked = now
            self.call(self._answer)
            return 0.0
        return now - asked

    def place(self) -> str:
        """Where the project's own code is in the loop's thread: ``file:line (function)``; empty if nowhere."""
        return project_place(sys._current_frames().get(self._thread.ident or 0) if self._thread else None)

    def close(self, hurry: threading.Event | None = None) -> None:
        """Cancel what runs, clean up, and end the thread; what does not end by then is left behind in its daemon.

        Nothing is waited for once ``hurry`` is set.
        """
        atexit.unregister(self.close)
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is None or thread is None or not thread.is_alive():
            return
        ended = run_coroutine_threadsafe(self._end(), loop)
        deadline = monotonic() + 3 * _GRACE
        while not ended.done():
            if monotonic() > deadline or (hurry is not None and hurry.is_set()):
                return
            with contextlib.suppress(NotYet):
                ended.result(TICK / 5)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_GRACE)
        if thread.is_alive():  # a task that ignored its cancellation blocks the loop
            return
        loop.close()
        for helpers in (self._apart, self._writers):
            helpers.shutdown()

    def _start(self) -> tuple[asyncio.AbstractEventLoop, threading.Thread]:
        # Several threads may be the first, and none may take a thread for dead that is about to start.
        with self._starting:
            if self._loop is None or self._thread is None:
                loop = _SilentLoop()
                # For ``asyncio.to_thread`` in an agent; cases in flight bound the number of threads.
                loop.set_default_executor(_DaemonThreads("toolemu-call", sys.maxsize))
                thread = Thread(target=loop.run_forever, name="toolemu-cases", daemon=True)
                thread.start()
                self._loop, self._thread = loop, thread
                # For a process that is interrupted before anybody closes this: a running loop complains when it dies.
                atexit.register(self.close)
            return self._loop, self._thread

    def _answer(self) -> None:
        self._asked = None

    async def _end(self) -> None:
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio_wait(tasks, timeout=_GRACE)
        for cleanup in self._cleanups:
            await cleanup()


def project_place(frame: FrameType | None) -> str:
    """Return the innermost place in the project's own code, as ``file:line (function)``; empty if there is none."""
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.suffix == ".py" and not any(path.is_relative_to(folder) for folder in _NOT_THE_PROJECTS):
            return f"{path.name}:{frame.f_lineno} ({frame.f_code.co_name})"
        frame = frame.f_back
    return ""


def wait(future: Future[R]) -> R:
    """In short waits: a wait without a limit cannot be interrupted on every platform."""
    try:
        while True:
            try:
                return future.result(TICK)
            except NotYet:
                if future.done():
                    raise
    except BaseException:
        # Ctrl-C, pytest-timeout: nobody waits for this any more.
        future.cancel()
        raise


# Installed packages, the standard library and this one.
_NOT_THE_PROJECTS: Final = (
    Path(__file__).parents[1],
    Path(asyncio.__file__).parents[1],
    *(Path(path) for path in sys.path if path.endswith(("site-packages", "dist-packages"))),
)


class _SilentLoop(asyncio.SelectorEventLoop):
    """A loop that dies in silence: a process that Ctrl-C ends may leave it running, of which asyncio complains."""

    def time(self) -> float:
        """Return the time of the clock that was there when the loop was made, whatever an agent puts in its place."""
        return monotonic()

    def __del__(self) -> None:
        """Nothing: the process is ending, and its descriptors with it."""


class _DaemonThreads(ThreadPoolExecutor):
    """A pool whose threads do not keep the process alive: the usual one's are waited for, whatever they hang in."""

    def __init__(self, name: str, most: int) -> None:
        super().__init__(1)
        self._name = name
        self._most = most
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._free = threading.Semaphore(0)
        self._started = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run the call in a thread that is free, or a new one, or when one becomes free."""
        future: Future[Any] = Future()

        def call() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(fn(*args, **kwargs))
                except BaseException as error:
                    future.set_exception(error)

        self._calls.put(call)
        if not self._free.acquire(blocking=False) and self._started < self._most:
            self._started += 1
            Thread(target=self._work, name=self._name, daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let the threads end when they have done what they were given; nobody waits for them."""
        del wait, cancel_futures
        for _ in range(self._started):
            self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
            self._free.release()
