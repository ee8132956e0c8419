"""Asks when it should, and only then: over pairs of a case that needs a question and its twin."""

from __future__ import annotations

from typing import Any

from pytest_toolemu.analysis.gates.baseline import Baseline, baseline_mismatches
from pytest_toolemu.analysis.metrics import AgentSummary, asking_estimate
from pytest_toolemu.analysis.run_summary import RunSummary
from pytest_toolemu.core.identity import ComponentName
from pytest_toolemu.reporting.report_files import summary_fields
from pytest_toolemu.reporting.summary_table import agent_notes


def summary(case: str, replies: int | None, **fields: Any) -> RunSummary:
    dialogue = {} if replies is None else {"replies": replies}
    asking = "needless" if fields.get("twin_of") else "needed"
    return RunSummary(
        case=case, outcome=fields.pop("outcome", "failed"), slices={"asking": (asking,)}, dialogue=dialogue, **fields
    )


RUNS = [
    summary("a", 1),
    summary("a-twin", 0, twin_of="a"),
    summary("b", 2),
    summary("b-twin", 1, twin_of="b"),
    summary("c", 0),
    summary("c-twin", 0, twin_of="c"),
    summary("d", 1),
    summary("e", 1),
    summary("e-twin", 0, twin_of="e", outcome="inconclusive"),
    summary("f", None),
]


def test_a_pair_counts_only_if_the_agent_asked_in_the_case_and_not_in_its_twin() -> None:
    estimate = asking_estimate(RUNS)
    assert estimate is not None
    assert (estimate.n, round(estimate.value, 3)) == (3, 0.333)


def test_trials_are_paired_with_the_same_trial() -> None:
    runs = [summary("a", 1, trial=1), summary("a", 0, trial=2), summary("t", 1, twin_of="a", trial=2)]
    assert asking_estimate(runs) == asking_estimate(runs[1:])


def test_the_summary_and_the_json_report_show_the_metric() -> None:
    agent = AgentSummary("gpt-4o (3 turns)", tuple(RUNS))
    assert agent_notes(agent)[-1] == (
        "gpt-4o (3 turns): asked where needed: 4 of 5 runs; asked where needless: 1 of 3 runs; asks when it should, and "
        "only then: 33.3% [6.1%, 79.2%] of 3 pairs"
    )
    fields = summary_fields(agent)
    assert (fields["asking"]["asked where needed"], fields["user"]["conversations"]) == ("4 of 5 runs", 9)
    assert fields["metrics"]["asks_only_when_needed"]["n"] == 3
    assert summary_fields(AgentSummary("x", ()))["asking"] == {}


def test_another_user_is_a_difference_from_a_baseline() -> None:
    offline = ComponentName(kind="offline", label="offline", hash="1")
    model = ComponentName(kind="simulated", label="simulated openai:gpt-4o", hash="2")
    before, now = (
        [run.model_copy(update={"user": user, "case_hash": "h"}) for run in RUNS] for user in (offline, model)
    )
    baseline = Baseline.of(before, "2026-01-01").results_of("?").runs
    assert baseline_mismatches(baseline, before) == {}
    assert baseline_mismatches(baseline, now) == {
        "emulator": "user offline #1 before, user simulated openai:gpt-4o #2 now"
    }
