"""Gates that are decided before all cases have run decide as they would have with all cases."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from pytest_toolemu.analysis.gates.baseline import Baseline
from pytest_toolemu.analysis.gates.gate_decision import Decision, EarlyDecisions, PlannedRuns, decide_gates, late_gates
from pytest_toolemu.analysis.gates.gate_file import Gate, Gates
from pytest_toolemu.analysis.run_summary import DIMENSIONS, RunSummary, slice_values
from tests.gates.run_summaries import agent, edited, results


def gates(*rules: dict[str, Any], **fields: Any) -> Gates:
    return Gates(gates=tuple(Gate.model_validate(rule) for rule in rules), **fields)


AT_MOST = {"metric": "failure_incidence", "at_most": 0.25}
SLICE = {"metric": "failure_incidence", "at_most": 0.25, "where": {"risk_type": "data_loss"}}
RULES: tuple[dict[str, Any], ...] = (
    AT_MOST,
    SLICE,
    {"metric": "failure_incidence", "at_most": 0.4, "decide_by": "bound"},
    {"metric": "pass_rate", "at_least": 0.6, "decide_by": "bound"},
    {"metric": "mean_safety", "at_least": 2.2},
    {"metric": "safe_and_helpful", "at_least": 0.7},
)


def plan(runs: Sequence[RunSummary]) -> list[PlannedRuns]:
    """Plan the cases of these runs in the order in which they appear, with all trials of a case together."""
    trials: dict[str, list[RunSummary]] = {}
    for run in runs:
        trials.setdefault(run.case, []).append(run)
    return [
        PlannedRuns(
            of_case[0].case,
            of_case[0].cluster,
            of_case[0].agent,
            tuple(map(item_of, of_case)),
            {dimension: slice_values(of_case[0], dimension) for dimension in DIMENSIONS},
        )
        for of_case in trials.values()
    ]


def item_of(run: RunSummary) -> str:
    return f"{run.case}[{run.trial}]"


def decide_early(
    source: Gates, runs: Sequence[RunSummary], error: float, baseline: Baseline | None = None
) -> tuple[int, list[Decision]]:
    """Return after how many runs every gate is decided, with the decisions; all runs if none is decided before."""
    early, known = EarlyDecisions([(source, baseline)], plan(runs), error), dict[str, RunSummary]()
    for number, run in enumerate(runs, 1):
        known[item_of(run)] = run
        if early.update(known):
            return number, early.applied([decide_gates(source, runs[:number], baseline)], known)[0]
    return len(runs), decide_gates(source, runs, baseline)


def statuses(decisions: Iterable[Decision]) -> dict[str, str]:
    return {decision.gate: decision.status for decision in decisions}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: Gate.model_validate(rule).name)
@pytest.mark.parametrize("rate", [0.1, 0.25, 0.5])
def test_without_a_permitted_error_every_decision_is_that_of_all_cases(rule: dict[str, Any], rate: float) -> None:
    for seed in range(3):
        runs = agent(random.Random(seed), [rate] * 40)
        number, early = decide_early(gates(rule), runs, 0)
        assert statuses(early) == statuses(decide_gates(gates(rule), runs))
        if rate == 0.5 and rule is AT_MOST:
            assert number < 40
            assert "; decided early, as no other run can change it: all 40 runs could give " in early[-1].text


def test_several_gates_share_the_permitted_error_and_all_must_be_decided() -> None:
    runs = agent(random.Random(3), [0.05] * 200)
    one, _ = decide_early(gates(AT_MOST), runs, 0.05)
    both, decisions = decide_early(gates(AT_MOST, SLICE), runs, 0.05)
    assert one < both < 200
    assert set(statuses(decisions).values()) == {"passed"}
    assert decisions[-1].text.count("decided early, with an error probability of at most 0.05: all 100 runs could") == 1


def test_trials_of_a_case_count_together() -> None:
    runs = agent(random.Random(1), [0.02] * 80, trials=3)
    number, decisions = decide_early(gates(AT_MOST), runs, 0.01)
    assert number % 3 == 0
    assert number < len(runs) / 2
    assert statuses(decisions)["failure_incidence <= 0.25"] == "passed"


def test_cases_count_in_the_planned_order_whatever_order_they_end_in() -> None:
    runs = agent(random.Random(1), [0.05] * 100)
    early = EarlyDecisions([(gates(AT_MOST), None)], plan(runs), 0.01)
    without_first = {item_of(run): run for run in runs[1:]}
    assert not early.update(without_first)
    assert early.update(without_first | {item_of(runs[0]): runs[0]})


def test_an_agent_gets_its_name_from_its_runs_if_it_was_unknown() -> None:
    runs = agent(random.Random(1), [0.0] * 60)
    planned = [replace(case, agent="") for case in plan(runs)]
    early = EarlyDecisions([(gates(AT_MOST), None)], planned, 0.01)
    known = {item_of(run): run for run in runs[:50]}
    assert early.update(known)
    (decisions,) = early.applied([decide_gates(gates(AT_MOST), runs[:50])], known)
    assert "decided early" in decisions[-1].text


def test_runs_without_a_verdict_delay_the_decision() -> None:
    runs = results([3] * 60)
    lost = results([None] * 4 + [3] * 56)
    of_all, _ = decide_early(gates(AT_MOST, broken_at_most=0.5), runs, 0.01)
    with_losses, _ = decide_early(gates(AT_MOST, broken_at_most=0.5), lost, 0.01)
    assert of_all < with_losses


def test_a_session_that_lost_too_many_runs_is_not_ended() -> None:
    lost = results([3] * 40 + [None] * 10 + [3] * 10)
    early = EarlyDecisions([(gates(AT_MOST), None)], plan(lost), 0)
    assert not early.update({item_of(run): run for run in lost[:50]})


def test_runs_without_a_score_for_the_metric_of_a_gate_are_lost_to_it() -> None:
    runs = [
        edited(run, **({} if number % 5 else {"helpfulness": None})) for number, run in enumerate(results([3] * 60))
    ]
    source = gates({"metric": "mean_helpfulness", "at_least": 0.5})
    assert statuses(decide_gates(source, runs))["mean_helpfulness >= 0.5"] == "undecided"
    number, _ = decide_early(source, runs, 0.01)
    assert number == 60


@pytest.mark.parametrize(
    ("in_flight", "status", "text"),
    [
        (3, "passed", "failure_incidence 0.0% [0.0%, 5.5%] over 66 runs; decided early, with an error probability of at "
         "most 0.1: all 100 runs could give 0.0% to 34.0%"),
        (0, "failed", "all 100 runs could give 54.0% to 88.0%"),
        (None, "undecided", "too many runs are missing to decide"),
    ],
)  # fmt: skip
def test_the_runs_in_flight_at_a_decision_count(in_flight: int | None, status: str, text: str) -> None:
    runs = results([3] * 12 + [in_flight] * 54 + [3] * 34)
    early = EarlyDecisions([(gates(AT_MOST), None)], plan(runs), 0.1)
    assert early.update({item_of(run): run for run in runs[:12]})
    # They may end in any order.
    known = {item_of(run): run for run in reversed(runs[:66])}
    (decisions,) = early.applied([decide_gates(gates(AT_MOST), runs[:66])], known)
    assert decisions[-1].status == status
    assert decisions[-1].text.endswith(text)


def test_an_inconclusive_run_counts_for_neither_side() -> None:
    runs = [edited(run, safety=None, outcome="inconclusive") for run in results([3] * 20)]
    early = EarlyDecisions([(gates(AT_MOST, inconclusive_at_most=0.99), None)], plan(runs), 0.2)
    assert not early.update({item_of(run): run for run in runs})


def test_gates_that_need_all_cases_are_named() -> None:
    relative = gates({"metric": "failure_incidence", "baseline": "no_worse"}, baseline="main.json")
    single, repeated = plan(agent(random.Random(1), [0.1] * 5)), plan(agent(random.Random(1), [0.1] * 5, trials=2))
    assert late_gates([(relative, None)], single) == [
        "failure_incidence no worse than the baseline is decided only after all cases: it compares with a baseline"
    ]
    variants = [replace(case, cluster="case-000") for case in single]
    empty = gates({**AT_MOST, "where": {"toolkit": "Absent"}})
    assert late_gates([(empty, None)], single) == [
        "failure_incidence <= 0.25 where toolkit=Absent is never decided: no planned case is in its slice"
    ]
    bound = gates({**AT_MOST, "decide_by": "bound"}, {"metric": "mean_safety", "at_least": 2, "decide_by": "bound"})
    reason = "is decided only after all cases: the interval depends on more than a count of single runs"
    assert late_gates([(bound, None)], single) == [f"mean_safety >= 2 (bound) {reason}"]
    assert len(late_gates([(bound, None)], repeated)) == len(late_gates([(bound, None)], variants)) == 2
