"""Between the hub and its workers: one message at a time, from any thread; and somebody who tells the hub the time."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from threading import Thread
from time import monotonic
from typing import Final, TypeVar

from pytest_toolemu.scheduling.coordinator import Coordinator, Message, Order

T = TypeVar("T")

_TICK: Final = 0.25


class Transport:
    """Holds the hub. Nothing here waits for a worker, so nothing here can hang."""

    def __init__(self, hub: Coordinator, on_tick: Callable[[], object] = lambda: None) -> None:
        self._hub = hub
        self._on_tick = on_tick
        self._lock = threading.RLock()
        self._sends: dict[str, Callable[[Message], None]] = {}
        self._lost: dict[str, list[int]] = {}
        self._kick = threading.Event()
        self._over = False
        self._due: float | None = None
        self._timer = Thread(target=self._keep_time, name="toolemu-time", daemon=True)
        self._timer.start()

    def connect(self, worker: str, send: Callable[[Message], None]) -> None:
        """A worker is there; ``send`` gives it a message without waiting."""
        with self._lock:
            self._sends[worker] = send
            self._hub.join(worker)

    def ask(self, question: Callable[[Coordinator], T]) -> T:
        """What the hub knows."""
        with self._lock:
            return question(self._hub)

    def was_running(self, worker: str) -> list[int]:
        """The cases that a worker runs, or ran when it went."""
        with self._lock:
            return self._lost.get(worker) or self._hub.running_on(worker)

    def disconnect(self, worker: str) -> None:
        """A worker is gone."""
        self._lost[worker] = self.was_running(worker)
        self.tell(lambda hub: hub.leave(worker))
        self._sends.pop(worker, None)

    def post(self, worker: str, message: Message) -> None:
        """What a worker says."""
        self.tell(lambda hub: hub.hear(worker, message, monotonic()))

    def tell(self, event: Callable[[Coordinator], list[Order]]) -> None:
        """Something happens to the hub; its orders go out before anything else happens to it."""
        with self._lock:
            for worker, message in event(self._hub):
                send = self._sends.get(worker)
                if send is not None:
                    with contextlib.suppress(OSError):  # it is ending, and about to be disconnected
                        send(message)
            due = self._hub.due(monotonic())
        if due is not None and (self._due is None or due < self._due):
            self._due = due
            self._kick.set()

    def close(self) -> None:
        """Nothing more happens."""
        self._over = True
        self._kick.set()
        self._timer.join()

    def _keep_time(self) -> None:
        while not self._over:
            now = monotonic()
            self._kick.wait(_TICK if self._due is None else min(_TICK, max(0.001, self._due - now)))
            self._kick.clear()
            if not self._over:
                self._due = None
                self.tell(lambda hub: hub.tick(monotonic()))
                self._on_tick()
