"""The attempts of cases, from the start of one to the outcome that items receive. A pure part of the coordinator."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Literal

from pytest_toolemu.scheduling import coordinator_messages as messages
from pytest_toolemu.scheduling.coordinator_messages import Order

# How often a case may take its worker down with it.
_MAX_CRASHES: Final = 2


@dataclass(slots=True)
class CaseCounts:
    """How many cases are in which state. ``pending_writes``: cases whose record is being written."""

    running: int = 0
    stalled: int = 0
    pending_writes: int = 0
    completed: int = 0
    resumed: int = 0
    """Completed cases whose run was resumed from an earlier session."""


class CaseAttempts:
    """Starts, cancels, and ends attempts, and collects the orders to workers that follow from this."""

    def __init__(self, queue: CaseQueue, cutoff: FailureCutoff) -> None:
        self.counts = CaseCounts()
        # Whether no case is run again any more
        self.is_stopped = False
        # The cases that are not completed and will probably be resumed
        self.expected_to_resume: set[int] = set()
        self._queue = queue
        self._case = queue.case
        self._cutoff = cutoff
        self.orders: list[Order] = []
        """The orders since the last call of ``take_orders``."""

    # ---- orders

    def send(self, worker: str, message: messages.CoordinatorMessage) -> None:
        """Order a message to a worker."""
        self.orders.append(Order(worker, message))

    def take_orders(self) -> list[Order]:
        """Return the orders since the last call."""
        orders, self.orders = self.orders, []
        return orders

    # ---- an attempt begins, or should not continue

    def start(self, worker: str, index: int) -> None:
        """Start the next attempt of a case."""
        case = self._case(index)
        # The number tells messages of this attempt from those of one that was given up but still runs.
        case.state, case.runner, case.attempt = "running", worker, case.attempt + 1
        case.is_canceled = False
        self._queue.workers[worker].running.add(index)
        self.counts.running += 1
        self.send(worker, messages.RunCase(index, case.attempt))

    def cancel(self, index: int) -> None:
        """Cancel the running attempt of a case."""
        case = self._case(index)
        case.is_canceled = True
        if case.runner in self._queue.workers:
            self.send(case.runner, messages.CancelCase(index, case.attempt))

    def cancel_beyond_cutoff(self) -> None:
        """Cancel what runs after the failure that ends the session."""
        for worker in self._queue.workers.values():
            for index in worker.running:
                if not self._cutoff.matters(index) and self._case(index).is_cancelable:
                    self.cancel(index)

    # ---- what workers say about an attempt

    def receive(self, worker: str, message: messages.AttemptMessage) -> None:
        """Process a message about an attempt; ignore one about an attempt that was given up."""
        case = self._case(message.index)
        # An attempt that was given up may still send messages: they must not end a later attempt.
        if case.state != "running" or (case.runner, case.attempt) != (worker, message.attempt):
            return
        match message:
            case messages.CaseFinished(index, _, failed):
                if case.is_cancelable:
                    self._free_slot(index)
                    case.finished = True
                    self.counts.pending_writes += 1
                    if failed:
                        # Before the record is written: by then, the cases after this failure would have sent more
                        # requests.
                        self._cutoff.expect(index)
                        self.cancel_beyond_cutoff()
            case messages.CaseStalled(is_stalled=is_stalled):
                # A request that outlives its case, such as an agent's own, stalls nothing any more.
                self._set_stalled(case, is_stalled and not case.finished)
            case _:
                self._end(worker, message)

    def _end(self, worker: str, message: messages.AttemptEnded) -> None:
        index, case = message.index, self._case(message.index)
        self._queue.workers[worker].running.discard(index)
        self._free_slot(index)
        match message:
            case messages.CaseCompleted(failed=failed, result=result) if not case.is_canceled:
                self.counts.resumed += isinstance(result, messages.CaseRun) and result.resumed
                if failed:
                    self._cutoff.record(index, failed=True)
                    self.cancel_beyond_cutoff()
                self._complete(index, messages.ResultReady(index, result))
            case messages.CaseCanceled(is_deferred=True):
                # The reason, such as a fixture of the project, is the same in all workers: only the item's turn helps.
                for other in self._queue.workers:
                    self._queue.withdraw(other, [index])
                self._discard(index) if case.is_canceled else self._queue.requeue(index)
            case _ if case.is_canceled:
                self._discard(index)
            case _:
                reason = "its agent or an emulator canceled the run"
                self._complete(index, messages.ResultUnavailable(index, "broken", reason))

    def crash(self, index: int) -> None:
        """Run a case again whose worker died, unless it was running in too many workers that died."""
        case = self._case(index)
        self._free_slot(index)
        case.crashes += 1
        if case.is_canceled:
            self._discard(index)
        # One death may have had another cause, such as the memory that another case used.
        elif case.crashes >= _MAX_CRASHES:
            reason = (
                f"the worker process died {_MAX_CRASHES} times while it ran this case; the agent of the case "
                "ends the process"
            )
            self._complete(index, messages.ResultUnavailable(index, "broken", reason))
        else:
            self._queue.requeue(index)

    def _discard(self, index: int) -> None:
        """End a canceled attempt.

        The case may be needed again: a rerun waits for it, or the failure before it turns out not to end the session.
        """
        case = self._case(index)
        case.is_canceled = False
        if not self.is_stopped and (case.waiting or not self._cutoff.matters(index)):
            self._queue.requeue(index)
        else:
            case.state = "delivered"

    def _set_stalled(self, case: QueuedCase, stalled: bool) -> None:
        self.counts.stalled += stalled - case.stalled
        case.stalled = stalled

    def _free_slot(self, index: int) -> None:
        """Stop counting a case as running, or as being written."""
        case = self._case(index)
        self._set_stalled(case, False)
        if case.finished:
            self.counts.pending_writes -= 1
        else:
            self.counts.running -= 1
        case.finished = False
        self._cutoff.forget_expected(index)

    # ---- outcomes

    def _complete(self, index: int, outcome: messages.ResultReady | messages.ResultUnavailable) -> None:
        case = self._case(index)
        case.state, case.outcome = "completed", outcome
        case.counted = True
        self.counts.completed += 1
        self.expected_to_resume.discard(index)
        self.deliver(index)

    def deliver(self, index: int) -> None:
        """Send the outcome to the items that wait, and forget it."""
        case = self._case(index)
        if case.waiting and case.outcome is not None:
            for worker in sorted(case.waiting):
                self.send(worker, case.outcome)
            case.waiting.clear()
            # A result contains a whole transcript, and thousands of them would fill the memory of this process.
            case.state, case.outcome = "delivered", None

    def deny(self, index: int, kind: messages.NoResultKind, reason: str) -> None:
        """Release the items that wait for a case without a result."""
        case = self._case(index)
        for worker in sorted(case.waiting):
            self.send(worker, messages.ResultUnavailable(index, kind, reason))
        case.waiting.clear()


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
    outcome: messages.ResultReady | messages.ResultUnavailable | None = None
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


class FailureCutoff:
    """Knows the failures so far, by item index. ``maxfail`` failures end the session; 0 means never.

    pytest reports items in order, but cases run ahead of their items. So the failure that will end the session may be
    known long before pytest sees it: it is the ``maxfail``-th in item order. Cases after it need not run.
    """

    def __init__(self, maxfail: int) -> None:
        # The item whose failure ends the session; None while too few have failed
        self.index: int | None = None
        self._maxfail = maxfail
        self._failed: set[int] = set()
        # Cases that have failed and whose record is still being written. A worker that dies now takes the failure with
        # it, so these are kept apart.
        self._unrecorded: set[int] = set()

    def matters(self, index: int) -> bool:
        """Return whether pytest can still reach the item."""
        return self.index is None or index <= self.index

    def record(self, index: int, *, failed: bool) -> None:
        """Record an item's outcome. A later outcome of the same item replaces an earlier one, as after a rerun."""
        if failed:
            self._failed.add(index)
        else:
            self._failed.discard(index)
        self._update()

    def expect(self, index: int) -> None:
        """Count the failure of a case whose record is still being written."""
        self._unrecorded.add(index)
        self._update()

    def forget_expected(self, index: int) -> None:
        """Stop counting a failure that was only expected: its record was written, or lost."""
        self._unrecorded.discard(index)
        self._update()

    def _update(self) -> None:
        if self._maxfail:
            failed = sorted(self._failed | self._unrecorded)
            self.index = failed[self._maxfail - 1] if self._maxfail <= len(failed) else None
