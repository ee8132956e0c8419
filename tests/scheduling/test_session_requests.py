"""What the coordinator says about requests: limits of all workers together, budgets, and providers that fail."""

from __future__ import annotations

from pytest_toolemu.scheduling.adaptive_limit import RequestOutcome
from pytest_toolemu.scheduling.budget import Budget
from pytest_toolemu.scheduling.coordinator_messages import (
    CasesOffered,
    ItemsCollected,
    Order,
    PermitGranted,
    PermitRefused,
    PermitReleased,
    PermitRequested,
    ProviderClosed,
    ProviderFailed,
    ProviderSucceeded,
    RequestsHalted,
    RunCase,
    SessionHalted,
    UsageReported,
)
from pytest_toolemu.scheduling.request_limits import LIMIT
from tests.scheduling.scripted_workers import Workers


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
    assert Order("b", PermitRefused(7, "it has ended with 0", is_lost=True)) in orders
    closed = ProviderClosed("dead", "it has ended with 0, so no more cases that need it are started")
    assert [order for order in orders if order.message == closed] == [Order("a", closed), Order("b", closed)]
    workers.join("c")
    assert workers.send("c", ItemsCollected(3)) == [Order("c", closed)]
    assert workers.send("a", PermitReleased(1, RequestOutcome("failed"))) == []
    assert workers.send("a", PermitRequested("dead", 3)) == [
        Order("a", PermitRefused(3, "it has ended with 0", is_lost=True))
    ]
    assert workers.send("b", PermitReleased(8, RequestOutcome("ok"))) == []
    assert workers.send("b", PermitRequested("alive", 9)) == [Order("b", PermitGranted(9))]


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


def test_runs_without_a_verdict_have_a_limit_of_their_own_that_ends_with_the_first_verdict() -> None:
    workers = Workers()
    workers.join("a")
    failed, proven = (ProviderFailed(key, "KeyError", "desk", "this agent", LIMIT + 2) for key in ("one", "other"))
    workers.send("a", ProviderSucceeded("other", for_good=True))
    for _ in range(LIMIT + 1):
        assert workers.send("a", failed) == workers.send("a", proven) == []
    (order,) = workers.send("a", failed)
    assert isinstance(order.message, ProviderClosed)
    assert order.message.reason.startswith(f"this agent failed {LIMIT + 2} times in a row in the same way")
    assert workers.send("a", proven) == []


def test_once_records_cannot_be_written_permits_are_refused_and_all_workers_are_informed() -> None:
    workers = Workers()
    workers.join("a", "b")
    assert workers.send("a", SessionHalted("no space")) == [
        Order("a", RequestsHalted("no space")),
        Order("b", RequestsHalted("no space")),
    ]
    assert workers.send("b", SessionHalted("no space either")) == []
    assert workers.send("b", PermitRequested("model", 2)) == [Order("b", PermitRefused(2, "no space"))]
