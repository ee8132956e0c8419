"""Gates with a baseline that are decided before all cases have run decide as they would have with all cases."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from pytest_toolemu.analysis.gates.baseline import Baseline
from pytest_toolemu.analysis.gates.early_decision import EarlyDecisions
from pytest_toolemu.analysis.gates.gate_decision import decide_gates
from pytest_toolemu.analysis.gates.gate_file import Gate, Gates
from pytest_toolemu.analysis.run_summary import RunSummary
from tests.gates.run_summaries import edited, result
from tests.gates.test_early_decision import decide_early, gates, item_of, plan, statuses

NO_WORSE = {"metric": "failure_incidence", "baseline": "no_worse"}
RULES: tuple[dict[str, Any], ...] = (
    NO_WORSE,
    {**NO_WORSE, "margin": 0.1},
    {"metric": "mean_safety", "baseline": "no_worse"},
    {"metric": "failure_incidence", "baseline": "not_inferior", "margin": 0.15},
    {"metric": "mean_safety", "baseline": "not_inferior", "margin": 0.4},
    {"metric": "pass_rate", "baseline": "no_worse", "where": {"risk_type": "data_loss"}},
)


def compared(*rules: dict[str, Any], **fields: Any) -> Gates:
    return gates(*rules, baseline="main.json", **fields)


def scores(draw: random.Random, n: int, trials: int, weights: Sequence[int]) -> list[RunSummary]:
    """Return runs whose safety scores 0 to 3 are drawn with these weights."""
    return [
        result(case, draw.choices(range(4), weights)[0], trial=trial)
        for case in range(n)
        for trial in range(1, trials + 1)
    ]


def changed(draw: random.Random, runs: Sequence[RunSummary], worse: float, better: float) -> list[RunSummary]:
    """Return the runs of another agent: this share of its runs has the lowest score, and this share the highest."""
    new = []
    for run in runs:
        safety = draw.choices((0, 3, run.safety), (worse, better, 1 - worse - better))[0]
        new.append(edited(run, safety=safety, outcome="passed" if (safety or 0) >= 2 else "failed"))
    return new


def baseline_of(runs: Sequence[RunSummary]) -> Baseline:
    return Baseline.of(runs, "2026-01-01T00:00:00+00:00")


def shuffled(draw: random.Random, runs: Sequence[RunSummary]) -> list[RunSummary]:
    """Return the runs with their cases in random order, and the trials of a case together."""
    cases = sorted({run.case for run in runs})
    draw.shuffle(cases)
    return [run for case in cases for run in runs if run.case == case]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: Gate.model_validate(rule).name)
@pytest.mark.parametrize(("trials", "worse", "better"), [(1, 0.05, 0.05), (1, 0.5, 0.0), (2, 0.0, 0.3)])
def test_without_a_permitted_error_every_decision_is_that_of_all_cases(
    rule: dict[str, Any], trials: int, worse: float, better: float
) -> None:
    draw = random.Random(f"{trials} {worse}")
    old = scores(draw, 30, trials, (2, 1, 1, 6))
    new, source, baseline = shuffled(draw, changed(draw, old, worse, better)), compared(rule), baseline_of(old)
    _, early = decide_early(source, new, 0, baseline)
    assert statuses(early) == statuses(decide_gates(source, new, baseline))


def test_a_clear_change_is_decided_early_and_explained() -> None:
    draw = random.Random(4)
    old = scores(draw, 200, 1, (1, 1, 1, 7))
    new = shuffled(draw, changed(draw, old, 0.5, 0.0))
    number, decisions = decide_early(compared(NO_WORSE), new, 0.01, baseline_of(old))
    assert number < 100
    assert decisions[-1].status == "failed"
    assert f" of {number} cases (0 lost to errors); p " in decisions[-1].text
    extremes = "; decided early, with an error probability of at most 0.01: all 200 cases could be worse on "
    assert extremes in decisions[-1].text


def test_the_permitted_error_is_kept() -> None:
    """Of 60 sessions close to the limit, hardly any is decided differently than by all of its cases."""
    source, wrong, needed = compared(NO_WORSE), 0, 0
    for seed in range(60):
        draw = random.Random(seed)
        old = scores(draw, 40, 1, (2, 1, 1, 6))
        new, baseline = shuffled(draw, changed(draw, old, 0.14, 0.02)), baseline_of(old)
        number, early = decide_early(source, new, 0.05, baseline)
        wrong += statuses(early) != statuses(decide_gates(source, new, baseline))
        needed += number
    # With an error of exactly 5 % in each session, more than 9 would be seen in one of 1,000 trials.
    assert wrong <= 9
    assert needed < 60 * 40


def test_gates_of_a_file_are_decided_together_by_holms_method() -> None:
    draw = random.Random(8)
    old = scores(draw, 100, 1, (1, 1, 1, 7))
    new, baseline = shuffled(draw, changed(draw, old, 0.25, 0.0)), baseline_of(old)
    source = compared(NO_WORSE, {"metric": "mean_safety", "baseline": "no_worse"}, {**NO_WORSE, "margin": 0.2})
    number, early = decide_early(source, new, 0.05, baseline)
    assert number < 100
    assert statuses(early) == statuses(decide_gates(source, new, baseline))
    assert list(statuses(early).values())[-3:] == ["failed", "failed", "passed"]


def test_gates_of_the_same_name_in_two_files_are_decided_each_with_its_baseline() -> None:
    new = [result(case, 3 if case % 2 else 0) for case in range(100)]
    sources = [(compared(NO_WORSE), baseline_of([result(case, score) for case in range(100)])) for score in (3, 0)]
    early, known = EarlyDecisions(sources, plan(new), 0), dict[str, RunSummary]()
    count = next(number for number, run in enumerate(new, 1) if early.update(known := known | {item_of(run): run}))
    assert count < 100
    decided = early.applied([decide_gates(source, new[:count], baseline) for source, baseline in sources], known)
    assert [decisions[-1].status for decisions in decided] == ["failed", "passed"]


def test_a_session_that_cannot_be_compared_is_not_ended() -> None:
    old = [result(case, 3) for case in range(60)]
    known = {item_of(run): run for run in old}
    for runs, baseline in (
        (old[:40], baseline_of(old)),  # cases of the baseline are missing from the plan
        (old, baseline_of([edited(run, agent=name) for name in ("one", "other") for run in old])),
        ([edited(run, case_hash="other") for run in old], baseline_of(old)),
    ):
        early = EarlyDecisions([(compared(NO_WORSE), baseline)], plan(runs), 0.05)
        assert not early.update(known | {item_of(run): run for run in runs})


def test_too_many_runs_in_flight_without_a_verdict_leave_the_gate_undecided() -> None:
    old = [result(case, 3) for case in range(80)]
    source, baseline = compared(NO_WORSE), baseline_of(old)
    early = EarlyDecisions([(source, baseline)], plan(old), 0.05)
    assert early.update({item_of(run): run for run in old[:70]})
    runs = [*old[:70], *(edited(run, safety=None, outcome="broken") for run in old[70:78])]
    (decisions,) = early.applied([decide_gates(source, runs, baseline)], {item_of(run): run for run in runs})
    assert decisions[-1].status == "undecided"
    text = "decided early, but too many of the runs that were in flight at the decision lack a verdict"
    assert decisions[-1].text == text


def test_the_runs_in_flight_at_a_decision_are_part_of_its_explanation() -> None:
    old = [result(case, 3) for case in range(80)]
    new, source, baseline = (
        [edited(run, safety=0, outcome="failed") for run in old],
        compared(NO_WORSE),
        baseline_of(old),
    )
    early = EarlyDecisions([(source, baseline)], plan(new), 0.01)
    assert early.update({item_of(run): run for run in new[:40]})
    (decisions,) = early.applied([decide_gates(source, new[:60], baseline)], {item_of(run): run for run in new[:60]})
    assert "worse on 60, better on 0 of 60 cases (0 lost to errors); p " in decisions[-1].text
    assert "all 80 cases could be worse on 63 to 80 and better on 0 to 0" in decisions[-1].text


def test_runs_without_a_verdict_only_delay_the_decision() -> None:
    old = [result(case, 3) for case in range(80)]
    lost = [edited(run, safety=None, outcome="inconclusive") for run in old[:4]] + old[4:]
    source, baseline = compared(NO_WORSE, inconclusive_at_most=0.9, pairs_lost_at_most=0.9), baseline_of(old)
    of_all, _ = decide_early(source, old, 0.01, baseline)
    with_losses, _ = decide_early(source, lost, 0.01, baseline)
    assert of_all < with_losses
    strict = EarlyDecisions([(compared(NO_WORSE), baseline)], plan(lost), 0.01)
    assert not strict.update({item_of(run): run for run in lost[:60]})


def test_a_case_without_a_value_may_also_be_left_out_of_the_comparison() -> None:
    old = [result(case, 3, trial=trial) for case in range(2) for trial in (1, 2)]
    lost = [edited(run, safety=None, outcome="inconclusive") for run in old[:2]] + old[2:]
    limits = {"inconclusive_at_most": 0.9, "pairs_lost_at_most": 0.9}
    source = compared({"metric": "failure_incidence", "baseline": "not_inferior", "margin": 0.3}, **limits)
    full = statuses(decide_gates(source, lost, baseline_of(old)))
    # One case has no interval. With the lost case at its best or at its worst, there would be two.
    assert full["failure_incidence not inferior to the baseline by 0.3"] == "undecided"
    assert not EarlyDecisions([(source, baseline_of(old))], plan(lost), 0).update({item_of(run): run for run in lost})


def test_cases_that_the_baseline_lacks_are_left_out_if_that_is_allowed() -> None:
    old = [result(case, 3) for case in range(80)]
    baseline = baseline_of(old[10:])
    number, decisions = decide_early(compared(NO_WORSE, allow=("cases",)), old, 0.01, baseline)
    assert 10 < number < 80
    assert "all 70 cases could be" in decisions[-1].text
