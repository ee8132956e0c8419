"""Which cases there are, which worker can run which, and which comes next. Part of the hub, and pure as it is."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(slots=True)
class QueuedCase:
    """*over*: its result was fetched, or nobody wants one. ``outcome`` is the message that waits for its item.

    ``held``: it runs, but gets no further for now. ``made``: it runs no more, but its record is still being written.
    """

    state: Literal["free", "running", "done", "over"] = "free"
    runner: str = ""
    attempt: int = 0
    crashes: int = 0
    queued: bool = False
    unwanted: bool = False
    held: bool = False
    made: bool = False
    finished: bool = False
    outcome: tuple[Any, ...] = ()
    waiting: set[str] = field(default_factory=set)

    @property
    def is_under_way(self) -> bool:
        """Whether cancelling it would save anything, and has not been tried."""
        return self.state == "running" and not self.made and not self.unwanted


@dataclass(slots=True)
class WorkerState:
    """A process: the cases it can run before their turn, and those it runs."""

    able: set[int] = field(default_factory=set)
    running: set[int] = field(default_factory=set)


class CaseQueue:
    """Cases by their index, workers by their name, and two queues: what items wait for goes before what is ahead.

    ``matters`` tells whether a case can still matter to the session.
    """

    def __init__(self, matters: Callable[[int], bool]) -> None:
        self.cases: dict[int, QueuedCase] = {}
        self.workers: dict[str, WorkerState] = {}
        self._matters = matters
        self._ahead: list[int] = []
        self._urgent: deque[tuple[str, int]] = deque()

    def case(self, index: int) -> QueuedCase:
        """The case; free, where nothing was heard of it before."""
        return self.cases.setdefault(index, QueuedCase())

    def able(self, worker: str, indices: Iterable[int]) -> None:
        """A worker can run these before their turn."""
        for index in indices:
            self.workers[worker].able.add(index)
            self._queue(index)

    def want(self, worker: str, index: int) -> None:
        """An item of this worker waits for a case that is free."""
        self._urgent.append((worker, index))

    def free(self, index: int) -> None:
        """A case is to be run, again."""
        case = self.case(index)
        case.state = "free"
        for worker in sorted(case.waiting):
            self.want(worker, index)
        self._queue(index)

    def next(self) -> tuple[str, int] | None:
        """A worker, and the case it should start now; None where there is none, or nobody for it."""
        return self._next_urgent() or self._next_ahead()

    def _next_urgent(self) -> tuple[str, int] | None:
        """The next case that an item waits for; it runs in that item's own worker."""
        for _ in range(len(self._urgent)):
            worker, index = self._urgent.popleft()
            case = self.case(index)
            if case.state != "free" or worker not in case.waiting:
                continue
            if self._matters(index) and self._may_run(worker, case):
                return worker, index
            self._urgent.append((worker, index))
        return None

    def _next_ahead(self) -> tuple[str, int] | None:
        """The first case in order that some worker is able to run, and the worker that runs least."""
        later, found = [], None
        while self._ahead and found is None and self._matters(self._ahead[0]):
            index = heapq.heappop(self._ahead)
            case = self.case(index)
            case.queued = False
            able = [name for name, worker in self.workers.items() if index in worker.able]
            if case.state != "free" or case.waiting or not able:
                continue
            able = [name for name in able if self._may_run(name, case)]
            if able:
                found = min(able, key=lambda name: len(self.workers[name].running)), index
            else:
                later.append(index)
        for index in later:
            self._queue(index)
        return found

    def _may_run(self, worker: str, case: QueuedCase) -> bool:
        """Of the cases that may have killed a worker, one at a time: so the next death tells which it was."""
        return not case.crashes or not any(self.case(index).crashes for index in self.workers[worker].running)

    def _queue(self, index: int) -> None:
        case = self.case(index)
        if case.state == "free" and not case.queued:
            case.queued = True
            heapq.heappush(self._ahead, index)
