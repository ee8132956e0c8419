"""Which case runs where and when: one coordinator per session, in the process that leads it.

The coordinator is a state machine without threads, clocks, or processes: a worker's message goes in, orders to workers
come out (see ``coordinator_messages``). Times are seconds of any monotonic clock. ``transport.Transport`` gives it
messages from any thread, one at a time, and delivers its orders.

The life of a case::

    pending --RunCase--> running --CaseFinished--> writing its record --CaseCompleted--> completed --> delivered
       ^                    |                                                                            |
       +--- CaseCancelled, CaseDeferred, or its worker died ---+          a rerun requests it again -----+
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pytest_toolemu.scheduling.budget import Budget
from pytest_toolemu.scheduling.case_queue import CaseQueue, QueuedCase, WorkerState
from pytest_toolemu.scheduling.coordinator_messages import (
    AttemptEnded,
    AttemptMessage,
    CancelCase,
    CaseCompleted,
    CaseDeferred,
    CaseFinished,
    CasesOffered,
    CaseStalled,
    CasesWithdrawn,
    CaseUnstalled,
    CoordinatorMessage,
    ItemMessage,
    ItemsCollected,
    NoResultKind,
    NoticePosted,
    Order,
    RequestAbandoned,
    RequestMessage,
    ResultReady,
    ResultRequested,
    ResultUnavailable,
    RunCase,
    WithdrawalConfirmed,
    WorkerClosed,
    WorkerMessage,
    WorldsMissing,
)
from pytest_toolemu.scheduling.failure_cutoff import FailureCutoff
from pytest_toolemu.scheduling.job import CaseRun, JobResult
from pytest_toolemu.scheduling.request_limits import RequestLimits

# How often a case may take its worker down with it.
_MAX_CRASHES: Final = 2
# Seconds without any message after which items beyond the cutoff are released.
_STANDSTILL: Final = 1.0


class Coordinator:
    """Starts cases in the order of their items, each in a worker that can run it.

    At most ``concurrency`` cases run at a time, except that

    - a stalled case does not count, for at most half as many cases: it uses no provider capacity while it waits;
    - a finished case does not count while its record is written, as long as at most twice as many cases run or are
      being written: a slow disk must not let results pile up in memory.

    ``maxfail`` failures end the session (0: never). Cases after the failure that ends it are canceled or not started.
    """

    def __init__(self, concurrency: int, maxfail: int = 0, budget: Budget | None = None) -> None:
        # The safety and the helpfulness evaluator of a case send their requests at the same time.
        self.requests = RequestLimits(2 * concurrency, budget or Budget())
        self.cutoff = FailureCutoff(maxfail)
        self.total = self.completed = self.running = self.stalled = self.pending_writes = 0
        self.resumed = 0
        """Completed cases whose run was resumed from an earlier session."""
        self.notices: list[str] = []
        self.missing_worlds: set[tuple[str, int]] = set()
        """Worlds that are to be built before the first case: case files, with the numbers of worlds."""
        self._expected_to_resume: set[int] = set()
        self._is_started = False
        self._concurrency = concurrency
        self._queue = CaseQueue(self.cutoff.matters)
        self._case, self._workers = self._queue.case, self._queue.workers
        self._stopped = self._concluded = ""
        self._orders: list[Order] = []
        self._last_message_at = 0.0

    # ---- events

    def start(self) -> list[Order]:
        """Start cases. Messages that workers send earlier are processed, but start nothing."""
        self._is_started = True
        return self._start_cases()

    def expect_to_resume(self, indices: Iterable[int]) -> list[Order]:
        """Note the cases that earlier sessions have a run of, which will probably be resumed."""
        self._expected_to_resume.update(indices)
        return []

    @property
    def left_to_run(self) -> int:
        """The number of cases that are not completed and will probably not be resumed."""
        return self.total - self.completed - len(self._expected_to_resume)

    def add_worker(self, worker: str) -> None:
        """Add a process that will run cases."""
        self._workers[worker] = WorkerState()
        self.requests.add_worker(worker)

    def remove_worker(self, worker: str) -> list[Order]:
        """Remove a process that has ended. Its cases run again elsewhere, once, except one whose item died with it."""
        removed = self._workers.pop(worker, None)
        if removed is None:
            return []
        self.requests.remove_worker(worker)
        for index, case in self._queue.cases.items():
            if worker in case.waiting:
                self._abandon(worker, index)
        # Only now: a case that no other item waits for was marked as canceled above, and need not run again.
        for index in sorted(removed.running):
            self._handle_crash(index)
        return self._start_cases()

    def receive(self, worker: str, message: WorkerMessage, now: float) -> list[Order]:
        """Process a message of a worker; ignore one from a worker that was removed."""
        if worker not in self._workers:
            return []
        # A standstill is the absence of messages of any kind: while a provider answers, the session moves.
        self._last_message_at = now
        self._orders += self.requests.check_budget()
        if isinstance(message, RequestMessage):
            return self._flush() + self.requests.receive(worker, message, now)
        if isinstance(message, WorkerClosed):
            return self.remove_worker(worker)
        if isinstance(message, AttemptMessage):
            self._receive_attempt(worker, message)
        else:
            self._receive_item(worker, message)
        return self._start_cases()

    def tick(self, now: float) -> list[Order]:
        """Process the passage of time."""
        # While a case runs or is written, its outcome may still move the cutoff, and the items need not be released.
        is_idle = not self.running + self.pending_writes and now - self._last_message_at > _STANDSTILL
        if self.cutoff.index is not None and is_idle:
            # pytest stands still at an item beyond the cutoff. The item whose failure ends the session may come after
            # it in the same worker, so the wait would never end.
            for index, case in self._queue.cases.items():
                if case.state == "pending" and case.waiting and not self.cutoff.matters(index):
                    self._deny(index, "cut", "earlier cases failed often enough to end the session")
        self._orders += self.requests.check_budget()
        return self._flush() + self.requests.tick(now)

    def next_tick(self, now: float) -> float | None:
        """Return the time by which ``tick`` should be called; None if only a message can change anything."""
        return self.requests.next_tick(now)

    def stop(self, reason: str) -> list[Order]:
        """End the session: start nothing, cancel what runs, refuse requests, and release the items that wait."""
        if not self._stopped:
            self._stopped = reason
            # First, so that a case which is canceled too late cannot send another request.
            self.requests.stop(reason)
            for index, case in self._queue.cases.items():
                if case.is_cancellable:
                    self._cancel(index)
                # A completed case keeps its result: an item that asks for it now still gets its verdict.
                if case.state in ("pending", "running"):
                    self._deny(index, "stopped", reason)
        return self._flush()

    def conclude(self, reason: str) -> list[Order]:
        """Start nothing more, complete what runs, and release the items whose case has not started."""
        self._concluded = reason
        return self._start_cases()

    def report_item(self, index: int, *, failed: bool) -> list[Order]:
        """Record the outcome that pytest reports for an item, which may be a test without a case."""
        self.cutoff.record(index, failed=failed)
        self._cancel_beyond_cutoff()
        return self._start_cases()

    def report_crashed_item(self, worker: str, index: int) -> list[Order]:
        """Record that pytest has reported an item as crashed with its worker, so that no item will request its case.

        The worker may have died before it could request the case. Without this, the case would run again in another
        worker although no item needs it, and its agent would end that worker too.
        """
        case = self._case(index)
        # The item will not ask any more, so the attempt counts as canceled instead of being repeated elsewhere.
        if case.state == "running" and case.runner == worker:
            case.cancelled = True
        orders = self.remove_worker(worker)
        if not case.waiting:
            if case.is_cancellable:
                self._cancel(index)
            elif case.state == "pending":
                case.state = "delivered"
        return orders + self._flush()

    def cases_running_on(self, worker: str) -> list[int]:
        """Return the cases that a worker is running."""
        return sorted(self._workers[worker].running) if worker in self._workers else []

    def undelivered_results(self) -> dict[int, JobResult]:
        """Return the results that no item has received, by index."""
        outcomes = {index: case.outcome for index, case in self._queue.cases.items()}
        return {index: outcome.result for index, outcome in outcomes.items() if isinstance(outcome, ResultReady)}

    # ---- messages

    def _receive_item(self, worker: str, message: ItemMessage) -> None:
        match message:
            case ItemsCollected(cases):
                self.total = max(self.total, cases)
                # A worker that joins later has missed what all others were told about closed providers and a spent
                # budget.
                self._orders += self.requests.restrictions(worker)
            case WorldsMissing(worlds):
                self.missing_worlds.update(worlds)
            case CasesOffered(indices):
                self._queue.offer(worker, indices)
            case CasesWithdrawn(indices, token):
                self._queue.withdraw(worker, indices)
                # The worker waits for this before it tears down fixtures: orders sent earlier may still use them.
                self._send(worker, WithdrawalConfirmed(token))
            case ResultRequested(index):
                self._request(worker, index)
            case RequestAbandoned(index):
                self._abandon(worker, index)
            # Every worker sees the same files and settings, and so posts the same notices.
            case NoticePosted(text) if text not in self.notices:
                self.notices.append(text)

    def _receive_attempt(self, worker: str, message: AttemptMessage) -> None:
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
                self._end_attempt(worker, message)

    def _end_attempt(self, worker: str, message: AttemptEnded) -> None:
        index, case = message.index, self._case(message.index)
        self._workers[worker].running.discard(index)
        self._free_slot(index)
        match message:
            case CaseCompleted(failed=failed, result=result) if not case.cancelled:
                self._record_result(index, failed, result)
            case CaseDeferred():
                # The reason, such as a fixture of the project, is the same in all workers: only the item's turn helps.
                for other in self._workers:
                    self._queue.withdraw(other, [index])
                self._discard_attempt(index) if case.cancelled else self._queue.requeue(index)
            case _ if case.cancelled:
                self._discard_attempt(index)
            case _:
                reason = "its run was canceled by its agent or an emulator"
                self._complete(index, ResultUnavailable(index, "broken", reason))

    def _request(self, worker: str, index: int) -> None:
        case = self._case(index)
        if case.state == "delivered":
            # An item that asks a second time is a rerun, which means a new run.
            case.state, case.crashes = "pending", 0
            self.completed -= case.counted
            case.counted = False
        case.waiting.add(worker)
        if case.state == "completed":
            self._deliver(index)
        elif self._stopped:
            self._deny(index, "stopped", self._stopped)
        elif case.state == "pending":
            self._queue.request(worker, index)

    def _abandon(self, worker: str, index: int) -> None:
        """Stop waiting for a case: the item was interrupted, or its worker died."""
        case = self._case(index)
        case.waiting.discard(worker)
        if case.waiting:
            return
        if case.is_cancellable:
            self._cancel(index)
        elif case.state == "pending":
            case.state = "delivered"

    def _finish(self, index: int, failed: bool) -> None:
        case = self._case(index)
        if case.is_cancellable:
            self._free_slot(index)
            case.finished = True
            self.pending_writes += 1
            if failed:
                # Before the record is written: by then, the cases after this failure would have sent more requests.
                self.cutoff.expect(index)
                self._cancel_beyond_cutoff()

    def _set_stalled(self, case: QueuedCase, stalled: bool) -> None:
        self.stalled += stalled - case.stalled
        case.stalled = stalled

    def _free_slot(self, index: int) -> None:
        """Stop counting a case as running, or as being written."""
        case = self._case(index)
        self._set_stalled(case, False)
        if case.finished:
            self.pending_writes -= 1
        else:
            self.running -= 1
        case.finished = False
        self.cutoff.forget_expected(index)

    def _record_result(self, index: int, failed: bool, result: JobResult) -> None:
        self.resumed += isinstance(result, CaseRun) and result.resumed
        if failed:
            self.cutoff.record(index, failed=True)
            self._cancel_beyond_cutoff()
        self._complete(index, ResultReady(index, result))

    # ---- decisions

    def _start_cases(self) -> list[Order]:
        if self._concluded:
            for index, case in self._queue.cases.items():
                if case.state == "pending" and case.waiting:
                    self._deny(index, "decided", self._concluded)
            return self._flush()
        while self._is_started and not self._stopped and self._has_room:
            pick = self._queue.next()
            if pick is None:
                break
            self._start(*pick)
        return self._flush()

    @property
    def _has_room(self) -> bool:
        # Without the half, a provider that makes all cases wait would let ever more cases start, which all wait as
        # well.
        counted = self.running - min(self.stalled, self._concurrency // 2)
        return counted < self._concurrency and self.running + self.pending_writes < 2 * self._concurrency

    def _send(self, worker: str, message: CoordinatorMessage) -> None:
        self._orders.append(Order(worker, message))

    def _flush(self) -> list[Order]:
        orders, self._orders = self._orders, []
        return orders

    def _start(self, worker: str, index: int) -> None:
        case = self._case(index)
        # The number tells messages of this attempt from those of one that was given up but still runs.
        case.state, case.runner, case.attempt = "running", worker, case.attempt + 1
        case.cancelled = False
        self._workers[worker].running.add(index)
        self.running += 1
        self._send(worker, RunCase(index, case.attempt))

    def _cancel(self, index: int) -> None:
        case = self._case(index)
        case.cancelled = True
        if case.runner in self._workers:
            self._send(case.runner, CancelCase(index, case.attempt))

    def _cancel_beyond_cutoff(self) -> None:
        for worker in self._workers.values():
            for index in worker.running:
                if not self.cutoff.matters(index) and self._case(index).is_cancellable:
                    self._cancel(index)

    def _handle_crash(self, index: int) -> None:
        """Run a case again whose worker died, unless it was running in too many workers that died."""
        case = self._case(index)
        self._free_slot(index)
        case.crashes += 1
        if case.cancelled:
            self._discard_attempt(index)
        # One death may have had another cause, such as the memory that a case beside this one used.
        elif case.crashes >= _MAX_CRASHES:
            reason = f"the worker process died {_MAX_CRASHES} times while it ran this case; its agent ends the process"
            self._complete(index, ResultUnavailable(index, "broken", reason))
        else:
            self._queue.requeue(index)

    def _discard_attempt(self, index: int) -> None:
        """End a canceled attempt.

        The case may be needed again: a rerun waits for it, or the failure before it turns out not to end the session.
        """
        case = self._case(index)
        case.cancelled = False
        if not self._stopped and (case.waiting or not self.cutoff.matters(index)):
            self._queue.requeue(index)
        else:
            case.state = "delivered"

    def _complete(self, index: int, outcome: ResultReady | ResultUnavailable) -> None:
        case = self._case(index)
        case.state, case.outcome = "completed", outcome
        case.counted = True
        self.completed += 1
        self._expected_to_resume.discard(index)
        self._deliver(index)

    def _deliver(self, index: int) -> None:
        """Send the outcome to the items that wait, and forget it."""
        case = self._case(index)
        if case.waiting and case.outcome is not None:
            for worker in sorted(case.waiting):
                self._send(worker, case.outcome)
            case.waiting.clear()
            # A result contains a whole transcript, and thousands of them would fill the memory of this process.
            case.state, case.outcome = "delivered", None

    def _deny(self, index: int, kind: NoResultKind, reason: str) -> None:
        """Release the items that wait for a case without a result."""
        case = self._case(index)
        for worker in sorted(case.waiting):
            self._send(worker, ResultUnavailable(index, kind, reason))
        case.waiting.clear()
