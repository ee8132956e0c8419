"""SIGTERM and SIGHUP end a session like Ctrl-C: a canceled CI job, an evicted pod, a closed terminal."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sys
import threading

# Bound now: an agent may replace these.
from threading import Thread
from time import monotonic, sleep
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

# Signals within so many seconds are one: timeout(1) sends SIGTERM twice, a terminal and its shell both send SIGHUP.
_AT_ONCE: Final = 1.0
# A callback that an interrupt has ended may take so many seconds until it has returned.
_CALLBACK: Final = 0.02
_TERMINATIONS: Final = (signal.SIGTERM, signal.SIGHUP) if sys.platform != "win32" else ()


class Signals:
    """The signal handlers of a session with cases. ``hurry`` is set when the user does not want to wait any longer."""

    def __init__(self, hurry: threading.Event, *, is_worker: bool) -> None:
        self._hurry = hurry
        self._is_worker = is_worker
        self._is_ending = False
        self._is_installed = False
        self._is_over = False
        self._last: float | None = None
        self._count = 0
        self._before: dict[int, Any] = {}
        self._report_unraisable = sys.unraisablehook

    def handle_termination(self) -> None:
        """Install the handlers, once: in the main thread, on POSIX, for signals that are neither handled nor ignored.

        The first signal interrupts the session, the second one sets ``hurry``, the third one ends the process. A worker
        leaves the first one to the controller, which tells its workers to stop.
        """
        if sys.platform == "win32" or threading.current_thread() is not threading.main_thread() or self._is_installed:
            return
        self._is_installed = True
        self._report_unraisable, sys.unraisablehook = sys.unraisablehook, self._repeat_lost_interrupt
        _guard_forks()
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
        """Restore the former handlers, unless other code has installed its own meanwhile.

        A worker keeps its hook for lost interrupts, because it may end, and search for garbage, while others run cases.
        """
        for number, handler in self._before.items():
            if signal.getsignal(number) in (self._terminate, self._interrupt):
                signal.signal(number, handler)
        self._before.clear()
        self._is_over = True
        if sys.unraisablehook == self._repeat_lost_interrupt and not self._is_worker:
            sys.unraisablehook = self._report_unraisable

    def _repeat_lost_interrupt(self, error: UnraisableHookArgs) -> None:
        """Interrupt the main thread again: Python raised KeyboardInterrupt in a callback and ignores what those raise.

        Callbacks of weak references and ``__del__`` run at any time, most of them while garbage is collected. Once the
        session is over, or a worker's part of it, there is nothing to interrupt.
        """
        if not issubclass(error.exc_type, KeyboardInterrupt) or threading.current_thread() != threading.main_thread():
            self._report_unraisable(error)
        elif self._can_be_interrupted():
            Thread(target=self._interrupt_soon, name="toolemu-interrupt", daemon=True).start()

    def _can_be_interrupted(self) -> bool:
        return not (self._is_over or (self._is_worker and self._is_ending))

    def _interrupt_soon(self) -> None:
        sleep(_CALLBACK)
        if self._can_be_interrupted():
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        del frame
        self._hurry.set()
        signal.signal(number, self._before.pop(number))

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        del frame
        now = monotonic()
        is_repeated = self._last is not None and now - self._last < _AT_ONCE
        if not is_repeated:
            self._last = now
            self._count += 1
            self._react(number)

    def _react(self, number: int) -> None:
        if self._count > 2:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        elif self._count > 1 or (self._is_ending and not self._is_worker):
            self._hurry.set()
        elif not self._is_worker:
            self._is_ending = True
            raise KeyboardInterrupt(f"{signal.Signals(number).name} received")


# ---- forked children, which end by these signals as usual


@functools.cache
def _guard_forks() -> None:
    """Give forked children the default handlers, and let no signal get lost before they have them. Once in a process.

    multiprocessing terminates its children with SIGTERM, and Python forgets a signal that arrives while it forks.
    """
    os.register_at_fork(before=_block, after_in_parent=_unblock, after_in_child=_forget)


_masks = threading.local()


def _block() -> None:
    _masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, _TERMINATIONS)


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _masks.before)


def _forget() -> None:
    for number in _TERMINATIONS:
        if isinstance(getattr(signal.getsignal(number), "__self__", None), Signals):
            signal.signal(number, signal.SIG_DFL)
    _unblock()
