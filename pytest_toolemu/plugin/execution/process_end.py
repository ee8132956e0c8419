"""How a process of a session with cases ends: termination signals, and the threads and processes that agents left."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from time import monotonic
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from psutil import Process

_REMEDY: Final = "end them before the agent returns, or wait longer with toolemu_exit_timeout"
# Helpers of multiprocessing, which end by themselves when this process does.
_HELPERS: Final = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
_COMMAND_LENGTH: Final = 120
# A message names this many.
_MOST: Final = 5
# Seconds that a process has to end after SIGTERM, before SIGKILL.
TERMINATION_SECONDS = 1.0
_TICK: Final = 0.1
_POOL: Final = os.path.join("concurrent", "futures", "thread.py")  # noqa: PTH118 - compared with the end of a text
# Signals within so many seconds are one: timeout(1) sends SIGTERM twice, a terminal and its shell both send SIGHUP.
_AT_ONCE: Final = 1.0
_TERMINATIONS: Final = (signal.SIGTERM, signal.SIGHUP) if sys.platform != "win32" else ()


class Signals:
    """Makes SIGTERM and SIGHUP end a session like Ctrl-C: a canceled CI job, an evicted pod, a closed terminal.

    ``hurry`` is set when the user does not want to wait any longer.
    """

    def __init__(self, *, is_worker: bool) -> None:
        self.hurry = threading.Event()
        self._is_worker = is_worker
        self._is_ending = False
        self._received: float | None = None
        self._before: dict[int, Any] = {}

    def handle_termination(self) -> None:
        """Install the handlers, once: in the main thread, for signals that are neither handled nor ignored."""
        if threading.current_thread() is threading.main_thread():
            for number in _TERMINATIONS:
                if signal.getsignal(number) is signal.SIG_DFL:
                    self._before[number] = signal.signal(number, self._terminate)

    def begin_end(self) -> None:
        """Let signals interrupt nothing from now on, because the session writes its records and its summary."""
        self._is_ending = True

    def hurry_on_interrupt(self) -> None:
        """Let the next Ctrl-C only set ``hurry``; the one after it interrupts as usual."""
        with contextlib.suppress(ValueError):  # not the main thread
            self._before[signal.SIGINT] = signal.signal(signal.SIGINT, self._interrupt)

    def restore(self) -> None:
        """Restore the former handlers, unless other code has installed its own meanwhile."""
        for number, handler in self._before.items():
            if signal.getsignal(number) in (self._terminate, self._interrupt):
                signal.signal(number, handler)
        self._before.clear()

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        del frame
        self.hurry.set()
        signal.signal(number, self._before.pop(number))

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        """Interrupt the session; the second time, set ``hurry``. A worker is stopped by its controller."""
        del frame
        before, self._received = self._received, monotonic()
        if before is not None and self._received - before < _AT_ONCE:
            return
        if before is not None or (self._is_ending and not self._is_worker):
            self.hurry.set()
        elif not self._is_worker:
            self._is_ending = True
            raise KeyboardInterrupt(f"{signal.Signals(number).name} received")


class ProcessEnd:
    """Bounds the time that the process takes to end, even if the tested agents left threads or processes behind.

    Python does not record who started a thread or a process. Everything counts as an agent's unless it existed before
    the cases, or appeared while a fixture of the project was set up. ``report`` shows a message at the very end.
    """

    def __init__(self, seconds: float, hurry: threading.Event, report: Callable[[str], None]) -> None:
        self._seconds = seconds
        self._hurry = hurry
        self._report = report
        self._is_finished = False
        self._known = {*threading.enumerate(), *_children()}

    @contextlib.contextmanager
    def exempt(self) -> Iterator[None]:
        """Exempt the threads and processes that appear inside this block."""
        before = {*threading.enumerate(), *_children()}
        try:
            yield
        finally:
            self._known |= {*threading.enumerate(), *_children()} - before

    def finish(self, status: int) -> None:
        """Give leftovers their time, name those that used it up, and terminate the processes. Once.

        If a thread is still running, the process ends with ``status`` as soon as Python begins to wait for it.
        """
        if self._is_finished:
            return
        self._is_finished = True
        deadline = monotonic() + self._seconds
        threads, processes = self._leftovers()
        with contextlib.suppress(KeyboardInterrupt):  # the user does not want to wait
            while (threads or processes) and monotonic() < deadline and not self._hurry.wait(_TICK):
                threads, processes = self._leftovers()
        if not (threads or processes):
            return
        texts = [*map(_thread_text, threads), *map(_process_text, processes)]
        self._report(f"left behind by agents and still running after {self._seconds:g} s: {listed(texts)}; {_REMEDY}")
        self._terminate()
        if threads:
            # Private, but there since Python 3.9, as concurrent.futures relies on it. It is called when the interpreter
            # begins to end; all that is public comes too late, after the wait for threads.
            vars(threading)["_register_atexit"](functools.partial(self._exit, threads, status))

    def _leftovers(self) -> tuple[list[threading.Thread], list[Process]]:
        """Return the agents' threads for which Python would wait, and their processes."""
        threads = [thread for thread in threading.enumerate() if _blocks_exit(thread) and thread not in self._known]
        return threads, [process for process in _children() if process not in self._known]

    def _terminate(self) -> None:
        """End the processes with SIGTERM, and those that ignore it or started since then with SIGKILL."""
        from psutil import Error, wait_procs

        for end in ("terminate", "kill"):
            _, processes = self._leftovers()
            for process in processes:
                with contextlib.suppress(Error):
                    getattr(process, end)()
            wait_procs(processes, TERMINATION_SECONDS)

    def _exit(self, threads: list[threading.Thread], status: int) -> None:
        """End the process although these threads run, after other threads and what is registered with ``atexit``."""
        for thread in threading.enumerate():
            if _blocks_exit(thread) and thread not in threads:
                thread.join()
        if any(thread.is_alive() for thread in threads):
            atexit._run_exitfuncs()
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(AttributeError, OSError, ValueError):
                    stream.flush()
            os._exit(status)


def listed(names: list[str]) -> str:
    """Join the first names, and count the others."""
    more = len(names) - _MOST
    return ", ".join(names[:_MOST]) + (f" and {more} more" if more > 0 else "")


def _children() -> list[Process]:
    """Return the running descendants of this process, without helpers that end with it."""
    from psutil import STATUS_ZOMBIE, Error
    from psutil import Process as PsProcess

    children = []
    for process in PsProcess().children(recursive=True):
        with contextlib.suppress(Error):
            if process.status() != STATUS_ZOMBIE and not any(name in _command(process) for name in _HELPERS):
                children.append(process)
    return children


def _command(process: Process) -> str:
    return " ".join(process.cmdline())


def _process_text(process: Process) -> str:
    from psutil import Error

    try:
        return f"process {process.pid}: {' '.join(_command(process).split())[:_COMMAND_LENGTH]}"
    except Error:
        return f"process {process.pid}"


def _thread_text(thread: threading.Thread) -> str:
    from pytest_toolemu.scheduling.event_loop import project_location

    frame = sys._current_frames().get(thread.ident or 0)
    return f"thread {thread.name!r} at {project_location(frame) or 'code outside the project'}"


def _blocks_exit(thread: threading.Thread) -> bool:
    """Return whether Python waits for the thread when it ends: unless it is a daemon, or an idle thread of a pool."""
    if thread is threading.main_thread():
        return False
    frame = innermost = sys._current_frames().get(thread.ident or 0)
    while frame is not None:
        if frame.f_code.co_name == "_worker" and frame.f_code.co_filename.endswith(_POOL):
            return frame is not innermost  # also for a daemon: concurrent.futures waits for what a pool is doing
        frame = frame.f_back
    return not thread.daemon
