"""An event loop in a daemon thread, which whatever happens never keeps the process alive."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from pathlib import Path
from typing import Any, Final, TypeVar

R = TypeVar("R")

# How long a wait blocks before it looks for Ctrl-C again, and how long cancelled tasks may take to end, in seconds.
TICK: Final = 0.25
_GRACE: Final = 2.0


class Loop:
    """The loop starts with its first use. ``unanswered`` tells how long it has not come round."""

    def __init__(self) -> None:
        self._cleanups: list[Callable[[], Awaitable[None]]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._asked: float | None = None
        self._turn: asyncio.Lock | None = None
        self._starting = threading.Lock()

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

    def run(self, job: Coroutine[Any, Any, R]) -> R:
        """Run something and wait for it, from another thread."""
        return wait(asyncio.run_coroutine_threadsafe(job, self._start()[0]))

    async def apart(self, function: Callable[[], R]) -> R:
        """What a plain function returns, called in a thread beside the loop; one such call after the other."""
        if self._turn is None:
            self._turn = asyncio.Lock()
        async with self._turn:
            return await asyncio.to_thread(function)

    def unanswered(self) -> float:
        """Seconds for which the loop has not answered. To be asked again and again."""
        if self._loop is None:
            return 0.0
        # Read once: the loop's own thread clears it when it answers.
        asked, now = self._asked, time.monotonic()
        if asked is None:
            self._asked = now
            self.call(self._answer)
            return 0.0
        return now - asked

    def place(self) -> str:
        """Where the project's own code is in the loop's thread: ``file:line (function)``; empty if nowhere."""
        frame = sys._current_frames().get(self._thread.ident or 0) if self._thread else None
        while frame is not None:
            path = Path(frame.f_code.co_filename)
            if path.suffix == ".py" and not any(path.is_relative_to(folder) for folder in _NOT_THE_PROJECTS):
                return f"{path.name}:{frame.f_lineno} ({frame.f_code.co_name})"
            frame = frame.f_back
        return ""

    def close(self, hurry: threading.Event | None = None) -> None:
        """Cancel what runs, clean up, and end the thread; what does not end by then is left behind in its daemon.

        Nothing is waited for once ``hurry`` is set.
        """
        atexit.unregister(self.close)
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is None or thread is None or not thread.is_alive():
            return
        ended = asyncio.run_coroutine_threadsafe(self._end(), loop)
        deadline = time.monotonic() + 3 * _GRACE
        while not ended.done():
            if time.monotonic() > deadline or (hurry is not None and hurry.is_set()):
                return
            with contextlib.suppress(NotYet):
                ended.result(TICK / 5)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    def _start(self) -> tuple[asyncio.AbstractEventLoop, threading.Thread]:
        # Several threads may be the first, and none may take a thread for dead that is about to start.
        with self._starting:
            if self._loop is None or self._thread is None:
                loop = _SilentLoop()
                loop.set_default_executor(_DaemonThreads())
                thread = threading.Thread(target=loop.run_forever, name="toolemu-cases", daemon=True)
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
            await asyncio.wait(tasks, timeout=_GRACE)
        for cleanup in self._cleanups:
            await cleanup()


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
