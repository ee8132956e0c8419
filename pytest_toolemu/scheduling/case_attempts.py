"""The attempts of cases, from the start of one to the outcome that items receive. A pure part of the coordinator."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pytest_toolemu.scheduling.case_queue import CaseQueue, QueuedCase
from pytest_toolemu.scheduling.coordinator_messages import (
    AttemptEnded,
    AttemptMessage,
    CancelCase,
    CaseCompleted,
    CaseDeferred,
    CaseFinished,
    CaseStalled,
    CaseUnstalled,
    CoordinatorMessage,
    NoResultKind,
    Order,
    ResultReady,
    ResultUnavailable,
    RunCase,
)
from pytest_toolemu.scheduling.failure_cutoff import FailureCutoff
from pytest_toolemu.scheduling.job import CaseRun, JobResult

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
        self.is_stopped = False
        """Whether no case is run again any more."""
        self.expected_to_resume: set[int] = set()
        """The cases that are not completed and will probably be resumed."""
        self._queue = queue
        self._case = queue.case
        self._cutoff = cutoff
        self._orders: list[Order] = []

    # ---- orders

    def send(self, worker: str, message: CoordinatorMessage) -> None:
        """Order a message to a worker."""
        self._orders.append(Order(worker, message))

    def add_orders(self, orders: Iterable[Order]) -> None:
        """Add orders that follow from something else."""
        self._orders += orders

    def take_orders(self) -> list[Order]:
        """Return the orders since the last call."""
        orders, self._orders = self._orders, []
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
        self.send(worker, RunCase(index, case.attempt))

    def cancel(self, index: int) -> None:
        """Cancel the running attempt of a case."""
        case = self._case(index)
        case.is_canceled = True
        if case.runner in self._queue.workers:
            self.send(case.runner, CancelCase(index, case.attempt))

    def cancel_beyond_cutoff(self) -> None:
        """Cancel what runs after the failure that ends the session."""
        for worker in self._queue.workers.values():
            for index in worker.running:
                if not self._cutoff.matters(index) and self._case(index).is_cancelable:
                    self.cancel(index)

    # ---- what workers say about an attempt

    def receive(self, worker: str, message: AttemptMessage) -> None:
        """Process a message about an attempt; ignore one about an attempt that was given up."""
        case = self._case(message.index)
        # An attempt that was given up may still send messages: they must not end a later attempt.
        if case.state != "running" or (case.runner, case.attempt) != (worker, message.attempt):
            return
        match message:
            case CaseFinished(index, _, failed):
                self._finish(index, failed)
            case CaseStalled():
                # A request that outlives its case, such as an agent's own, stalls nothing any more.
                self._set_stalled(case, not case.finished)
            case CaseUnstalled():
                self._set_stalled(case, False)
            case _:
                self._end(worker, message)

    def _finish(self, index: int, failed: bool) -> None:
        case = self._case(index)
        if case.is_cancelable:
            self._free_slot(index)
            case.finished = True
            self.counts.pending_writes += 1
            if failed:
                # Before the record is written: by then, the cases after this failure would have sent more requests.
                self._cutoff.expect(index)
                self.cancel_beyond_cutoff()

    def _end(self, worker: str, message: AttemptEnded) -> None:
        index, case = message.index, self._case(message.index)
        self._queue.workers[worker].running.discard(index)
        self._free_slot(index)
        match message:
            case CaseCompleted(failed=failed, result=result) if not case.is_canceled:
                self._record_result(index, failed, result)
            case CaseDeferred():
                # The reason, such as a fixture of the project, is the same in all workers: only the item's turn helps.
                for other in self._queue.workers:
                    self._queue.withdraw(other, [index])
                self._discard(index) if case.is_canceled else self._queue.requeue(index)
            case _ if case.is_canceled:
                self._discard(index)
            case _:
                reason = "its agent or an emulator canceled the run"
                self._complete(index, ResultUnavailable(index, "broken", reason))

    def _record_result(self, index: int, failed: bool, result: JobResult) -> None:
        self.counts.resumed += isinstance(result, CaseRun) and result.resumed
        if failed:
            self._cutoff.record(index, failed=True)
            self.cancel_beyond_cutoff()
        self._complete(index, ResultReady(index, result))

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
            self._complete(index, ResultUnavailable(index, "broken", reason))
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

    def _complete(self, index: int, outcome: ResultReady | ResultUnavailable) -> None:
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

    def deny(self, index: int, kind: NoResultKind, reason: str) -> None:
        """Release the items that wait for a case without a result."""
        case = self._case(index)
        for worker in sorted(case.waiting):
            self.send(worker, ResultUnavailable(index, kind, reason))
        case.waiting.clear()

    def reopen(self, index: int) -> None:
        """Make a delivered case pending: an item that asks a second time is a rerun, which means a new run."""
        case = self._case(index)
        case.state, case.crashes = "pending", 0
        self.counts.completed -= case.counted
        case.counted = False
