"""The hub as a state machine: whatever workers do, no case is lost, none runs twice at once, and it always ends."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pytest_toolemu.scheduling.budget import Budget
from pytest_toolemu.scheduling.circuit_breaker import LIMIT
from pytest_toolemu.scheduling.coordinator import Coordinator, Message, Order


class Told:
    """A hub, and what it has ordered whom."""

    def __init__(self, concurrency: int = 2, maxfail: int = 0) -> None:
        self.hub = Coordinator(concurrency, maxfail)
        self.hub.begin()
        self.now = 0.0

    def join(self, *names: str) -> None:
        for name in names:
            self.hub.join(name)

    def says(self, worker: str, *message: Any) -> list[Order]:
        return self.hub.hear(worker, message, self.now)


def runs(orders: Iterable[Order]) -> list[tuple[str, int]]:
    return [(worker, message[1]) for worker, message in orders if message[0] == "run"]


def test_cases_start_in_order_up_to_the_limit_and_go_on_as_others_end() -> None:
    told = Told(concurrency=2)
    told.join("a")
    assert runs(told.says("a", "able", [0, 3, 1, 2])) == [("a", 0), ("a", 1)]
    assert runs(told.says("a", "done", 1, 1, False, "one")) == [("a", 2)]
    assert runs(told.says("a", "dropped", 7, 1)) == []


def test_cases_go_to_the_worker_that_runs_least() -> None:
    told = Told(concurrency=4)
    told.join("a", "b")
    told.says("b", "able", [1, 2, 3])
    assert runs(told.says("a", "able", [1, 2, 3, 4])) == [("a", 4)]


def test_what_a_worker_cannot_run_any_more_is_not_ordered_after_the_answer() -> None:
    told = Told(concurrency=1)
    told.join("a")
    assert runs(told.says("a", "able", [0, 1])) == [("a", 0)]
    assert told.says("a", "unable", [0, 1], 7) == [("a", ("settled", 7))]
    assert told.says("a", "done", 0, 1, False, "") == []


def test_a_case_that_is_held_up_leaves_its_slot_and_takes_another_when_it_goes_on() -> None:
    told = Told(concurrency=2)
    told.join("a")
    assert runs(told.says("a", "able", range(6))) == [("a", 0), ("a", 1)]
    assert runs(told.says("a", "held", 0, 1)) == [("a", 2)]
    assert runs(told.says("a", "held", 1, 1)) == [], "half as many as may run, and no more"
    assert told.says("a", "freed", 0, 1) == []
    assert runs(told.says("a", "done", 2, 1, False, "")) == [("a", 3)]
    assert runs(told.says("a", "done", 1, 1, False, "")) == []
    assert runs(told.says("a", "done", 0, 1, False, "")) == [("a", 4)]


def test_one_case_at_a_time_means_one_also_when_it_is_held_up() -> None:
    told = Told(concurrency=1)
    told.join("a")
    assert runs(told.says("a", "able", [0, 1])) == [("a", 0)]
    assert told.says("a", "held", 0, 1) == []


def test_a_held_case_whose_worker_dies_leaves_nothing_behind() -> None:
    told = Told(concurrency=2)
    told.join("a", "b")
    told.says("a", "able", [0])
    told.says("a", "held", 0, 1)
    told.hub.leave("a")
    assert (told.hub.running, told.hub.held) == (0, 0)
    assert told.says("b", "freed", 0, 1) == []
    assert told.hub.held == 0


def test_a_case_that_is_made_leaves_its_slot_and_no_more_than_as_many_again_are_kept_at_once() -> None:
    told = Told(concurrency=1)
    told.join("a")
    assert runs(told.says("a", "able", [0, 1, 2])) == [("a", 0)]
    assert runs(told.says("a", "made", 0, 1, False)) == [("a", 1)]
    assert runs(told.says("a", "made", 1, 1, False)) == []
    assert runs(told.says("a", "done", 0, 1, False, "")) == [("a", 2)]


def test_a_case_that_is_made_and_failed_ends_the_session_before_it_is_kept_and_is_not_cancelled_itself() -> None:
    told = Told(concurrency=2, maxfail=1)
    told.join("a")
    assert runs(told.says("a", "able", [0, 1, 2])) == [("a", 0), ("a", 1)]
    assert told.says("a", "made", 1, 1, True) == []
    assert told.says("a", "made", 0, 1, True) == []
    assert told.says("a", "done", 1, 1, True, "") == []
    assert told.hub.cutoff == 0
    assert told.hub.finished == 1


def test_a_failure_of_a_case_whose_worker_died_before_it_was_kept_is_forgotten() -> None:
    told = Told(concurrency=2, maxfail=1)
    told.join("a", "b")
    told.says("b", "able", [0, 3])
    told.says("a", "able", [0])
    runner = "b" if 0 in told.hub.running_on("b") else "a"
    told.says(runner, "made", 0, 1, True)
    assert told.hub.cutoff == 0
    told.hub.leave(runner)
    assert told.hub.cutoff is None


def test_an_item_that_gives_up_while_its_case_is_kept_takes_nothing_back() -> None:
    told = Told(concurrency=1)
    told.join("a")
    told.says("a", "want", 0)
    told.says("a", "made", 0, 1, False)
    assert told.says("a", "abandon", 0) == []
    assert told.says("a", "done", 0, 1, False, "kept") == []
    assert told.says("a", "want", 0) == [("a", ("result", 0, "kept"))]


def test_a_result_goes_to_the_item_that_waits_wherever_it_is() -> None:
    told = Told()
    told.join("a", "b")
    told.says("a", "able", [0])
    assert told.says("b", "want", 0) == []
    assert told.says("a", "done", 0, 1, False, "it") == [("b", ("result", 0, "it"))]


def test_a_result_is_kept_until_its_item_asks_and_asking_again_runs_it_again() -> None:
    told = Told()
    told.join("a")
    told.says("a", "able", [0])
    told.says("a", "done", 0, 1, False, "first")
    assert told.says("a", "want", 0) == [("a", ("result", 0, "first"))]
    assert told.says("a", "want", 0) == [("a", ("run", 0, 2))]
    assert told.says("a", "done", 0, 1, False, "an old attempt's") == []
    assert told.says("a", "done", 0, 2, False, "second") == [("a", ("result", 0, "second"))]


def test_an_item_whose_case_may_not_run_ahead_has_it_run_at_its_turn_in_its_own_worker() -> None:
    told = Told()
    told.join("a", "b")
    assert told.says("b", "want", 7) == [("b", ("run", 7, 1))]


def test_what_an_item_waits_for_goes_before_what_is_ahead() -> None:
    told = Told(concurrency=1)
    told.join("a")
    told.says("a", "able", [0, 1])
    told.says("a", "want", 5)
    assert runs(told.says("a", "done", 0, 1, False, "")) == [("a", 5)]


def test_an_item_that_gives_up_has_its_case_cancelled_and_a_rerun_starts_anew() -> None:
    told = Told()
    told.join("a", "b")
    told.says("a", "able", [0])
    told.says("b", "want", 0)
    assert told.says("b", "abandon", 0) == [("a", ("cancel", 0, 1))]
    assert told.says("b", "want", 0) == []
    assert told.says("a", "dropped", 0, 1) == [("b", ("run", 0, 2))]


def test_cases_of_a_worker_that_dies_run_again_elsewhere() -> None:
    told = Told(concurrency=4)
    told.join("a", "b")
    told.says("a", "able", [0, 1])
    told.says("b", "able", [0, 1])
    told.says("b", "want", 0)
    # One at a time: the next death tells which of them it was.
    assert told.hub.leave("a") == [("b", ("run", 0, 2))]
    assert told.says("b", "done", 0, 2, False, "it") == [("b", ("result", 0, "it")), ("b", ("run", 1, 2))]


def test_a_case_that_takes_two_workers_down_is_given_up() -> None:
    told = Told()
    told.join("a", "b", "c")
    for worker in "abc":
        told.says(worker, "able", [0])
    assert told.hub.leave("a") == [("b", ("run", 0, 2))]
    assert told.hub.leave("b") == []
    reason = "the worker process died while it ran this case, 2 times; its agent ends the process"
    assert told.says("c", "want", 0) == [("c", ("none", 0, "broken", reason))]


def test_the_item_with_which_a_worker_died_needs_no_result() -> None:
    told = Told()
    told.join("a", "b")
    told.says("b", "able", [0])
    told.says("a", "want", 0)
    assert told.hub.leave("a") == [("b", ("cancel", 0, 1))]


def test_beyond_the_failure_that_ends_the_session_nothing_starts_and_what_runs_is_cancelled() -> None:
    told = Told(concurrency=3, maxfail=1)
    told.join("a")
    told.says("a", "able", [0])
    told.says("a", "able", [1])
    told.says("a", "able", [2, 3, 4])
    assert told.says("a", "done", 1, 1, True, "bad") == [("a", ("cancel", 2, 1))]
    assert told.says("a", "dropped", 2, 1) == []
    assert told.says("a", "done", 0, 1, False, "good") == []


def test_what_was_cut_off_goes_on_when_the_failure_turns_out_to_be_none() -> None:
    told = Told(concurrency=1, maxfail=1)
    told.join("a")
    told.says("a", "able", [0, 1])
    told.says("a", "done", 0, 1, True, "bad")
    assert told.says("a", "want", 1) == []
    assert told.hub.reported(0, failed=False) == [("a", ("run", 1, 1))]


def test_failures_of_other_tests_count_too() -> None:
    told = Told(concurrency=1, maxfail=2)
    told.join("a")
    told.says("a", "able", [1, 2])
    told.hub.reported(0, failed=True)
    assert runs(told.says("a", "done", 1, 1, True, "bad")) == []


def test_an_item_beyond_the_end_is_let_go_when_nothing_happens_any_more() -> None:
    told = Told(maxfail=1)
    told.join("a", "b")
    told.says("a", "able", [0])
    told.says("a", "done", 0, 1, True, "bad")
    told.says("b", "want", 5)
    assert told.hub.tick(0.5) == []
    reason = "enough cases before it have failed to end the session"
    assert told.hub.tick(1.5) == [("b", ("none", 5, "cut", reason))]


def test_a_stop_cancels_answers_whoever_waits_and_starts_nothing_more() -> None:
    told = Told(concurrency=1)
    told.join("a")
    told.says("a", "able", [0, 1])
    told.says("a", "want", 0)
    orders = told.hub.stop("interrupted")
    assert orders == [("a", ("cancel", 0, 1)), ("a", ("none", 0, "stopped", "interrupted"))]
    assert told.says("a", "dropped", 0, 1) == []
    assert told.says("a", "want", 1) == [("a", ("none", 1, "stopped", "interrupted"))]
    assert told.says("a", "ask", "model", 1) == [("a", ("refuse", 1, "interrupted"))]


def test_an_item_that_asks_after_the_stop_is_answered_though_its_case_has_not_ended_yet() -> None:
    told = Told()
    told.join("a")
    told.says("a", "able", [0])
    told.hub.stop("interrupted")
    assert told.says("a", "want", 0) == [("a", ("none", 0, "stopped", "interrupted"))]


def test_once_the_budget_is_spent_no_request_is_granted_and_all_workers_hear_of_it() -> None:
    told = Told()
    told.hub.budget = Budget(tokens=100)
    told.join("a", "b")
    assert told.says("a", "ask", "model", 1) == [("a", ("grant", 1))]
    assert told.says("a", "spent", 60, 0.0, False) == []
    reason = "the budget of 100 tokens is spent (120); raise --toolemu-budget-tokens, or run fewer cases with --toolemu-sample"
    assert told.says("b", "spent", 60, 0.0, False) == [("a", ("halt", reason)), ("b", ("halt", reason))]
    assert told.says("b", "ask", "model", 2) == [("b", ("refuse", 2, reason))]
    # What runs goes on to its next request, and a case may be done already, or need no model.
    assert told.says("a", "able", [0]) == [("a", ("run", 0, 1))]
    told.join("c")
    assert told.says("c", "plan", 3) == [("c", ("halt", reason))]


def test_a_deadline_passes_by_itself() -> None:
    told = Told()
    clock = iter([0.0, 9.0, 11.0])
    told.hub.budget = Budget(seconds=10, until=10, clock=lambda: next(clock))
    told.join("a")
    assert told.hub.tick(0) == told.hub.tick(0) == []
    assert told.hub.tick(0) == [("a", ("halt", "the deadline of 10 s has passed; raise --toolemu-deadline"))]


def test_a_run_that_ends_itself_is_no_result() -> None:
    told = Told()
    told.join("a")
    told.says("a", "want", 0)
    reason = "its run was cancelled, by its agent or an emulator"
    assert told.says("a", "dropped", 0, 1) == [("a", ("none", 0, "broken", reason))]


def test_nothing_starts_before_all_is_ready() -> None:
    hub = Coordinator(2)
    hub.join("a")
    assert hub.hear("a", ("able", [0]), 0) == []
    assert hub.begin() == [("a", ("run", 0, 1))]


def test_requests_of_all_workers_share_one_limit_that_begins_at_two_for_each_case() -> None:
    told = Told(concurrency=1)
    told.join("a", "b")
    assert told.says("a", "ask", "model", 1) == [("a", ("grant", 1))]
    assert told.says("b", "ask", "model", 1) == [("b", ("grant", 1))]
    assert told.says("b", "ask", "model", 2) == []
    assert told.says("b", "ask", "another", 3) == [("b", ("grant", 3))]
    told.hub.leave("a")
    assert told.hub.tick(0.0) == [("b", ("grant", 2))]


def test_who_asks_a_server_that_has_died_is_told_why_and_others_go_on() -> None:
    told = Told(concurrency=1)
    told.join("a", "b")
    assert told.says("a", "ask", "dead", 1) == [("a", ("grant", 1))]
    assert told.says("a", "ask", "dead", 2) == [("a", ("grant", 2))]
    assert told.says("b", "ask", "dead", 7) == []
    assert told.says("b", "ask", "alive", 8) == [("b", ("grant", 8))]
    orders = told.hub.lose(["dead"], "it has ended with 0")
    assert ("b", ("lost", 7, "it has ended with 0")) in orders
    assert told.says("a", "back", 1, ("failed",)) == []
    assert told.says("a", "ask", "dead", 3) == [("a", ("lost", 3, "it has ended with 0"))]
    assert told.says("b", "back", 8, ("ok",)) == []
    assert told.says("b", "ask", "alive", 9) == [("b", ("grant", 9))]


def test_what_workers_have_to_say_is_kept_once() -> None:
    told = Told()
    told.join("a", "b")
    told.says("a", "notice", "blocked")
    told.says("b", "notice", "blocked")
    assert told.hub.notices == ["blocked"]


def fails(told: Told, worker: str, account: str, kind: str = "401", times: int = 1) -> list[Order]:
    """A worker reports equal failures; the orders that the last one leads to."""
    orders: list[Order] = []
    for _ in range(times):
        orders = told.says(worker, "outage", account, kind, "the key was refused")
    return orders


def test_equal_failures_in_a_row_of_any_workers_close_a_provider_for_all() -> None:
    told = Told(concurrency=1)
    told.join("a", "b")
    for ticket in (1, 2):
        assert told.says("a", "ask", "model", ticket) == [("a", ("grant", ticket))]
    assert told.says("b", "ask", "model", 7) == []
    assert fails(told, "a", "model", times=LIMIT - 1) == []
    orders = fails(told, "b", "model")
    reason = told.hub.requests.breaker.open["model"]
    assert reason.endswith("no more cases that need it are started: the key was refused")
    assert f"failed {LIMIT} times in a row" in reason
    # Whoever waits to send a request is refused, all workers are told, and so is one that joins later.
    assert ("b", ("refuse", 7, reason)) in orders
    assert [order for order in orders if order[1][0] == "closed"] == [
        ("a", ("closed", "model", reason)),
        ("b", ("closed", "model", reason)),
    ]
    assert told.says("a", "ask", "model", 8) == [("a", ("refuse", 8, reason))]
    assert told.says("a", "ask", "another", 9) == [("a", ("grant", 9))]
    told.join("c")
    assert told.says("c", "plan", 3) == [("c", ("closed", "model", reason))]
    assert fails(told, "a", "model", times=LIMIT) == [], "said once"


def test_a_success_or_a_failure_of_another_kind_in_between_starts_the_count_anew() -> None:
    told = Told()
    told.join("a")
    fails(told, "a", "model", times=LIMIT - 1)
    told.says("a", "ask", "model", 1)
    told.says("a", "back", 1, ("ok",))
    fails(told, "a", "model", "401", times=LIMIT - 1)
    fails(told, "a", "model", "503", times=LIMIT - 1)
    fails(told, "a", "another", "503", times=LIMIT - 1)
    told.says("a", "fine", "model")
    fails(told, "a", "model", "503", times=LIMIT - 1)
    assert told.hub.requests.breaker.open == {}


def test_once_a_record_cannot_be_written_no_request_is_granted_and_all_workers_hear_of_it() -> None:
    told = Told()
    told.join("a", "b")
    assert told.says("a", "unwritable", "no space") == [("a", ("halt", "no space")), ("b", ("halt", "no space"))]
    assert told.says("b", "unwritable", "no space either") == []
    assert told.says("b", "ask", "model", 2) == [("b", ("refuse", 2, "no space"))]


CASES = 12
ACCOUNTS = ("one", "other")
WORKERS = ("a", "b", "c")


class Session(RuleBasedStateMachine):
    """Workers that take their items in any order, run what they are told, die, give up and rerun."""

    @initialize(concurrency=st.integers(1, 5), maxfail=st.integers(0, 3))
    def begin(self, concurrency: int, maxfail: int) -> None:
        self.hub = Coordinator(concurrency, maxfail)
        self.hub.begin()
        self.concurrency = concurrency
        self.now = 0.0
        self.alive: set[str] = set()
        self.born = 0
        self.running: dict[tuple[int, int], str] = {}
        self.cancelled: set[tuple[int, int]] = set()
        self.held: set[tuple[int, int]] = set()
        self.made: dict[tuple[int, int], bool] = {}
        self.failed: set[int] = set()
        self.maxfail = maxfail
        self.waiting: dict[str, int] = {}
        self.answers = 0
        self.deaths: dict[int, int] = {}
        self.ended = False
        self.tickets = 0
        self.asking: dict[int, tuple[str, str]] = {}
        self.sent: dict[int, tuple[str, str]] = {}
        self.streaks: dict[str, tuple[str, int]] = {}
        self.given_up: set[str] = set()
        self.told_closed: dict[str, set[str]] = {}

    def obey(self, orders: Iterable[Order]) -> None:
        for worker, message in orders:
            if worker in self.alive:
                self.follow(worker, message)

    def follow(self, worker: str, message: Message) -> None:
        match message:
            case ("run", index, attempt):
                assert not self.ended
                assert index not in [other for other, _ in self.running], "a case runs twice at once"
                assert (
                    len(self.running) - len(self.made) - min(len(self.held), self.concurrency // 2) < self.concurrency
                )
                self.running[index, attempt] = worker
            case ("cancel", index, attempt):
                assert self.running.get((index, attempt)) == worker
                self.cancelled.add((index, attempt))
            case ("result", index, result):
                assert self.waiting.pop(worker) == index
                assert result == f"result of {index}"
            case ("none", index, kind, _):
                assert self.waiting.pop(worker) == index
                assert kind in ("stopped", "cut", "broken")
                assert kind != "broken" or self.deaths.get(index, 0) >= 2
            case ("grant", ticket):
                assert self.asking[ticket][1] not in self.given_up, "a request to a provider that was given up"
                self.sent[ticket] = self.asking.pop(ticket)
            case ("refuse", ticket, _):
                self.asking.pop(ticket, None)
                self.sent.pop(ticket, None)
            case ("closed", key, _):
                self.told_closed.setdefault(worker, set()).add(key)

    def hear(self, worker: str, *message: Any) -> None:
        self.now += 0.01
        self.obey(self.hub.hear(worker, message, self.now))

    @precondition(lambda self: len(self.alive) < len(WORKERS))
    @rule()
    def join(self) -> None:
        self.born += 1
        worker = f"w{self.born}"
        self.alive.add(worker)
        self.hub.join(worker)
        self.hear(worker, "plan", CASES)
        assert self.told_closed.get(worker, set()) == self.given_up

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), indices=st.sets(st.integers(0, CASES - 1)))
    def able(self, data: st.DataObject, indices: set[int]) -> None:
        self.hear(data.draw(st.sampled_from(sorted(self.alive))), "able", sorted(indices))

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), indices=st.sets(st.integers(0, CASES - 1)))
    def unable(self, data: st.DataObject, indices: set[int]) -> None:
        self.hear(data.draw(st.sampled_from(sorted(self.alive))), "unable", sorted(indices), 1)

    @precondition(lambda self: self.alive - self.waiting.keys())
    @rule(data=st.data(), index=st.integers(0, CASES - 1))
    def want(self, data: st.DataObject, index: int) -> None:
        worker = data.draw(st.sampled_from(sorted(self.alive - self.waiting.keys())))
        if index in self.waiting.values():
            return
        self.waiting[worker] = index
        self.hear(worker, "want", index)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def abandon(self, data: st.DataObject) -> None:
        worker = data.draw(st.sampled_from(sorted(self.waiting)))
        self.hear(worker, "abandon", self.waiting.pop(worker))

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), account=st.sampled_from(ACCOUNTS))
    def ask(self, data: st.DataObject, account: str) -> None:
        worker = data.draw(st.sampled_from(sorted(self.alive)))
        self.tickets += 1
        self.asking[self.tickets] = worker, account
        self.hear(worker, "ask", account, self.tickets)

    @precondition(lambda self: self.sent)
    @rule(data=st.data(), status=st.sampled_from(["ok", "busy", "failed"]))
    def answer(self, data: st.DataObject, status: str) -> None:
        worker, account = self.sent.pop(ticket := data.draw(st.sampled_from(sorted(self.sent))))
        if status == "ok":
            self.streaks.pop(account, None)
        self.hear(worker, "back", ticket, (status,))

    @precondition(lambda self: self.alive)
    @rule(
        data=st.data(),
        account=st.sampled_from(ACCOUNTS),
        kind=st.sampled_from(["401", "503"]),
        times=st.integers(1, LIMIT),
    )
    def outage(self, data: st.DataObject, account: str, kind: str, times: int) -> None:
        """Requests fail for good, in one worker."""
        worker = data.draw(st.sampled_from(sorted(self.alive)))
        for _ in range(times):
            former, count = self.streaks.get(account, (kind, 0))
            self.streaks[account] = kind, (count + 1 if former == kind else 1)
            if self.streaks[account][1] >= LIMIT:
                self.given_up.add(account)
            self.hear(worker, "outage", account, kind, "it fails")

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def hold_or_free_one(self, data: st.DataObject) -> None:
        """A request that is left over when its case is made holds nothing up any more."""
        run = data.draw(st.sampled_from(sorted(self.running)))
        name = "freed" if run in self.held else "held"
        if run not in self.made:
            self.held ^= {run}
        self.hear(self.running[run], name, *run)

    @precondition(lambda self: self.running.keys() - self.made.keys() - self.cancelled)
    @rule(data=st.data(), failed=st.booleans())
    def make_one(self, data: st.DataObject, failed: bool) -> None:
        run = data.draw(st.sampled_from(sorted(self.running.keys() - self.made.keys() - self.cancelled)))
        self.made[run] = failed
        self.held.discard(run)
        self.hear(self.running[run], "made", *run, failed)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), failed=st.booleans())
    def end_one(self, data: st.DataObject, failed: bool) -> None:
        self.finish(data.draw(st.sampled_from(sorted(self.running))), failed)

    def finish(self, run: tuple[int, int], failed: bool) -> None:
        worker = self.running.pop(run)
        index, attempt = run
        failed = self.made.pop(run, failed)
        self.held.discard(run)
        if run in self.cancelled:
            self.cancelled.discard(run)
            self.hear(worker, "dropped", index, attempt)
        else:
            self.failed |= {index} if failed else set()
            self.hear(worker, "done", index, attempt, failed, f"result of {index}")

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        self.lose(data.draw(st.sampled_from(sorted(self.alive))))

    def lose(self, worker: str) -> None:
        self.alive.discard(worker)
        self.waiting.pop(worker, None)
        for requests in (self.asking, self.sent):
            for ticket in [ticket for ticket, (asker, _) in requests.items() if asker == worker]:
                del requests[ticket]
        for run in [run for run, runner in self.running.items() if runner == worker]:
            del self.running[run]
            self.made.pop(run, None)
            self.held.discard(run)
            self.cancelled.discard(run)
            self.deaths[run[0]] = self.deaths.get(run[0], 0) + 1
        self.obey(self.hub.leave(worker))

    @rule(index=st.integers(0, CASES - 1), failed=st.booleans())
    def report(self, index: int, failed: bool) -> None:
        self.failed = self.failed | {index} if failed else self.failed - {index}
        self.obey(self.hub.reported(index, failed))

    @rule()
    def stop(self) -> None:
        orders = self.hub.stop("interrupted")
        self.ended = True
        self.obey(orders)
        assert not self.waiting

    @rule(seconds=st.floats(0, 3))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.obey(self.hub.tick(self.now))

    @invariant()
    def never_more_than_allowed(self) -> None:
        if hasattr(self, "hub"):
            running = len(self.running) - len(self.made)
            assert running <= self.concurrency + self.concurrency // 2
            assert len(self.running) <= 2 * self.concurrency
            assert (self.hub.running, self.hub.held, self.hub.unkept) == (running, len(self.held), len(self.made))

    @invariant()
    def gives_up_what_fails_again_and_again_and_nobody_waits_for_it(self) -> None:
        if hasattr(self, "hub"):
            assert self.hub.requests.breaker.open.keys() == self.given_up
            assert not [account for _, account in self.asking.values() if account in self.given_up]

    @invariant()
    def ends_at_the_failure_that_is_known(self) -> None:
        if hasattr(self, "hub"):
            failed = sorted(self.failed | {index for (index, _), failed in self.made.items() if failed})
            assert self.hub.cutoff == (failed[self.maxfail - 1] if 0 < self.maxfail <= len(failed) else None)

    def teardown(self) -> None:
        """Let everything end: whoever waits gets an answer."""
        if not hasattr(self, "hub"):
            return
        for _ in range(1000):
            if not self.waiting:
                return
            if self.running:
                self.finish(min(self.running), failed=False)
            else:
                self.now += 2.0
                self.obey(self.hub.tick(self.now))
        raise AssertionError(f"these wait for ever: {self.waiting}")


Session.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestSession = Session.TestCase
