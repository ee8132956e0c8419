"""Which cases there are, which worker can run which, and which case starts next. A pure part of the coordinator."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

from pytest_toolemu.scheduling.coordinator_messages import ResultReady, ResultUnavailable


@dataclass(slots=True)
class QueuedCase:
    """The state of one case.

    ``pending``: it can be started. ``running``: an attempt was started and has not ended. ``completed``: ``outcome``
    waits for the item to request it. ``delivered``: an item has received the outcome, or none is needed any more.

    While it is running, ``stalled`` means that a provider makes it wait, ``finished`` that only its record is still
    being written, and ``is_canceled`` that its result will be discarded.
    """

    state: Literal["pending", "running", "completed", "delivered"] = "pending"
    runner: str = ""
    attempt: int = 0
    crashes: int = 0
    is_in_lookahead: bool = False
    is_canceled: bool = False
    stalled: bool = False
    finished: bool = False
    counted: bool = False
    """Whether it is included in the coordinator's count of completed cases."""
    outcome: ResultReady | ResultUnavailable | None = None
    waiting: set[str] = field(default_factory=set)
    """The workers of which an item waits for the outcome."""

    @property
    def is_cancelable(self) -> bool:
        """Whether canceling the case would save requests, and has not been tried."""
        return self.state == "running" and not self.finished and not self.is_canceled


@dataclass(slots=True)
class WorkerState:
    """The cases that a worker can run before their turn, and those it is running."""

    offered: set[int] = field(default_factory=set)
    running: set[int] = field(default_factory=set)


class CaseQueue:
    """Cases by index, workers by name, and the order in which cases start.

    There are two queues: cases that an item waits for come first, as pytest stands still for them; then the lookahead,
    in the order of items. ``matters`` returns whether a case can still matter to the session.
    """

    def __init__(self, matters: Callable[[int], bool]) -> None:
        self.cases: dict[int, QueuedCase] = {}
        self.workers: dict[str, WorkerState] = {}
        self._matters = matters
        self._lookahead: list[int] = []
        self._requested: deque[tuple[str, int]] = deque()

    def case(self, index: int) -> QueuedCase:
        """Return the case with this index; it is pending if no message has mentioned it."""
        return self.cases.setdefault(index, QueuedCase())

    def offer(self, worker: str, indices: Iterable[int]) -> None:
        """Note that a worker can run these cases before their turn."""
        for index in indices:
            self.workers[worker].offered.add(index)
            self._add_to_lookahead(index)

    def withdraw(self, worker: str, indices: Iterable[int]) -> None:
        """Note that a worker cannot run these cases any more."""
        self.workers[worker].offered.difference_update(indices)

    def request(self, worker: str, index: int) -> None:
        """Note that an item of this worker waits for a pending case."""
        self._requested.append((worker, index))

    def requeue(self, index: int) -> None:
        """Make a case pending again after an attempt without a result."""
        case = self.case(index)
        case.state = "pending"
        for worker in sorted(case.waiting):
            self.request(worker, index)
        self._add_to_lookahead(index)

    def next(self) -> tuple[str, int] | None:
        """Return the case to start now and its worker; None if there is no case, or no worker for it."""
        return self._next_requested() or self._next_in_lookahead()

    def _next_requested(self) -> tuple[str, int] | None:
        """Return the next case that an item waits for. It runs in that item's worker, which may alone be able to."""
        # One round: what cannot start now is put back behind the others, and no entry is looked at twice.
        for _ in range(len(self._requested)):
            worker, index = self._requested.popleft()
            case = self.case(index)
            # Entries are not removed when their case starts or its item gives up; they are dropped here instead.
            if case.state != "pending" or worker not in case.waiting:
                continue
            if self._matters(index) and self._may_run(worker, case):
                return worker, index
            self._requested.append((worker, index))
        return None

    def _next_in_lookahead(self) -> tuple[str, int] | None:
        """Return the first case that some worker can run, and of these workers the one that runs fewest cases."""
        blocked, pick = [], None
        while self._lookahead and pick is None and self._matters(self._lookahead[0]):
            index = heapq.heappop(self._lookahead)
            case = self.case(index)
            case.is_in_lookahead = False
            offering = [name for name, worker in self.workers.items() if index in worker.offered]
            # A case that an item waits for is in the other queue, bound to that item's worker.
            if case.state != "pending" or case.waiting or not offering:
                continue
            candidates = [name for name in offering if self._may_run(name, case)]
            if candidates:
                # Agents can be busy, and each worker has one event loop and one processor at most.
                pick = min(candidates, key=lambda name: len(self.workers[name].running)), index
            else:
                blocked.append(index)
        for index in blocked:
            self._add_to_lookahead(index)
        return pick

    def _may_run(self, worker: str, case: QueuedCase) -> bool:
        """Return whether the worker may run this case in addition to those it is running.

        Of the cases that were running in a worker that died, a worker runs one at a time: the next death then shows
        which of them is the cause.
        """
        return not case.crashes or not any(self.case(index).crashes for index in self.workers[worker].running)

    def _add_to_lookahead(self, index: int) -> None:
        case = self.case(index)
        if case.state == "pending" and not case.is_in_lookahead:
            case.is_in_lookahead = True
            heapq.heappush(self._lookahead, index)
