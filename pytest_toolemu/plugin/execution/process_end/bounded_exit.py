"""Bounds the time that the process takes to end, even if the tested agents left threads or processes behind.

When pytest has finished, agents' threads and processes get a few seconds to end by themselves. The rest is named, and
the processes are terminated. A thread, or a function registered with ``atexit``, may block the interpreter even then.
The interpreter is therefore interrupted, as Ctrl-C would do, so that it keeps its exit status and still calls the other
``atexit`` functions, such as those that write coverage data. If even that does not help, the process ends at once.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import signal
import sys
import threading
from collections.abc import Callable
from threading import Thread

# Bound now: an agent may replace these functions in their modules.
from time import monotonic, sleep
from types import FrameType
from typing import Final, NoReturn

from pytest_toolemu.plugin.execution.process_end.leftovers import Leftovers, described, place_of
from pytest_toolemu.scheduling.event_loop import project_location

_TICK: Final = 0.05

# How often, and how many seconds apart, the main thread is interrupted before the process ends at once.
_INTERRUPTIONS: Final = 3
_SECONDS_APART: Final = 0.5

# pytest's status for internal errors.
_UNFINISHED: Final = 3

_REMEDY: Final = "end them before the agent returns, or wait longer with --toolemu-exit-timeout"

# A message names this many.
_MOST: Final = 5


class _Interruption(BaseException):
    """Ends what the main thread does while the interpreter is ending."""


class BoundedExit:
    """Limits the time that the end of this process takes. Must be created before the code of agents is imported.

    ``hurry`` is set when the user does not want to wait; ``status`` returns the exit status of the session; ``report``
    shows a message at the very end.
    """

    def __init__(
        self, seconds: float, hurry: threading.Event, status: Callable[[], int], report: Callable[[str], None]
    ) -> None:
        self.leftovers = Leftovers()
        self._seconds = seconds
        self._hurry_up = hurry
        self._status = status
        self._report = report
        self._is_finished = self._has_named_threads = False
        self._is_exiting = threading.Event()
        self._agents_are_done = threading.Event()
        self._hung: FrameType | None = None
        self._is_hurrying = False
        self._reported: set[str] = set()
        # The interpreter calls the last registered function first, so this comes after those of agents.
        atexit.register(self._agents_are_done.set)
        self._exit = os._exit
        os._exit = functools.partial(self._end_process, os.getpid())

    def finish(self) -> None:
        """Give leftovers their time, name those that used it up, and terminate the processes. Once."""
        if self._is_finished:
            return
        self._is_finished = True
        os._exit = self._exit
        deadline = monotonic() + self._seconds
        threads, processes = self.leftovers.threads(), self.leftovers.processes()
        with contextlib.suppress(KeyboardInterrupt):  # the user does not want to wait
            while (threads or processes) and monotonic() < deadline and not self._hurry_up.is_set():
                sleep(_TICK)
                threads, processes = self.leftovers.threads(), self.leftovers.processes()
        self._has_named_threads = bool(threads)
        if culprits := described(threads, processes):
            self._report(
                f"left behind by agents and still running after {self._seconds:g} s: {listed(culprits)}; {_REMEDY}"
            )
        if processes:
            self.leftovers.terminate()
        self.leftovers.close()
        # No thread can be started any more when the interpreter has begun to end.
        Thread(target=self._watch, name="toolemu-end", daemon=True).start()
        # Private, but there since Python 3.9, as concurrent.futures relies on it. It is called when the interpreter
        # begins to end; all that is public comes too late, after the wait for threads.
        vars(threading)["_register_atexit"](self._begin_exit)

    def _end_process(self, pid: int, status: int) -> NoReturn:
        """Exit as ``os._exit`` does, but never with success while the session runs: its cases have not been judged."""
        if status == 0 and os.getpid() == pid:
            location = place_of(sys._getframe(1))
            self._report(f"os._exit(0) ended the process {location} before the session was over; exit status 3")
            status = _UNFINISHED
        self._exit(status)

    # ---- while the interpreter ends

    def _begin_exit(self) -> None:
        """Prepare the main thread for interruptions, which it does not report as errors."""
        with contextlib.suppress(ValueError):  # not the main thread
            signal.signal(signal.SIGINT, self._interrupt)
        report = sys.unraisablehook
        sys.unraisablehook = lambda error: None if error.exc_type is _Interruption else report(error)
        self._is_exiting.set()

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        del number
        if not self._is_hurrying:
            raise KeyboardInterrupt
        if _outermost(frame) is self._hung:
            raise _Interruption

    def _watch(self) -> None:
        """Interrupt what blocks the interpreter once all of it together has used up its time."""
        self._is_exiting.wait()
        remaining, last, due = self._seconds, monotonic(), 0.0
        step, interruptions = _main_frame(), 0
        while True:
            sleep(_TICK if remaining > 0 else _TICK / 10)
            now, before, step = monotonic(), step, _main_frame()
            culprits = self._culprits(step)
            remaining -= (now - last) * bool(culprits)
            last = now
            interruptions *= step is before
            has_had_its_time = remaining <= 0 or (self._has_named_threads and _waits_for_threads(step))
            if culprits and has_had_its_time and (not interruptions or now > due):
                self._hurry(step, culprits, interruptions)
                interruptions, due = interruptions + 1, now + _SECONDS_APART

    def _culprits(self, step: FrameType | None) -> str:
        """Name what blocks the interpreter if an agent started it; return nothing if it must not be interrupted."""
        if _waits_for_threads(step):
            # Other threads may be writing results; only the user may interrupt that.
            return "" if self.leftovers.other_threads() else listed(described(self.leftovers.threads(), ()))
        if self._agents_are_done.is_set() and not project_location(step):
            return ""
        return f"a function registered with atexit, {place_of(_innermost())}"

    def _hurry(self, step: FrameType | None, culprits: str, interruptions: int) -> None:
        if culprits not in self._reported and not (self._has_named_threads and _waits_for_threads(step)):
            self._reported.add(culprits)
            self._report(f"agents have kept Python from exiting for {self._seconds:g} s: {culprits}; {_REMEDY}")
        if interruptions >= _INTERRUPTIONS or not hasattr(signal, "pthread_kill"):
            self._exit(self._status())
        self._hung, self._is_hurrying = step, True
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def listed(culprits: list[str]) -> str:
    """Join the first culprits, and count the others."""
    more = len(culprits) - _MOST
    return ", ".join(culprits[:_MOST]) + (f" and {more} more" if more > 0 else "")


def _innermost() -> FrameType | None:
    return sys._current_frames().get(threading.main_thread().ident or 0)


def _main_frame() -> FrameType | None:
    """Return the outermost frame of the main thread; None while it runs no Python code."""
    return _outermost(_innermost())


def _outermost(frame: FrameType | None) -> FrameType | None:
    while frame is not None and frame.f_back is not None:
        frame = frame.f_back
    return frame


def _waits_for_threads(step: FrameType | None) -> bool:
    """Return whether the interpreter waits for threads, which it does before it calls ``atexit`` functions."""
    return step is not None and step.f_code is vars(threading)["_shutdown"].__code__
