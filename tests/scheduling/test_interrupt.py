"""Ctrl-C and SIGTERM while the main thread waits for a case."""

from __future__ import annotations

import os
import signal
import sys
import threading
import weakref
from concurrent.futures import Future
from typing import Any

import pytest

from pytest_toolemu.scheduling.event_loop import wait


class Collected:
    """A value that the garbage collector can collect."""


class InterruptedFuture(Future[str]):
    """A future that a Ctrl-C reaches while a callback of the garbage collector runs."""

    def result(self, timeout: float | None = None) -> str:
        value = Collected()
        reference = weakref.ref(value, lambda _: os.kill(os.getpid(), signal.SIGINT))
        del value
        assert reference() is None
        return super().result(timeout)


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Collect exceptions that Python prints without raising them."""
    exceptions: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda error: exceptions.append(error.exc_type))
    return exceptions


def test_an_interrupt_in_a_callback_of_the_garbage_collector_is_not_lost(printed: list[Any]) -> None:
    with pytest.raises(KeyboardInterrupt):
        wait(InterruptedFuture())
    assert printed == []
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_is_not_lost_when_the_result_arrives_with_it(printed: list[Any]) -> None:
    future = InterruptedFuture()
    future.set_result("done")
    with pytest.raises(KeyboardInterrupt):
        wait(future)
    assert printed == []


def test_a_handler_of_the_project_stays_in_force() -> None:
    received: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: received.append(number))
    try:
        future = InterruptedFuture()
        future.set_result("done")
        assert wait(future) == "done"
    finally:
        signal.signal(signal.SIGINT, before)
    assert received == [signal.SIGINT]


class InterruptedLock(Future[str]):
    """A future that a SIGTERM reaches while the main thread waits for a lock."""

    def result(self, timeout: float | None = None) -> str:
        lock = threading.Lock()
        lock.acquire()
        try:
            lock.release()
            os.kill(os.getpid(), signal.SIGTERM)
            lock.acquire()
        finally:
            lock.release()  # an error if the signal raised an exception in between, as in Condition.wait
        return super().result(timeout)


@pytest.mark.skipif(sys.platform == "win32", reason="signals are those of POSIX")
def test_an_interrupt_by_sigterm_is_not_replaced_by_an_error_of_a_lock() -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            wait(InterruptedLock())
        assert signal.getsignal(signal.SIGTERM) is interrupt
    finally:
        signal.signal(signal.SIGTERM, before)
