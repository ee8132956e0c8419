"""An event loop in a daemon thread that never keeps the process alive, whatever agents do on it."""

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
from contextvars import copy_context
from pathlib import Path
from types import FrameType
from typing import Any, Final, TypeVar

from pytest_toolemu.formats.text import truncated

R = TypeVar("R")

# A wait blocks for at most this long before it checks for Ctrl-C again, in seconds.
TICK: Final = 0.25
# Canceled tasks may take this long to end, in seconds.
_GRACE: Final = 2.0
# Disks write several files at once in little more time than one.
_WRITERS: Final = 8
_MAX_DESCRIPTION: Final = 200


class CaseLoop:
    """The loop on which the cases of this process run, or a second loop. It starts on first use."""

    def __init__(self, name: str = "toolemu-cases") -> None:
        self._name = name
        self._cleanups: list[Callable[[], Awaitable[None]]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pinged_at: float | None = None
        self._start_lock = threading.Lock()
        self._builder = DaemonThreads("toolemu-apart", 1)
        self._writers = DaemonThreads("toolemu-write", _WRITERS)
        # After ``close``: the tasks that it canceled, and where the loop is blocked if it could not
        self.leftovers: list[str] = []

    def on_close(self, cleanup: Callable[[], Awaitable[None]]) -> None:
        """Run this on the loop before it ends, after all tasks."""
        self._cleanups.append(cleanup)

    @property
    def is_dead(self) -> bool:
        """Whether the loop was ended from within: an agent stopped it, or raised KeyboardInterrupt in a task."""
        return self._thread is not None and not self._thread.is_alive()

    def call(self, function: Callable[..., Any], *args: Any) -> None:
        """Call a function on the loop in its next iteration, in the order of these calls. A closed loop ignores it."""
        loop, thread = self._start()
        if thread is threading.current_thread():
            loop.call_soon(function, *args)
        else:
            with contextlib.suppress(RuntimeError):  # it was closed in the meantime
                loop.call_soon_threadsafe(function, *args)

    def call_now(self, function: Callable[..., Any], *args: Any) -> None:
        """Call a function on the loop; at once if this is its thread, as the next iteration of a busy loop is late."""
        if self._thread is threading.current_thread():
            function(*args)
        else:
            self.call(function, *args)

    def run(self, job: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine and return its result, from another thread."""
        return wait(asyncio.run_coroutine_threadsafe(job, self._start()[0]))

    async def run_in_thread(self, function: Callable[[], R]) -> R:
        """Return the result of a plain function, called in a thread other than the loop's; one such call at a time.

        The thread has the caller's context variables.
        """
        return await asyncio.get_running_loop().run_in_executor(self._builder, copy_context().run, function)

    async def run_writer(self, function: Callable[[], R]) -> R:
        """Return the result of a function that writes a file, called in a thread other than the loop's.

        If the task is canceled, wait until the file is written, so that no half-written file is left.
        """
        writing = asyncio.get_running_loop().run_in_executor(self._writers, function)
        try:
            return await asyncio.shield(writing)
        except asyncio.CancelledError:
            await asyncio.wait([writing])
            raise

    def blocked_seconds(self) -> float:
        """Return for how many seconds the loop has not answered a ping. Each call sends one if none is pending."""
        if self._loop is None:
            return 0.0
        # Read once: the loop's thread clears it when it answers.
        pinged_at, now = self._pinged_at, time.monotonic()
        if pinged_at is None:
            self._pinged_at = now
            self.call(setattr, self, "_pinged_at", None)
            return 0.0
        return now - pinged_at

    def current_location(self) -> str:
        """Return where the loop's thread is in the project's own code: ``file:line (function)``, or nothing."""
        return project_location(sys._current_frames().get(self._thread.ident or 0) if self._thread else None)

    def close(self, no_wait: threading.Event | None = None) -> None:
        """Cancel all tasks, clean up, and end the thread. A task that does not end is left behind in the daemon thread.

        Once ``no_wait`` is set, return at once.
        """
        atexit.unregister(self.close)
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is None or thread is None or not thread.is_alive():
            return
        ended = asyncio.run_coroutine_threadsafe(self._end(), loop)
        deadline = time.monotonic() + 3 * _GRACE
        while not ended.done():
            if time.monotonic() > deadline or (no_wait is not None and no_wait.is_set()):
                if location := project_location(sys._current_frames().get(thread.ident or 0)):
                    self.leftovers.append(f"a task that blocks the event loop at {location}")
                return
            with contextlib.suppress(NotYet):
                ended.result(TICK / 5)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_GRACE)
        if thread.is_alive():  # a task that ignored its cancellation blocks the loop
            return
        loop.close()

    def _start(self) -> tuple[asyncio.AbstractEventLoop, threading.Thread]:
        # Several threads may use the loop first, and none may see the thread between its creation and its start.
        with self._start_lock:
            if self._loop is None or self._thread is None:
                loop = _SilentLoop()
                # For ``asyncio.to_thread`` in agents. The number of running cases bounds the number of threads.
                loop.set_default_executor(DaemonThreads("toolemu-call", sys.maxsize))
                thread = threading.Thread(target=loop.run_forever, name=self._name, daemon=True)
                thread.start()
                self._loop, self._thread = loop, thread
                # A process may be interrupted before ``close``; a loop that still runs then prints a warning.
                atexit.register(self.close)
            return self._loop, self._thread

    async def _end(self) -> None:
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        codes = {task: getattr(task.get_coro(), "cr_code", None) for task in tasks}
        own = [task for task, code in codes.items() if not (code and Path(code.co_filename).is_relative_to(_PACKAGE))]
        self.leftovers = sorted(map(_description, own))
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_GRACE)
        for cleanup in self._cleanups:
            await cleanup()


def project_location(frame: FrameType | None) -> str:
    """Return the innermost location in the project's own code, as ``file:line (function)``; empty if there is none."""
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.suffix == ".py" and not any(path.is_relative_to(folder) for folder in _FOREIGN_FOLDERS):
            return f"{path.name}:{frame.f_lineno} ({frame.f_code.co_name})"
        frame = frame.f_back
    return ""


def wait(future: Future[R]) -> R:
    """Return a future's result, waiting in short steps: a wait without a limit cannot be interrupted on Windows."""
    try:
        while True:
            try:
                return future.result(TICK)
            except NotYet:
                if future.done():
                    raise
    except BaseException:
        # Ctrl-C or pytest-timeout: the result is not needed any more.
        future.cancel()
        raise


def _description(task: asyncio.Task[Any]) -> str:
    """Return the name of a task, its coroutine, and where it waits."""
    frames = task.get_stack(limit=1)
    location = f" at {Path(frames[0].f_code.co_filename).name}:{frames[0].f_lineno}" if frames else ""
    coroutine = getattr(task.get_coro(), "__qualname__", "a coroutine")
    return truncated(" ".join(f"task {task.get_name()!r}{location} ({coroutine})".split()), _MAX_DESCRIPTION)


_PACKAGE: Final = Path(__file__).parents[1]
# Installed packages, the standard library, and this one.
_FOREIGN_FOLDERS: Final = (
    _PACKAGE,
    Path(asyncio.__file__).parents[1],
    *(Path(path) for path in sys.path if path.endswith(("site-packages", "dist-packages"))),
)


class _SilentLoop(asyncio.SelectorEventLoop):
    """A loop without asyncio's warning about a loop that is still running when Ctrl-C ends the process."""

    def __del__(self) -> None:
        """Do nothing: the operating system closes the file descriptors of a process that ends."""


class DaemonThreads(ThreadPoolExecutor):
    """A thread pool that never keeps the process alive. Python waits for threads of other pools, even if they hang."""

    def __init__(self, name: str, max_threads: int) -> None:
        super().__init__(1)
        self._name = name
        self._free = threading.Semaphore(max_threads)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run the call in a thread of its own, as soon as fewer than the greatest number of threads run."""
        future: Future[Any] = Future()

        def call() -> None:
            with self._free:
                if future.set_running_or_notify_cancel():
                    try:
                        future.set_result(fn(*args, **kwargs))
                    except BaseException as error:
                        future.set_exception(error)

        threading.Thread(target=call, name=self._name, daemon=True).start()
        return future
