"""Workers of a coordinator that a test controls message by message."""

from __future__ import annotations

from collections.abc import Iterable

from pytest_toolemu.scheduling.budget import Budget
from pytest_toolemu.scheduling.coordinator import Coordinator
from pytest_toolemu.scheduling.coordinator_messages import (
    CaseRun,
    Order,
    RunCase,
    WorkerMessage,
)


class Workers:
    """Workers that a test controls, and their coordinator."""

    def __init__(self, concurrency: int = 2, maxfail: int = 0, budget: Budget | None = None) -> None:
        self.coordinator = Coordinator(concurrency, maxfail, budget)
        self.coordinator.start()
        self.now = 0.0

    def join(self, *names: str) -> None:
        for name in names:
            self.coordinator.add_worker(name)

    def send(self, worker: str, message: WorkerMessage) -> list[Order]:
        return self.coordinator.receive(worker, message, self.now)


def stored(path: str) -> CaseRun:
    return CaseRun(path)


def runs(orders: Iterable[Order]) -> list[tuple[str, int]]:
    return [(order.worker, order.message.index) for order in orders if isinstance(order.message, RunCase)]
