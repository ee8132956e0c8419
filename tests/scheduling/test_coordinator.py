"""The coordinator as a state machine: whatever workers do, no case is lost or runs twice at a time, and it always ends."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pytest_toolemu.scheduling.adaptive_limit import RequestOutcome
from pytest_toolemu.scheduling.budget import Budget
from pytest_toolemu.scheduling.circuit_breaker import LIMIT
from pytest_toolemu.scheduling.coordinator import Coordinator
from pytest_toolemu.scheduling.coordinator_messages import (
    CancelCase,
    CaseCancelled,
    CaseCompleted,
    CaseFinished,
    CasesOffered,
    CaseStalled,
    CasesWithdrawn,
    CaseUnstalled,
    CoordinatorMessage,
    EndpointLost,
    ItemsCollected,
    NoticePosted,
    Order,
    PermitGranted,
    PermitRefused,
    PermitReleased,
    PermitRequested,
    ProviderClosed,
    ProviderFailed,
    ProviderSucceeded,
    RequestAbandoned,
    RequestsHalted,
    ResultReady,
    ResultRequested,
    ResultUnavailable,
    RunCase,
    SessionHalted,
    UsageReported,
    WithdrawalConfirmed,
    WorkerMessage,
)
from pytest_toolemu.scheduling.job import CaseRun


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


def test_cases_start_in_order_up_to_the_limit_and_more_start_as_others_end() -> None:
    workers = Workers(concurrency=2)
    workers.join("a")
    assert runs(workers.send("a", CasesOffered((0, 3, 1, 2)))) == [("a", 0), ("a", 1)]
    assert runs(workers.send("a", CaseCompleted(1, 1, False, stored("one")))) == [("a", 2)]
    assert runs(workers.send("a", CaseCancelled(7, 1))) == []


def test_cases_go_to_the_worker_that_runs_least() -> None:
    workers = Workers(concurrency=4)
    workers.join("a", "b")
    workers.send("b", CasesOffered((1, 2, 3)))
    assert runs(workers.send("a", CasesOffered((1, 2, 3, 4)))) == [("a", 4)]


def test_withdrawn_cases_are_not_ordered_after_the_confirmation() -> None:
    workers = Workers(concurrency=1)
    workers.join("a")
    assert runs(workers.send("a", CasesOffered((0, 1)))) == [("a", 0)]
    assert workers.send("a", CasesWithdrawn((0, 1), 7)) == [Order("a", WithdrawalConfirmed(7))]
    assert workers.send("a", CaseCompleted(0, 1, False, stored(""))) == []


def test_a_stalled_case_frees_its_slot_and_takes_one_when_it_continues() -> None:
    workers = Workers(concurrency=2)
    workers.join("a")
    assert runs(workers.send("a", CasesOffered(tuple(range(6))))) == [("a", 0), ("a", 1)]
    assert runs(workers.send("a", CaseStalled(0, 1))) == [("a", 2)]
    assert runs(workers.send("a", CaseStalled(1, 1))) == [], "half as many as may run, and no more"
    assert workers.send("a", CaseUnstalled(0, 1)) == []
    assert runs(workers.send("a", CaseCompleted(2, 1, False, stored("")))) == [("a", 3)]
    assert runs(workers.send("a", CaseCompleted(1, 1, False, stored("")))) == []
    assert runs(workers.send("a", CaseCompleted(0, 1, False, stored("")))) == [("a", 4)]


def test_a_concluded_session_completes_what_runs_and_denies_what_has_not_started() -> None:
    workers = Workers(concurrency=1)
    workers.join("a", "b")
    assert runs(workers.send("a", CasesOffered((0, 1, 2)))) == [("a", 0)]
    assert workers.send("b", ResultRequested(1)) == []
    assert workers.coordinator.conclude("decided") == [Order("b", ResultUnavailable(1, "decided", "decided"))]
    assert workers.send("a", CaseCompleted(0, 1, False, stored("kept"))) == []
    assert workers.send("a", ResultRequested(0)) == [Order("a", ResultReady(0, stored("kept")))]
    assert workers.send("a", ResultRequested(2)) == [Order("a", ResultUnavailable(2, "decided", "decided"))]


def test_a_case_whose_worker_dies_after_the_conclusion_is_denied_to_the_item_that_waits() -> None:
    workers = Workers(concurrency=1)
    workers.join("a", "b")
    workers.send("a", CasesOffered((0,)))
    workers.send("b", ResultRequested(0))
    workers.coordinator.conclude("decided")
    assert workers.coordinator.remove_worker("a") == [Order("b", ResultUnavailable(0, "decided", "decided"))]


def test_with_a_concurrency_of_one_a_stalled_case_frees_no_slot() -> None:
    workers = Workers(concurrency=1)
    workers.join("a")
    assert runs(workers.send("a", CasesOffered((0, 1)))) == [("a", 0)]
    assert workers.send("a", CaseStalled(0, 1)) == []


def test_a_stalled_case_whose_worker_dies_is_not_counted_any_more() -> None:
    workers = Workers(concurrency=2)
    workers.join("a", "b")
    workers.send("a", CasesOffered((0,)))
    workers.send("a", CaseStalled(0, 1))
    workers.coordinator.remove_worker("a")
    assert (workers.coordinator.running, workers.coordinator.stalled) == (0, 0)
    assert workers.send("b", CaseUnstalled(0, 1)) == []
    assert workers.coordinator.stalled == 0


def test_a_finished_case_frees_its_slot_while_the_number_of_pending_writes_is_limited() -> None:
    workers = Workers(concurrency=1)
    workers.join("a")
    assert runs(workers.send("a", CasesOffered((0, 1, 2)))) == [("a", 0)]
    assert runs(workers.send("a", CaseFinished(0, 1, False))) == [("a", 1)]
    assert runs(workers.send("a", CaseFinished(1, 1, False))) == []
    assert runs(workers.send("a", CaseCompleted(0, 1, False, stored("")))) == [("a", 2)]


def test_a_finished_case_that_failed_ends_the_session_before_it_is_written_and_is_not_cancelled() -> None:
    workers = Workers(concurrency=2, maxfail=1)
    workers.join("a")
    assert runs(workers.send("a", CasesOffered((0, 1, 2)))) == [("a", 0), ("a", 1)]
    assert workers.send("a", CaseFinished(1, 1, True)) == []
    assert workers.send("a", CaseFinished(0, 1, True)) == []
    assert workers.send("a", CaseCompleted(1, 1, True, stored(""))) == []
    assert workers.coordinator.cutoff.index == 0
    assert workers.coordinator.completed == 1


def test_the_failure_of_a_case_whose_worker_died_before_writing_it_is_forgotten() -> None:
    workers = Workers(concurrency=2, maxfail=1)
    workers.join("a", "b")
    workers.send("b", CasesOffered((0, 3)))
    workers.send("a", CasesOffered((0,)))
    runner = "b" if 0 in workers.coordinator.cases_running_on("b") else "a"
    workers.send(runner, CaseFinished(0, 1, True))
    assert workers.coordinator.cutoff.index == 0
    workers.coordinator.remove_worker(runner)
    assert workers.coordinator.cutoff.index is None


def test_a_case_whose_item_is_interrupted_while_it_is_written_keeps_its_result() -> None:
    workers = Workers(concurrency=1)
    workers.join("a")
    workers.send("a", ResultRequested(0))
    workers.send("a", CaseFinished(0, 1, False))
    assert workers.send("a", RequestAbandoned(0)) == []
    assert workers.send("a", CaseCompleted(0, 1, False, stored("kept"))) == []
    assert workers.send("a", ResultRequested(0)) == [Order("a", ResultReady(0, stored("kept")))]


def test_a_result_is_sent_to_the_waiting_item_in_any_worker() -> None:
    workers = Workers()
    workers.join("a", "b")
    workers.send("a", CasesOffered((0,)))
    assert workers.send("b", ResultRequested(0)) == []
    assert workers.send("a", CaseCompleted(0, 1, False, stored("it"))) == [Order("b", ResultReady(0, stored("it")))]


def test_a_result_is_kept_until_it_is_requested_and_a_second_request_runs_the_case_again() -> None:
    workers = Workers()
    workers.join("a")
    workers.send("a", CasesOffered((0,)))
    workers.send("a", CaseCompleted(0, 1, False, stored("first")))
    assert workers.send("a", ResultRequested(0)) == [Order("a", ResultReady(0, stored("first")))]
    assert workers.send("a", ResultRequested(0)) == [Order("a", RunCase(0, 2))]
    assert workers.send("a", CaseCompleted(0, 1, False, stored("an old attempt's"))) == []
    assert workers.send("a", CaseCompleted(0, 2, False, stored("second"))) == [
        Order("a", ResultReady(0, stored("second")))
    ]


def test_a_case_that_was_not_offered_runs_at_its_items_turn_in_the_worker_of_the_item() -> None:
    workers = Workers()
    workers.join("a", "b")
    assert workers.send("b", ResultRequested(7)) == [Order("b", RunCase(7, 1))]


def test_a_requested_case_starts_before_the_lookahead() -> None:
    workers = Workers(concurrency=1)
    workers.join("a")
    workers.send("a", CasesOffered((0, 1)))
    workers.send("a", ResultRequested(5))
    assert runs(workers.send("a", CaseCompleted(0, 1, False, stored("")))) == [("a", 5)]


def test_the_case_of_an_interrupted_item_is_cancelled_and_a_rerun_starts_it_again() -> None:
    workers = Workers()
    workers.join("a", "b")
    workers.send("a", CasesOffered((0,)))
    workers.send("b", ResultRequested(0))
    assert workers.send("b", RequestAbandoned(0)) == [Order("a", CancelCase(0, 1))]
    assert workers.send("b", ResultRequested(0)) == []
    assert workers.send("a", CaseCancelled(0, 1)) == [Order("b", RunCase(0, 2))]


def test_cases_of_a_worker_that_dies_run_again_elsewhere() -> None:
    workers = Workers(concurrency=4)
    workers.join("a", "b")
    workers.send("a", CasesOffered((0, 1)))
    workers.send("b", CasesOffered((0, 1)))
    workers.send("b", ResultRequested(0))
    # They run one at a time, so that the next death shows which case ends its worker.
    assert workers.coordinator.remove_worker("a") == [Order("b", RunCase(0, 2))]
    assert workers.send("b", CaseCompleted(0, 2, False, stored("it"))) == [
        Order("b", ResultReady(0, stored("it"))),
        Order("b", RunCase(1, 2)),
    ]


def test_a_case_during_which_two_workers_died_is_not_run_again() -> None:
    workers = Workers()
    workers.join("a", "b", "c")
    for worker in "abc":
        workers.send(worker, CasesOffered((0,)))
    assert workers.coordinator.remove_worker("a") == [Order("b", RunCase(0, 2))]
    assert workers.coordinator.remove_worker("b") == []
    reason = "the worker process died 2 times while it ran this case; its agent ends the process"
    assert workers.send("c", ResultRequested(0)) == [Order("c", ResultUnavailable(0, "broken", reason))]


def test_the_case_of_an_item_that_died_with_its_worker_is_cancelled() -> None:
    workers = Workers()
    workers.join("a", "b")
    workers.send("b", CasesOffered((0,)))
    workers.send("a", ResultRequested(0))
    assert workers.coordinator.remove_worker("a") == [Order("b", CancelCase(0, 1))]


def test_a_case_whose_item_was_reported_as_crashed_does_not_run_again() -> None:
    """Its worker died before it could request the case."""
    workers = Workers()
    workers.join("a", "b")
    workers.send("a", CasesOffered((0,)))
    workers.send("b", CasesOffered((0,)))
    assert workers.coordinator.report_crashed_item("a", 0) == []
    assert workers.coordinator.remove_worker("a") == []


def test_a_case_that_runs_in_another_worker_is_cancelled_if_its_item_is_reported_as_crashed() -> None:
    workers = Workers()
    workers.join("a", "b")
    workers.send("a", CasesOffered((0,)))
    workers.send("b", CasesOffered((0,)))
    assert workers.coordinator.remove_worker("a") == [Order("b", RunCase(0, 2))]
    assert workers.coordinator.report_crashed_item("a", 0) == [Order("b", CancelCase(0, 2))]


def test_cases_after_the_failure_that_ends_the_session_are_not_started_or_are_cancelled() -> None:
    workers = Workers(concurrency=3, maxfail=1)
    workers.join("a")
    workers.send("a", CasesOffered((0,)))
    workers.send("a", CasesOffered((1,)))
    workers.send("a", CasesOffered((2, 3, 4)))
    assert workers.send("a", CaseCompleted(1, 1, True, stored("bad"))) == [Order("a", CancelCase(2, 1))]
    assert workers.send("a", CaseCancelled(2, 1)) == []
    assert workers.send("a", CaseCompleted(0, 1, False, stored("good"))) == []


def test_cases_after_the_cutoff_start_if_the_failure_turns_out_to_be_none() -> None:
    workers = Workers(concurrency=1, maxfail=1)
    workers.join("a")
    workers.send("a", CasesOffered((0, 1)))
    workers.send("a", CaseCompleted(0, 1, True, stored("bad")))
    assert workers.send("a", ResultRequested(1)) == []
    assert workers.coordinator.report_item(0, failed=False) == [Order("a", RunCase(1, 1))]


def test_failures_of_other_tests_count_too() -> None:
    workers = Workers(concurrency=1, maxfail=2)
    workers.join("a")
    workers.send("a", CasesOffered((1, 2)))
    workers.coordinator.report_item(0, failed=True)
    assert runs(workers.send("a", CaseCompleted(1, 1, True, stored("bad")))) == []


def test_an_item_after_the_cutoff_is_released_when_nothing_happens_any_more() -> None:
    workers = Workers(maxfail=1)
    workers.join("a", "b")
    workers.send("a", CasesOffered((0,)))
    workers.send("a", CaseCompleted(0, 1, True, stored("bad")))
    workers.send("b", ResultRequested(5))
    assert workers.coordinator.tick(0.5) == []
    reason = "earlier cases failed often enough to end the session"
    assert workers.coordinator.tick(1.5) == [Order("b", ResultUnavailable(5, "cut", reason))]


def test_a_stop_cancels_cases_releases_waiting_items_and_starts_nothing() -> None:
    workers = Workers(concurrency=1)
    workers.join("a")
    workers.send("a", CasesOffered((0, 1)))
    workers.send("a", ResultRequested(0))
    orders = workers.coordinator.stop("interrupted")
    assert orders == [Order("a", CancelCase(0, 1)), Order("a", ResultUnavailable(0, "stopped", "interrupted"))]
    assert workers.send("a", CaseCancelled(0, 1)) == []
    assert workers.send("a", ResultRequested(1)) == [Order("a", ResultUnavailable(1, "stopped", "interrupted"))]
    assert workers.send("a", PermitRequested("model", 1)) == [Order("a", PermitRefused(1, "interrupted"))]


def test_a_request_after_the_stop_is_denied_even_if_the_case_is_still_ending() -> None:
    workers = Workers()
    workers.join("a")
    workers.send("a", CasesOffered((0,)))
    workers.coordinator.stop("interrupted")
    assert workers.send("a", ResultRequested(0)) == [Order("a", ResultUnavailable(0, "stopped", "interrupted"))]


def test_once_the_budget_is_spent_permits_are_refused_and_all_workers_are_informed() -> None:
    workers = Workers(budget=Budget(tokens=100))
    workers.join("a", "b")
    assert workers.send("a", PermitRequested("model", 1)) == [Order("a", PermitGranted(1))]
    assert workers.send("a", UsageReported(60, 0.0, False)) == []
    reason = "the budget of 100 tokens is spent (120); raise --toolemu-budget-tokens, or run fewer cases with --toolemu-sample"
    assert workers.send("b", UsageReported(60, 0.0, False)) == [
        Order("a", RequestsHalted(reason)),
        Order("b", RequestsHalted(reason)),
    ]
    assert workers.send("b", PermitRequested("model", 2)) == [Order("b", PermitRefused(2, reason))]
    # Cases still start: one may be resumed from an earlier session, or need no model.
    assert workers.send("a", CasesOffered((0,))) == [Order("a", RunCase(0, 1))]
    workers.join("c")
    assert workers.send("c", ItemsCollected(3)) == [Order("c", RequestsHalted(reason))]


def test_a_deadline_passes_without_any_message() -> None:
    clock = iter([0.0, 9.0, 11.0])
    workers = Workers(budget=Budget(seconds=10, until=10, clock=lambda: next(clock)))
    workers.join("a")
    assert workers.coordinator.tick(0) == workers.coordinator.tick(0) == []
    assert workers.coordinator.tick(0) == [
        Order("a", RequestsHalted("the deadline of 10 s has passed; raise --toolemu-deadline"))
    ]


def test_an_attempt_that_cancels_itself_has_no_result() -> None:
    workers = Workers()
    workers.join("a")
    workers.send("a", ResultRequested(0))
    reason = "its run was canceled by its agent or an emulator"
    assert workers.send("a", CaseCancelled(0, 1)) == [Order("a", ResultUnavailable(0, "broken", reason))]


def test_no_case_starts_before_the_coordinator_is_started() -> None:
    coordinator = Coordinator(2)
    coordinator.add_worker("a")
    assert coordinator.receive("a", CasesOffered((0,)), 0) == []
    assert coordinator.start() == [Order("a", RunCase(0, 1))]


def test_requests_of_all_workers_share_a_limit_that_starts_at_two_per_case() -> None:
    workers = Workers(concurrency=1)
    workers.join("a", "b")
    assert workers.send("a", PermitRequested("model", 1)) == [Order("a", PermitGranted(1))]
    assert workers.send("b", PermitRequested("model", 1)) == [Order("b", PermitGranted(1))]
    assert workers.send("b", PermitRequested("model", 2)) == []
    assert workers.send("b", PermitRequested("another", 3)) == [Order("b", PermitGranted(3))]
    workers.coordinator.remove_worker("a")
    assert workers.coordinator.tick(0.0) == [Order("b", PermitGranted(2))]


def test_permits_for_a_dead_server_are_refused_with_the_reason_and_others_are_granted() -> None:
    workers = Workers(concurrency=1)
    workers.join("a", "b")
    assert workers.send("a", PermitRequested("dead", 1)) == [Order("a", PermitGranted(1))]
    assert workers.send("a", PermitRequested("dead", 2)) == [Order("a", PermitGranted(2))]
    assert workers.send("b", PermitRequested("dead", 7)) == []
    assert workers.send("b", PermitRequested("alive", 8)) == [Order("b", PermitGranted(8))]
    orders = workers.coordinator.requests.lose(["dead"], "it has ended with 0")
    assert Order("b", EndpointLost(7, "it has ended with 0")) in orders
    closed = ProviderClosed("dead", "it has ended with 0, so no more cases that need it are started")
    assert [order for order in orders if order.message == closed] == [Order("a", closed), Order("b", closed)]
    workers.join("c")
    assert workers.send("c", ItemsCollected(3)) == [Order("c", closed)]
    assert workers.send("a", PermitReleased(1, RequestOutcome("failed"))) == []
    assert workers.send("a", PermitRequested("dead", 3)) == [Order("a", EndpointLost(3, "it has ended with 0"))]
    assert workers.send("b", PermitReleased(8, RequestOutcome("ok"))) == []
    assert workers.send("b", PermitRequested("alive", 9)) == [Order("b", PermitGranted(9))]


def test_equal_notices_of_workers_are_kept_once() -> None:
    workers = Workers()
    workers.join("a", "b")
    workers.send("a", NoticePosted("blocked"))
    workers.send("b", NoticePosted("blocked"))
    assert workers.coordinator.notices == ["blocked"]


def fails(workers: Workers, worker: str, account: str, kind: str = "401", times: int = 1) -> list[Order]:
    """Report equal failures of a worker, and return the orders that follow from the last one."""
    orders: list[Order] = []
    for _ in range(times):
        orders = workers.send(worker, ProviderFailed(account, kind, "the key was refused"))
    return orders


def test_equal_failures_in_a_row_of_any_workers_close_a_provider_for_all() -> None:
    workers = Workers(concurrency=1)
    workers.join("a", "b")
    for ticket in (1, 2):
        assert workers.send("a", PermitRequested("model", ticket)) == [Order("a", PermitGranted(ticket))]
    assert workers.send("b", PermitRequested("model", 7)) == []
    assert fails(workers, "a", "model", times=LIMIT - 1) == []
    orders = fails(workers, "b", "model")
    reason = workers.coordinator.requests.breaker.open["model"]
    assert reason.endswith("no more cases that need it are started: the key was refused")
    assert f"failed {LIMIT} times in a row" in reason
    # Waiting requests are refused, and all workers are informed, including one that joins later.
    assert Order("b", PermitRefused(7, reason)) in orders
    assert [order for order in orders if isinstance(order.message, ProviderClosed)] == [
        Order("a", ProviderClosed("model", reason)),
        Order("b", ProviderClosed("model", reason)),
    ]
    assert workers.send("a", PermitRequested("model", 8)) == [Order("a", PermitRefused(8, reason))]
    assert workers.send("a", PermitRequested("another", 9)) == [Order("a", PermitGranted(9))]
    workers.join("c")
    assert workers.send("c", ItemsCollected(3)) == [Order("c", ProviderClosed("model", reason))]
    assert fails(workers, "a", "model", times=LIMIT) == [], "said once"


def test_a_success_or_a_failure_of_another_kind_restarts_the_count() -> None:
    workers = Workers()
    workers.join("a")
    fails(workers, "a", "model", times=LIMIT - 1)
    workers.send("a", PermitRequested("model", 1))
    workers.send("a", PermitReleased(1, RequestOutcome("ok")))
    fails(workers, "a", "model", "401", times=LIMIT - 1)
    fails(workers, "a", "model", "503", times=LIMIT - 1)
    fails(workers, "a", "another", "503", times=LIMIT - 1)
    workers.send("a", ProviderSucceeded("model"))
    fails(workers, "a", "model", "503", times=LIMIT - 1)
    assert workers.coordinator.requests.breaker.open == {}


def test_once_records_cannot_be_written_permits_are_refused_and_all_workers_are_informed() -> None:
    workers = Workers()
    workers.join("a", "b")
    assert workers.send("a", SessionHalted("no space")) == [
        Order("a", RequestsHalted("no space")),
        Order("b", RequestsHalted("no space")),
    ]
    assert workers.send("b", SessionHalted("no space either")) == []
    assert workers.send("b", PermitRequested("model", 2)) == [Order("b", PermitRefused(2, "no space"))]


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
        self.cancelled: set[tuple[int, int]] = set()
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
                self.cancelled.add((index, attempt))
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
        message = CaseUnstalled(*run) if run in self.stalled else CaseStalled(*run)
        if run not in self.finished:
            self.stalled ^= {run}
        self.send(self.running[run], message)

    @precondition(lambda self: self.running.keys() - self.finished.keys() - self.cancelled)
    @rule(data=st.data(), failed=st.booleans())
    def finish_one(self, data: st.DataObject, failed: bool) -> None:
        run = data.draw(st.sampled_from(sorted(self.running.keys() - self.finished.keys() - self.cancelled)))
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
        if run in self.cancelled:
            self.cancelled.discard(run)
            self.send(worker, CaseCancelled(index, attempt))
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
            self.cancelled.discard(run)
            self.deaths[run[0]] = self.deaths.get(run[0], 0) + 1
        if item is None:
            self.obey(self.coordinator.remove_worker(worker))
        else:
            self.obey(self.coordinator.report_crashed_item(worker, item))
            assert all(run in self.cancelled | self.finished.keys() for run in self.running if run[0] == item)

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
            assert (self.coordinator.running, self.coordinator.stalled, self.coordinator.pending_writes) == (
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
