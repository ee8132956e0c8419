"""Messages between the coordinator and its workers: one at a time, from any thread, and encoded between processes."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args

from pytest_toolemu.scheduling.coordinator import Coordinator
from pytest_toolemu.scheduling.coordinator_messages import CoordinatorMessage, Order, WorkerMessage

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")

EncodedMessage = tuple[str, dict[str, Any]]
"""The name of a message's type, and its fields as builtin types, which an execnet channel can send."""

_TICK: Final = 0.25
_MESSAGE_TYPES: Final = {kind.__name__: kind for kind in get_args(WorkerMessage) + get_args(CoordinatorMessage)}


def encode(message: WorkerMessage | CoordinatorMessage) -> EncodedMessage:
    """Return a message as builtin types, for a channel to another process."""
    name = type(message).__name__
    return name, _adapter(name).dump_python(message)


def decode(encoded: EncodedMessage) -> Any:
    """Return the message that ``encode`` has encoded. Raise a ValidationError for anything else."""
    name, fields = encoded
    return _adapter(name).validate_python(fields)


@functools.cache
def _adapter(name: str) -> TypeAdapter[Any]:
    # Only sessions with several processes need this, so others do not import or build anything for it.
    from pydantic import TypeAdapter

    return TypeAdapter(_MESSAGE_TYPES[name])


class Transport:
    """Owns the coordinator, and delivers messages to it and its orders to the workers.

    It never waits for a worker, so it cannot hang. ``on_tick`` is called several times a second on the timer's thread.
    """

    def __init__(self, coordinator: Coordinator, on_tick: Callable[[], object] = lambda: None) -> None:
        self._coordinator = coordinator
        self._on_tick = on_tick
        # Reentrant: a worker in this process may answer an order while it is delivered.
        self._lock = threading.RLock()
        self._send: dict[str, Callable[[CoordinatorMessage], None]] = {}
        self._cases_at_disconnect: dict[str, list[int]] = {}
        self._wake = threading.Event()
        self._is_closed = False
        self._next_tick: float | None = None
        self._timer = Thread(target=self._keep_time, name="toolemu-time", daemon=True)
        self._timer.start()

    def connect(self, worker: str, send: Callable[[CoordinatorMessage], None]) -> None:
        """Add a worker. ``send`` sends it a message and must not wait for it."""
        with self._lock:
            self._send[worker] = send
            self._coordinator.add_worker(worker)

    def read(self, query: Callable[[Coordinator], T]) -> T:
        """Return what a function reads from the coordinator, while nothing changes it."""
        with self._lock:
            return query(self._coordinator)

    def cases_running_on(self, worker: str) -> list[int]:
        """Return the cases that a worker is running, or was running when it disconnected."""
        with self._lock:
            return self._cases_at_disconnect.get(worker) or self._coordinator.cases_running_on(worker)

    def disconnect(self, worker: str) -> None:
        """Remove a worker that has ended."""
        self._cases_at_disconnect[worker] = self.cases_running_on(worker)
        self.update(lambda coordinator: coordinator.remove_worker(worker))
        self._send.pop(worker, None)

    def report_crashed_item(self, worker: str, index: int) -> None:
        """Remove a worker that died while pytest ran an item, which pytest has reported and will not run again."""
        self._cases_at_disconnect[worker] = self.cases_running_on(worker)
        self.update(lambda coordinator: coordinator.report_crashed_item(worker, index))

    def receive(self, worker: str, message: WorkerMessage) -> None:
        """Hand a worker's message to the coordinator."""
        self.update(lambda coordinator: coordinator.receive(worker, message, monotonic()))

    def update(self, event: Callable[[Coordinator], list[Order]]) -> None:
        """Change the coordinator, and send its orders before anything else can change it."""
        with self._lock:
            for order in event(self._coordinator):
                send = self._send.get(order.worker)
                if send is not None:
                    # The channel of a worker that is ending may be closed before ``disconnect`` is called.
                    with contextlib.suppress(OSError):
                        send(order.message)
            next_tick = self._coordinator.next_tick(monotonic())
        if next_tick is not None and (self._next_tick is None or next_tick < self._next_tick):
            self._next_tick = next_tick
            self._wake.set()

    def close(self) -> None:
        """Stop the timer."""
        self._is_closed = True
        self._wake.set()
        self._timer.join()

    def _keep_time(self) -> None:
        while not self._is_closed:
            now = monotonic()
            self._wake.wait(_TICK if self._next_tick is None else min(_TICK, max(0.001, self._next_tick - now)))
            self._wake.clear()
            if not self._is_closed:
                self._next_tick = None
                self.update(lambda coordinator: coordinator.tick(monotonic()))
                self._on_tick()
