"""Which case runs where and when: one coordinator per session, in the process that leads it.

The coordinator is a state machine without threads, clocks, or processes: a worker's message goes in, orders to workers
come out (see ``coordinator_messages``). Times are seconds of any monotonic clock. ``transport.Transport`` gives it
messages from any thread, one at a time, and delivers its orders.

The life of a case::

    pending --RunCase--> running --CaseFinished--> writing its record --CaseCompleted--> completed --> delivered
       ^                    |                                                                            |
       +--- CaseCanceled, or its worker died -----------------+          a rerun requests it again -----+
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from pytest_toolemu.scheduling import coordinator_messages as messages
from pytest_toolemu.scheduling.budget import Budget
from pytest_toolemu.scheduling.case_attempts import CaseAttempts, CaseQueue, FailureCutoff, WorkerState
from pytest_toolemu.scheduling.coordinator_messages import Order
from pytest_toolemu.scheduling.request_limits import RequestLimits

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
        self.total = 0
        self.notices: list[str] = []
        # Worlds that are to be built before the first case: case files, with the numbers of worlds
        self.missing_worlds: set[tuple[str, int]] = set()
        self._is_started = False
        self._concurrency = concurrency
        self._queue = CaseQueue(self.cutoff.matters)
        self._case, self._workers = self._queue.case, self._queue.workers
        self._attempts = CaseAttempts(self._queue, self.cutoff)
        self.counts = self._attempts.counts
        self._stopped = self._concluded = ""
        self._last_message_at = 0.0

    # ---- events

    def start(self) -> list[Order]:
        """Start cases. Messages that workers send earlier are processed, but start nothing."""
        self._is_started = True
        return self._start_cases()

    def expect_to_resume(self, indices: Iterable[int]) -> list[Order]:
        """Note the cases that earlier sessions have a run of, which will probably be resumed."""
        self._attempts.expected_to_resume.update(indices)
        return []

    @property
    def left_to_run(self) -> int:
        """The number of cases that are not completed and will probably not be resumed."""
        return self.total - self.counts.completed - len(self._attempts.expected_to_resume)

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
            self._attempts.crash(index)
        return self._start_cases()

    def receive(self, worker: str, message: messages.WorkerMessage, now: float) -> list[Order]:
        """Process a message of a worker; ignore one from a worker that was removed."""
        if worker not in self._workers:
            return []
        # A standstill is the absence of messages of any kind: while a provider answers, the session moves.
        self._last_message_at = now
        self._attempts.orders += self.requests.check_budget()
        if isinstance(message, messages.RequestMessage):
            return self._attempts.take_orders() + self.requests.receive(worker, message, now)
        if isinstance(message, messages.WorkerClosed):
            return self.remove_worker(worker)
        if isinstance(message, messages.AttemptMessage):
            self._attempts.receive(worker, message)
        else:
            self._receive_item(worker, message)
        return self._start_cases()

    def tick(self, now: float) -> list[Order]:
        """Process the passage of time."""
        # While a case runs or is written, its outcome may still move the cutoff, and the items need not be released.
        is_idle = not self.counts.running + self.counts.pending_writes and now - self._last_message_at > _STANDSTILL
        if self.cutoff.index is not None and is_idle:
            # pytest stands still at an item beyond the cutoff. The item whose failure ends the session may come after
            # it in the same worker, so the wait would never end.
            for index, case in self._queue.cases.items():
                if case.state == "pending" and case.waiting and not self.cutoff.matters(index):
                    self._attempts.deny(index, "cut", "earlier cases failed often enough to end the session")
        self._attempts.orders += self.requests.check_budget()
        return self._attempts.take_orders() + self.requests.tick(now)

    def next_tick(self, now: float) -> float | None:
        """Return the time by which ``tick`` should be called; None if only a message can change anything."""
        return self.requests.next_tick(now)

    def stop(self, reason: str) -> list[Order]:
        """End the session: start nothing, cancel what runs, refuse requests, and release the items that wait."""
        if not self._stopped:
            self._stopped = reason
            self._attempts.is_stopped = True
            # First, so that a case which is canceled too late cannot send another request.
            self.requests.stop(reason)
            for index, case in self._queue.cases.items():
                if case.is_cancelable:
                    self._attempts.cancel(index)
                # A completed case keeps its result: an item that asks for it now still gets its verdict.
                if case.state in ("pending", "running"):
                    self._attempts.deny(index, "stopped", reason)
        return self._attempts.take_orders()

    def conclude(self, reason: str) -> list[Order]:
        """Start nothing more, complete what runs, and release the items whose case has not started."""
        self._concluded = reason
        return self._start_cases()

    def report_item(self, index: int, *, failed: bool) -> list[Order]:
        """Record the outcome that pytest reports for an item, which may be a test without a case."""
        self.cutoff.record(index, failed=failed)
        self._attempts.cancel_beyond_cutoff()
        return self._start_cases()

    def report_crashed_item(self, worker: str, index: int) -> list[Order]:
        """Record that pytest has reported an item as crashed with its worker, so that no item will request its case.

        The worker may have died before it could request the case. Without this, the case would run again in another
        worker although no item needs it, and its agent would end that worker too.
        """
        case = self._case(index)
        # The item will not ask any more, so the attempt counts as canceled instead of being repeated elsewhere.
        if case.state == "running" and case.runner == worker:
            case.is_canceled = True
        orders = self.remove_worker(worker)
        self._abandon(worker, index)
        return orders + self._attempts.take_orders()

    def cases_running_on(self, worker: str) -> list[int]:
        """Return the cases that a worker is running."""
        return sorted(self._workers[worker].running) if worker in self._workers else []

    def undelivered_results(self) -> dict[int, messages.JobResult]:
        """Return the results that no item has received, by index."""
        outcomes = {index: case.outcome for index, case in self._queue.cases.items()}
        return {
            index: outcome.result for index, outcome in outcomes.items() if isinstance(outcome, messages.ResultReady)
        }

    # ---- messages

    def _receive_item(self, worker: str, message: messages.ItemMessage) -> None:
        match message:
            case messages.ItemsCollected(cases):
                self.total = max(self.total, cases)
                # A worker that joins later has missed what all others were told about closed providers and a spent
                # budget.
                self._attempts.orders += self.requests.restrictions(worker)
            case messages.WorldsMissing(worlds):
                self.missing_worlds.update(worlds)
            case messages.CasesOffered(indices):
                self._queue.offer(worker, indices)
            case messages.CasesWithdrawn(indices, token):
                self._queue.withdraw(worker, indices)
                # The worker waits for this before it tears down fixtures: orders sent earlier may still use them.
                self._attempts.send(worker, messages.WithdrawalConfirmed(token))
            case messages.ResultRequested(index):
                self._request(worker, index)
            case messages.RequestAbandoned(index):
                self._abandon(worker, index)
            # Every worker sees the same files and settings, and so posts the same notices.
            case messages.NoticePosted(text) if text not in self.notices:
                self.notices.append(text)

    def _request(self, worker: str, index: int) -> None:
        case = self._case(index)
        if case.state == "delivered":
            # An item that asks a second time is a rerun, which means a new run.
            case.state, case.crashes = "pending", 0
            self.counts.completed -= case.counted
            case.counted = False
        case.waiting.add(worker)
        if case.state == "completed":
            self._attempts.deliver(index)
        elif self._stopped:
            self._attempts.deny(index, "stopped", self._stopped)
        elif case.state == "pending":
            self._queue.request(worker, index)

    def _abandon(self, worker: str, index: int) -> None:
        """Stop waiting for a case: the item was interrupted, or its worker died."""
        case = self._case(index)
        case.waiting.discard(worker)
        if case.waiting:
            return
        if case.is_cancelable:
            self._attempts.cancel(index)
        elif case.state == "pending":
            case.state = "delivered"

    # ---- decisions

    def _start_cases(self) -> list[Order]:
        if self._concluded:
            for index, case in self._queue.cases.items():
                if case.state == "pending" and case.waiting:
                    self._attempts.deny(index, "decided", self._concluded)
            return self._attempts.take_orders()
        while self._is_started and not self._stopped and self._has_room:
            pick = self._queue.next()
            if pick is None:
                break
            self._attempts.start(*pick)
        return self._attempts.take_orders()

    @property
    def _has_room(self) -> bool:
        # Without the half, a provider that makes all cases wait would let ever more cases start, which all wait as
        # well.
        counts = self.counts
        counted = counts.running - min(counts.stalled, self._concurrency // 2)
        return counted < self._concurrency and counts.running + counts.pending_writes < 2 * self._concurrency


class TimeEstimate(NamedTuple):
    """The remaining time and its basis: ``cases`` were run in ``elapsed`` seconds, and ``cases_left`` will be."""

    seconds: int
    elapsed: float
    cases: int
    cases_left: int


class RemainingTime:
    """Estimates the remaining time of one session, from its first case on."""

    def __init__(self) -> None:
        self._begun: float | None = None
        self._seconds = 0

    def estimate(self, coordinator: Coordinator, now: float) -> TimeEstimate | None:
        """Return an estimate; None as long as no case was run. Resumed cases take no time, so they do not count.

        ``now`` is in seconds of a monotonic clock. The first call that finds a case starts the measurement.
        """
        if self._begun is None and coordinator.counts.running + coordinator.counts.completed:
            self._begun = now
        cases, cases_left = coordinator.counts.completed - coordinator.counts.resumed, coordinator.left_to_run
        if self._begun is None or cases <= 0 or cases_left <= 0:
            return None
        elapsed = now - self._begun
        seconds = int(elapsed / cases * cases_left)
        # While no case ends, the average rate falls. So a slightly longer time is not shown.
        if not self._seconds <= seconds <= self._seconds * 1.25 + 2:
            self._seconds = seconds
        return TimeEstimate(self._seconds, elapsed, cases, cases_left)
