"""An event loop in virtual time: waiting takes no real time, so hours of a session take only their CPU time."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from typing import Any

from pytest_toolemu.scheduling.coordinator import Coordinator
from pytest_toolemu.scheduling.coordinator_messages import Order, WorkerMessage
from pytest_toolemu.scheduling.worker import WorkerScheduler


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer instead of waiting for it."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(_Impatient(self))

    def time(self) -> float:
        """Return the virtual time, in seconds."""
        return self.now


class _Impatient(selectors.DefaultSelector):
    """A selector that advances the virtual time instead of waiting."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        """Return the events that are ready now. Raise RuntimeError if nothing can ever become ready."""
        ready = super().select(0)
        if not ready and timeout is None:
            raise RuntimeError("all tasks wait, and nothing can wake them")
        if not ready and timeout:
            self._loop.now += timeout
        return ready


class CurrentLoop:
    """The part of ``CaseLoop`` that a WorkerScheduler uses, for the current loop."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def call(self, function: Callable[..., Any], *args: Any) -> None:
        """Call a function in the next iteration."""
        self._loop.call_soon(function, *args)

    def call_now(self, function: Callable[..., Any], *args: Any) -> None:
        """Call a function at once, as everything runs on this thread."""
        function(*args)


class VirtualTransport:
    """A coordinator and its only worker in virtual time; the counterpart of ``scheduling.transport`` in real time."""

    def __init__(self, loop: VirtualLoop, coordinator: Coordinator, patience: float) -> None:
        self.coordinator = coordinator
        self.schedule = WorkerScheduler(CurrentLoop(loop), _raised, patience)  # type: ignore[arg-type]
        self.schedule.transmit = self._receive
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        coordinator.add_worker("here")
        coordinator.start()

    def _receive(self, message: WorkerMessage) -> None:
        self._carry(self.coordinator.receive("here", message, self._loop.now))

    def _tick(self) -> None:
        self._timer = None
        self._carry(self.coordinator.tick(self._loop.now))

    def _carry(self, orders: list[Order]) -> None:
        for order in orders:
            self.schedule.receive(order.message)
        due = self.coordinator.next_tick(self._loop.now)
        if due is not None and (self._timer is None or due < self._timer.when()):
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(max(due, self._loop.now), self._tick)


def _raised(error: BaseException) -> Any:
    raise error
