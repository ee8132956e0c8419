"""The coordinator as a state machine: whatever workers do, no case is lost or runs twice at a time, and it always ends."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pytest_toolemu.scheduling.adaptive_limit import RequestOutcome
from pytest_toolemu.scheduling.coordinator import Coordinator
from pytest_toolemu.scheduling.coordinator_messages import (
    CancelCase,
    CaseCanceled,
    CaseCompleted,
    CaseFinished,
    CasesOffered,
    CaseStalled,
    CasesWithdrawn,
    CoordinatorMessage,
    ItemsCollected,
    Order,
    PermitGranted,
    PermitRefused,
    PermitReleased,
    PermitRequested,
    ProviderClosed,
    ProviderFailed,
    RequestAbandoned,
    ResultReady,
    ResultRequested,
    ResultUnavailable,
    RunCase,
    WorkerMessage,
)
from pytest_toolemu.scheduling.request_limits import LIMIT
from tests.scheduling.scripted_workers import stored

CASES = 12
ACCOUNTS = ("one", "other")
WORKERS = ("a", "b", "c")


class Session(RuleBasedStateMachine):
    """Workers that take their items in any order, follow orders, die, give up and rerun."""

    @initialize(concurrency=st.integers(1, 5), maxfail=st.integers(0, 3))
    def begin(self, concurrency: int, maxfail: int) -> None:
        self.coordinator = Coordinator(concurrency, maxfail)
        self.coordinator.start()
        self.concurrency = concurrency
        self.now = 0.0
        self.alive: set[str] = set()
        self.born = 0
        self.running: dict[tuple[int, int], str] = {}
        self.canceled: set[tuple[int, int]] = set()
        self.stalled: set[tuple[int, int]] = set()
        self.finished: dict[tuple[int, int], bool] = {}
        self.failed: set[int] = set()
        self.maxfail = maxfail
        self.waiting: dict[str, int] = {}
        self.answers = 0
        self.deaths: dict[int, int] = {}
        self.ended = False
        self.tickets = 0
        self.asking: dict[int, tuple[str, str]] = {}
        self.sent_requests: dict[int, tuple[str, str]] = {}
        self.streaks: dict[str, tuple[str, int]] = {}
        self.closed_providers: set[str] = set()
        self.closed_for: dict[str, set[str]] = {}

    def obey(self, orders: Iterable[Order]) -> None:
        for order in orders:
            if order.worker in self.alive:
                self.follow(order.worker, order.message)

    def follow(self, worker: str, message: CoordinatorMessage) -> None:
        match message:
            case RunCase(index, attempt):
                assert not self.ended
                assert index not in [other for other, _ in self.running], "a case runs twice at once"
                assert (
                    len(self.running) - len(self.finished) - min(len(self.stalled), self.concurrency // 2)
                    < self.concurrency
                )
                self.running[index, attempt] = worker
            case CancelCase(index, attempt):
                assert self.running.get((index, attempt)) == worker
                self.canceled.add((index, attempt))
            case ResultReady(index, result):
                assert self.waiting.pop(worker) == index
                assert result == stored(f"result of {index}")
            case ResultUnavailable(index, kind, _):
                assert self.waiting.pop(worker) == index
                assert kind in ("stopped", "cut", "broken")
                assert kind != "broken" or self.deaths.get(index, 0) >= 2
            case PermitGranted(ticket):
                assert self.asking[ticket][1] not in self.closed_providers, "a request to a provider that is closed"
                self.sent_requests[ticket] = self.asking.pop(ticket)
            case PermitRefused(ticket, _):
                self.asking.pop(ticket, None)
                self.sent_requests.pop(ticket, None)
            case ProviderClosed(key, _):
                self.closed_for.setdefault(worker, set()).add(key)

    def send(self, worker: str, message: WorkerMessage) -> None:
        self.now += 0.01
        self.obey(self.coordinator.receive(worker, message, self.now))

    @precondition(lambda self: len(self.alive) < len(WORKERS))
    @rule()
    def join(self) -> None:
        self.born += 1
        worker = f"w{self.born}"
        self.alive.add(worker)
        self.coordinator.add_worker(worker)
        self.send(worker, ItemsCollected(CASES))
        assert self.closed_for.get(worker, set()) == self.closed_providers

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), indices=st.sets(st.integers(0, CASES - 1)))
    def offer(self, data: st.DataObject, indices: set[int]) -> None:
        self.send(data.draw(st.sampled_from(sorted(self.alive))), CasesOffered(tuple(sorted(indices))))

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), indices=st.sets(st.integers(0, CASES - 1)))
    def withdraw(self, data: st.DataObject, indices: set[int]) -> None:
        self.send(data.draw(st.sampled_from(sorted(self.alive))), CasesWithdrawn(tuple(sorted(indices)), 1))

    @precondition(lambda self: self.alive - self.waiting.keys())
    @rule(data=st.data(), index=st.integers(0, CASES - 1))
    def request_result(self, data: st.DataObject, index: int) -> None:
        worker = data.draw(st.sampled_from(sorted(self.alive - self.waiting.keys())))
        if index in self.waiting.values():
            return
        self.waiting[worker] = index
        self.send(worker, ResultRequested(index))

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def abandon(self, data: st.DataObject) -> None:
        worker = data.draw(st.sampled_from(sorted(self.waiting)))
        self.send(worker, RequestAbandoned(self.waiting.pop(worker)))

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), account=st.sampled_from(ACCOUNTS))
    def request_permit(self, data: st.DataObject, account: str) -> None:
        worker = data.draw(st.sampled_from(sorted(self.alive)))
        self.tickets += 1
        self.asking[self.tickets] = worker, account
        self.send(worker, PermitRequested(account, self.tickets))

    @precondition(lambda self: self.sent_requests)
    @rule(data=st.data(), status=st.sampled_from(["ok", "busy", "failed"]))
    def answer(self, data: st.DataObject, status: Literal["ok", "busy", "failed"]) -> None:
        worker, account = self.sent_requests.pop(ticket := data.draw(st.sampled_from(sorted(self.sent_requests))))
        if status == "ok":
            self.streaks.pop(account, None)
        self.send(worker, PermitReleased(ticket, RequestOutcome(status)))

    @precondition(lambda self: self.alive)
    @rule(
        data=st.data(),
        account=st.sampled_from(ACCOUNTS),
        kind=st.sampled_from(["401", "503"]),
        times=st.integers(1, LIMIT),
    )
    def outage(self, data: st.DataObject, account: str, kind: str, times: int) -> None:
        """Let requests of one worker fail for good."""
        worker = data.draw(st.sampled_from(sorted(self.alive)))
        for _ in range(times):
            former, count = self.streaks.get(account, (kind, 0))
            self.streaks[account] = kind, (count + 1 if former == kind else 1)
            if self.streaks[account][1] >= LIMIT:
                self.closed_providers.add(account)
            self.send(worker, ProviderFailed(account, kind, "it fails"))

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def stall_or_unstall_one(self, data: st.DataObject) -> None:
        """Toggle a case; a request that outlives its case stalls nothing any more."""
        run = data.draw(st.sampled_from(sorted(self.running)))
        message = CaseStalled(*run, run not in self.stalled)
        if run not in self.finished:
            self.stalled ^= {run}
        self.send(self.running[run], message)

    @precondition(lambda self: self.running.keys() - self.finished.keys() - self.canceled)
    @rule(data=st.data(), failed=st.booleans())
    def finish_one(self, data: st.DataObject, failed: bool) -> None:
        run = data.draw(st.sampled_from(sorted(self.running.keys() - self.finished.keys() - self.canceled)))
        self.finished[run] = failed
        self.stalled.discard(run)
        self.send(self.running[run], CaseFinished(*run, failed))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), failed=st.booleans())
    def complete_one(self, data: st.DataObject, failed: bool) -> None:
        self.complete(data.draw(st.sampled_from(sorted(self.running))), failed)

    def complete(self, run: tuple[int, int], failed: bool) -> None:
        worker = self.running.pop(run)
        index, attempt = run
        failed = self.finished.pop(run, failed)
        self.stalled.discard(run)
        if run in self.canceled:
            self.canceled.discard(run)
            self.send(worker, CaseCanceled(index, attempt))
        else:
            self.failed |= {index} if failed else set()
            self.send(worker, CaseCompleted(index, attempt, failed, stored(f"result of {index}")))

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        self.lose(data.draw(st.sampled_from(sorted(self.alive))))

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), index=st.integers(0, CASES - 1))
    def die_with_an_item(self, data: st.DataObject, index: int) -> None:
        """pytest reports the item as crashed: no other worker waits for it."""
        worker = data.draw(st.sampled_from(sorted(self.alive)))
        if index not in {item for other, item in self.waiting.items() if other != worker}:
            self.lose(worker, index)

    def lose(self, worker: str, item: int | None = None) -> None:
        self.alive.discard(worker)
        self.waiting.pop(worker, None)
        for requests in (self.asking, self.sent_requests):
            for ticket in [ticket for ticket, (asker, _) in requests.items() if asker == worker]:
                del requests[ticket]
        for run in [run for run, runner in self.running.items() if runner == worker]:
            del self.running[run]
            self.finished.pop(run, None)
            self.stalled.discard(run)
            self.canceled.discard(run)
            self.deaths[run[0]] = self.deaths.get(run[0], 0) + 1
        if item is None:
            self.obey(self.coordinator.remove_worker(worker))
        else:
            self.obey(self.coordinator.report_crashed_item(worker, item))
            assert all(run in self.canceled | self.finished.keys() for run in self.running if run[0] == item)

    @rule(index=st.integers(0, CASES - 1), failed=st.booleans())
    def report(self, index: int, failed: bool) -> None:
        self.failed = self.failed | {index} if failed else self.failed - {index}
        self.obey(self.coordinator.report_item(index, failed=failed))

    @rule()
    def stop(self) -> None:
        orders = self.coordinator.stop("interrupted")
        self.ended = True
        self.obey(orders)
        assert not self.waiting

    @rule(seconds=st.floats(0, 3))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.obey(self.coordinator.tick(self.now))

    @invariant()
    def runs_no_more_cases_than_allowed(self) -> None:
        if hasattr(self, "coordinator"):
            running = len(self.running) - len(self.finished)
            assert running <= self.concurrency + self.concurrency // 2
            assert len(self.running) <= 2 * self.concurrency
            assert (
                self.coordinator.counts.running,
                self.coordinator.counts.stalled,
                self.coordinator.counts.pending_writes,
            ) == (
                running,
                len(self.stalled),
                len(self.finished),
            )

    @invariant()
    def closes_providers_that_keep_failing_and_lets_no_request_wait_for_them(self) -> None:
        if hasattr(self, "coordinator"):
            assert self.coordinator.requests.breaker.open.keys() == self.closed_providers
            assert not [account for _, account in self.asking.values() if account in self.closed_providers]

    @invariant()
    def cuts_off_at_the_failure_that_ends_the_session(self) -> None:
        if hasattr(self, "coordinator"):
            failed = sorted(self.failed | {index for (index, _), failed in self.finished.items() if failed})
            assert self.coordinator.cutoff.index == (
                failed[self.maxfail - 1] if 0 < self.maxfail <= len(failed) else None
            )

    def teardown(self) -> None:
        """Let everything end: every item that waits gets an outcome."""
        if not hasattr(self, "coordinator"):
            return
        for _ in range(1000):
            if not self.waiting:
                return
            if self.running:
                self.complete(min(self.running), failed=False)
            else:
                self.now += 2.0
                self.obey(self.coordinator.tick(self.now))
        raise AssertionError(f"these wait forever: {self.waiting}")


Session.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestSession = Session.TestCase
