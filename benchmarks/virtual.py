"""An event loop whose time passes only while everybody waits: hours of waiting take the CPU time of what is done."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from typing import Any

from pytest_toolemu.scheduling.coordinator import Coordinator, Message
from pytest_toolemu.scheduling.worker import WorkerScheduler


class VirtualLoop(asyncio.SelectorEventLoop):
    """Seconds since its making, none of which anybody has waited."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(_Impatient(self))

    def time(self) -> float:
        """In virtual seconds."""
        return self.now


class _Impatient(selectors.DefaultSelector):
    """Lets the time pass instead of waiting for it."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        """What is ready now. RuntimeError where nothing ever will be."""
        ready = super().select(0)
        if not ready and timeout is None:
            raise RuntimeError("everybody waits, and for nothing")
        if not ready and timeout:
            self._loop.now += timeout
        return ready


class Here:
    """What a Schedule needs of the loop that it runs on, where that is the current one."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def call(self, function: Callable[..., Any], *args: Any) -> None:
        """When the loop comes round."""
        self._loop.call_soon(function, *args)

    def reach(self, function: Callable[..., Any], *args: Any) -> None:
        """Now: everything is on this thread."""
        function(*args)


class Carried:
    """A hub and its one worker in virtual time, as ``flight.carrier`` brings them together in real time."""

    def __init__(self, loop: VirtualLoop, hub: Coordinator, patience: float) -> None:
        self.hub = hub
        self.schedule = WorkerScheduler(Here(loop), _raised, patience)  # type: ignore[arg-type]
        self.schedule.tell = self._tell
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        hub.join("here")
        hub.begin()

    def _tell(self, message: Message) -> None:
        self._carry(self.hub.hear("here", message, self._loop.now))

    def _tick(self) -> None:
        self._timer = None
        self._carry(self.hub.tick(self._loop.now))

    def _carry(self, orders: list[tuple[str, Message]]) -> None:
        for _, order in orders:
            self.schedule.hear(order)
        due = self.hub.due(self._loop.now)
        if due is not None and (self._timer is None or due < self._timer.when()):
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(max(due, self._loop.now), self._tick)


def _raised(error: BaseException) -> Any:
    raise error
