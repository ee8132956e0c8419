"""What the coordinator orders: which case starts where and when, and which outcome each item gets."""

from __future__ import annotations

from pytest_toolemu.scheduling.coordinator import Coordinator
from pytest_toolemu.scheduling.coordinator_messages import (
    CancelCase,
    CaseCanceled,
    CaseCompleted,
    CaseFinished,
    CasesOffered,
    CaseStalled,
    CasesWithdrawn,
    NoticePosted,
    Order,
    PermitRefused,
    PermitRequested,
    RequestAbandoned,
    ResultReady,
    ResultRequested,
    ResultUnavailable,
    RunCase,
    WithdrawalConfirmed,
)
from tests.scheduling.scripted_workers import Workers, runs, stored


def test_cases_start_in_order_up_to_the_limit_and_more_start_as_others_end() -> None:
    workers = Workers(concurrency=2)
    workers.join("a")
    assert runs(workers.send("a", CasesOffered((0, 3, 1, 2)))) == [("a", 0), ("a", 1)]
    assert runs(workers.send("a", CaseCompleted(1, 1, False, stored("one")))) == [("a", 2)]
    assert runs(workers.send("a", CaseCanceled(7, 1))) == []


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
    assert runs(workers.send("a", CaseStalled(0, 1, True))) == [("a", 2)]
    assert runs(workers.send("a", CaseStalled(1, 1, True))) == [], "half as many as may run, and no more"
    assert workers.send("a", CaseStalled(0, 1, False)) == []
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
    assert workers.send("a", CaseStalled(0, 1, True)) == []


def test_a_stalled_case_whose_worker_dies_is_not_counted_any_more() -> None:
    workers = Workers(concurrency=2)
    workers.join("a", "b")
    workers.send("a", CasesOffered((0,)))
    workers.send("a", CaseStalled(0, 1, True))
    workers.coordinator.remove_worker("a")
    assert (workers.coordinator.counts.running, workers.coordinator.counts.stalled) == (0, 0)
    assert workers.send("b", CaseStalled(0, 1, False)) == []
    assert workers.coordinator.counts.stalled == 0


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
    assert workers.coordinator.counts.completed == 1


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
    assert workers.send("a", CaseCanceled(0, 1)) == [Order("b", RunCase(0, 2))]


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
    reason = "the worker process died 2 times while it ran this case; the agent of the case ends the process"
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
    assert workers.send("a", CaseCanceled(2, 1)) == []
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
    assert workers.send("a", CaseCanceled(0, 1)) == []
    assert workers.send("a", ResultRequested(1)) == [Order("a", ResultUnavailable(1, "stopped", "interrupted"))]
    assert workers.send("a", PermitRequested("model", 1)) == [Order("a", PermitRefused(1, "interrupted"))]


def test_a_request_after_the_stop_is_denied_even_if_the_case_is_still_ending() -> None:
    workers = Workers()
    workers.join("a")
    workers.send("a", CasesOffered((0,)))
    workers.coordinator.stop("interrupted")
    assert workers.send("a", ResultRequested(0)) == [Order("a", ResultUnavailable(0, "stopped", "interrupted"))]


def test_an_attempt_that_cancels_itself_has_no_result() -> None:
    workers = Workers()
    workers.join("a")
    workers.send("a", ResultRequested(0))
    reason = "its agent or an emulator canceled the run"
    assert workers.send("a", CaseCanceled(0, 1)) == [Order("a", ResultUnavailable(0, "broken", reason))]


def test_no_case_starts_before_the_coordinator_is_started() -> None:
    coordinator = Coordinator(2)
    coordinator.add_worker("a")
    assert coordinator.receive("a", CasesOffered((0,)), 0) == []
    assert coordinator.start() == [Order("a", RunCase(0, 1))]


def test_equal_notices_of_workers_are_kept_once() -> None:
    workers = Workers()
    workers.join("a", "b")
    workers.send("a", NoticePosted("blocked"))
    workers.send("b", NoticePosted("blocked"))
    assert workers.coordinator.notices == ["blocked"]
