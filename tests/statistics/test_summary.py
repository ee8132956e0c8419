"""Summaries of runs: every metric on a few runs that can be counted by hand."""

from __future__ import annotations

import math
from typing import Any

import krippendorff
import pytest

from pytest_toolemu.analysis.metrics import NO_VALUE, AgentSummary, summarize_agents, worst_runs
from pytest_toolemu.analysis.rater_agreement import judge_alpha, rater_pairs
from pytest_toolemu.analysis.run_summary import DIMENSIONS, RunSummary, known_score, slices, summary_of
from pytest_toolemu.analysis.statistics.intervals import Estimate
from pytest_toolemu.core.identity import ComponentName
from pytest_toolemu.core.run import Identity, Outcome, Run, Verdict
from pytest_toolemu.models.pricing import Cost
from pytest_toolemu.reporting.summary_table import agent_notes
from tests.gates.run_summaries import edited, safety_scores
from tests.reporting.runs import run as stored_run


def summary(case: str, safety: int | None, helpfulness: int | None = 3, **fields: object) -> RunSummary:
    passed = safety is not None and safety >= 2 and (helpfulness or 0) >= 2
    outcome = "inconclusive" if safety is None else "passed" if passed else "failed"
    return edited(RunSummary(case=case, agent="a", outcome=outcome, safety=safety, helpfulness=helpfulness), **fields)  # type: ignore[arg-type]


def estimate(agent: AgentSummary, metric: str) -> Estimate:
    found = agent.metrics[metric].estimate
    assert found is not None
    return found


RUNS = (
    summary(
        "one",
        3,
        3,
        slices={
            "risk_type": ("privacy_breach",),
            "toolkit": ("Bank", "Mail"),
            "severity": ("severe",),
            "gap": ("both",),
        },
    ),
    summary(
        "two",
        0,
        1,
        slices={
            "risk_type": ("privacy_breach", "data_loss"),
            "toolkit": ("Mail",),
            "severity": ("mild",),
            "gap": ("task",),
            "clue": ("stale", "text"),
        },
    ),
    summary("three", 1, 2, stop="quit", slices={"toolkit": ("Bank",), "severity": ("severe",), "gap": ("none",)}),
    summary("four", None, None, reason="the judge refused"),
)


def test_a_summary_counts_its_runs() -> None:
    (agent,) = summarize_agents(RUNS)
    assert (agent.agent, agent.n, agent.count("inconclusive"), agent.missing) == ("a", 4, 1, {"inconclusive": 1})
    assert agent.histogram("safety") == {0: 1, 1: 1, 2: 0, 3: 1}
    assert agent.safe_and_helpful == {(True, True): 1, (True, False): 0, (False, True): 1, (False, False): 1}
    assert agent.quits == 1
    safety, helpfulness = estimate(agent, "mean_safety"), estimate(agent, "mean_helpfulness")
    assert (safety.value, helpfulness.value) == pytest.approx((4 / 3, 2))
    assert (safety.low or 0) < 4 / 3 < (safety.high or 0)
    assert estimate(agent, "safety_at_zero").value == estimate(agent, "quit_rate").value == pytest.approx(1 / 3)
    assert agent.metrics["mean_safety"].text == f"1.33 [{safety.low:.2f}, {safety.high:.2f}]"
    assert agent.metrics["quit_rate"].value == "33.3%"
    assert agent.metrics["asks_only_when_needed"].text == NO_VALUE


def test_missing_runs_widen_the_bounds_but_do_not_change_the_rate() -> None:
    agent = AgentSummary("a", RUNS)
    assert (agent.failures, agent.judged, agent.n) == (2, 3, 4)
    incidence = estimate(agent, "failure_incidence")
    assert incidence.value == pytest.approx(2 / 3)
    assert (incidence.low, incidence.high) == pytest.approx((0.2077, 0.9385), abs=1e-4)
    assert (agent.bounds, agent.bounds_text) == ((0.5, 0.75), "50.0% to 75.0%")
    nothing = AgentSummary("a", RUNS[3:])
    assert (nothing.metrics["failure_incidence"].estimate, nothing.bounds) == (None, (0.0, 1.0))


def test_every_run_is_in_at_least_one_slice() -> None:
    assert {name: len(runs) for name, runs in slices(RUNS, "risk_type").items()} == {
        "data_loss": 1,
        "privacy_breach": 2,
        "unknown": 2,
    }
    assert {name: len(runs) for name, runs in slices(RUNS, "toolkit").items()} == {
        "Bank": 2,
        "Mail": 1,
        "unknown": 1,
    }
    assert {name: len(runs) for name, runs in slices(RUNS, "clue").items()} == {"stale": 1, "text": 1, "unknown": 3}
    for dimension in DIMENSIONS:
        sliced = [run for runs in slices(RUNS, dimension).values() for run in runs]
        assert all(run in sliced for run in RUNS)


def test_a_run_counts_once_in_a_slice_that_its_case_names_twice() -> None:
    repeated = RUNS[0].model_copy(update={"slices": {"risk_type": ("data_loss",) * 2, "clue": ("stale",) * 2}})
    assert slices([repeated], "risk_type") == {"data_loss": (repeated,)}
    assert slices([repeated], "clue") == {"stale": (repeated,)}


def test_trials_are_summarized_by_pass_at_k_pass_hat_k_and_flakiness() -> None:
    scores = {"steady": (3, 3, 3, 3), "flaky": (3, 0, 3, 0), "bad": (0, 0, 0, 0), "halfway": (3, 3, 1, None)}
    agent = AgentSummary(
        "a", tuple(summary(c, s, 3, trial=t) for c, all_ in scores.items() for t, s in enumerate(all_, 1))
    )
    assert agent.trials == 4
    assert estimate(agent, "pass@2").value == pytest.approx((1 + 5 / 6 + 0 + 1) / 4)
    assert estimate(agent, "pass^2").value == pytest.approx((1 + 1 / 6 + 0 + 1 / 3) / 4)
    assert estimate(agent, "3-of-4").value == pytest.approx(1 / 4)
    assert agent.flaky == pytest.approx({"flaky": 2 / 3, "halfway": 2 / 3})
    assert not AgentSummary("a", agent.runs[:1]).trial_metrics


def test_repeated_trials_do_not_narrow_the_interval_of_an_incidence() -> None:
    once = AgentSummary("a", tuple(summary(str(case), 0 if case % 3 == 0 else 3) for case in range(30)))
    often = AgentSummary("a", tuple(edited(r, trial=t) for r in once.runs for t in range(5)))
    one, other = estimate(once, "failure_incidence"), estimate(often, "failure_incidence")
    assert (one.low, one.high) == pytest.approx((other.low, other.high))


def test_checks_do_not_affect_agreement_among_judges() -> None:
    scores = {"a": (3, 3, 0), "b": (0, 1, 0), "c": (2, 2, 3), "d": (1, 3, 1)}
    names = ("judge one", "judge two", "checks")

    def runs(count: int) -> list[RunSummary]:
        return [
            summary(
                case,
                0,
                scores=safety_scores(dict(zip(names[:count], ratings, strict=False))),
            )
            for case, ratings in scores.items()
        ]

    assert judge_alpha(runs(3), "safety") == judge_alpha(runs(2), "safety")
    assert rater_pairs(runs(3), "safety")[0] == rater_pairs(runs(2), "safety")[0]
    alone = [edited(r, scores=r.scores[1:]) for r in runs(3)]
    assert judge_alpha(alone, "safety") is None, "one judge and the checks are not two raters"


def test_evaluators_are_compared_on_runs_that_both_judged() -> None:
    def judged(case: str, *scores: int | None) -> RunSummary:
        return summary(case, 3, scores=safety_scores({f"judge {i}": score for i, score in enumerate(scores)}))

    runs = [
        judged("a", 3, 3, 0),
        judged("b", 0, 1, 0),
        judged("c", 2, None, 3),
        judged("d", 1, 3, 1),
        summary("e", None),
    ]
    pair, *others = rater_pairs(runs, "safety")
    assert (pair.first, pair.second, pair.n, len(others)) == ("judge 0", "judge 1", 3, 2)
    assert pair.exact is not None
    assert pair.binary is not None
    assert pair.exact.value == pytest.approx(1 / 3)
    assert pair.binary.value == pytest.approx(0.4)
    alpha = judge_alpha(runs, "safety")
    assert alpha is not None
    by_rater: list[list[float]] = [[3, 0, 2, 1], [3, 1, math.nan, 3], [0, 0, 3, 1]]
    assert alpha.value == pytest.approx(krippendorff.alpha(by_rater, level_of_measurement="interval"))
    assert alpha.n == 4
    assert rater_pairs(runs, "helpfulness") == []
    assert judge_alpha(runs, "helpfulness") is None


def test_a_run_summary_reads_back_from_a_report_unchanged() -> None:
    original = summary(
        "one",
        3,
        slices={"risk_type": ("data_loss",)},
        scores=safety_scores({"judge": 3}),
        judges=(ComponentName(kind="own", label="judge", hash="1"),),
        validity={"calls": 2},
        costs={"agent": Cost(calls=1, usd=0.5)},
    )
    assert RunSummary.from_json(original.as_json()) == original


@pytest.mark.parametrize(
    ("outcome", "first", "second", "expected"),
    [
        ("passed", 3, 2, 2),
        ("failed", 3, 0, 0),
        ("inconclusive", 3, None, None),
        ("inconclusive", 0, None, 0),
        ("broken", 3, 2, None),
        ("broken", 0, 0, None),
        ("broken", 0, "unheard", None),
    ],
)
def test_a_score_is_unknown_if_the_run_is_broken_or_a_missing_verdict_could_be_worse(
    outcome: Outcome, first: int, second: int | str | None, expected: int | None
) -> None:
    verdicts = [Verdict(evaluator="one", metric="safety", score=first)]
    if not isinstance(second, str):
        verdicts.append(Verdict(evaluator="two", metric="safety", score=second))
    judges = ({"kind": "judged", "rubric": "safety"}, {"kind": "own", "name": "two"})
    identity = Identity(agent={}, emulator={}, evaluators=judges)
    fields: dict[str, Any] = {"outcome": outcome, "verdicts": tuple(verdicts), "identity": identity}
    run = Run.model_construct(**fields)
    assert known_score(run, "safety") == expected


def test_kappa_of_an_evaluator_with_constant_ratings_is_undefined_with_a_reason() -> None:
    runs = [summary(str(case), 3, scores=safety_scores({"one": case, "two": 3})) for case in (2, 3, 3)]
    (pair,) = rater_pairs(runs, "safety")
    assert (pair.binary, pair.why_no_binary) == (None, "one and two gave the same rating throughout")
    assert (pair.quadratic, pair.why_no_quadratic) == (None, "two gave the same rating throughout")


class TestEachOfSeveralJudges:
    def judged(self, case: str, *scores: int | None, **fields: object) -> RunSummary:
        by_judge = {f"judge {number}": score for number, score in enumerate(scores)}
        text = "worst of 2 judges" if len(scores) > 1 else ""
        one = summary(case, 3, scores=safety_scores({"checks": 3, **by_judge}), combination=text)
        return edited(one, **fields)

    def test_has_its_own_unsafe_share_and_missing_verdicts(self) -> None:
        runs = [self.judged("a", 3, 0), self.judged("b", 1, 0), self.judged("c", 3, None), self.judged("d", 3, 3)]
        (agent,) = summarize_agents([*runs, self.judged("e", 0, 0, outcome="broken")])
        assert agent.combination == "worst of 2 judges"
        values = {name: row.value for name, row in agent.metrics.items() if " by " in name}
        assert values == {
            "unsafe by judge 0": "25.0%",
            "helpful by judge 0": NO_VALUE,
            "no verdict by judge 0": "20.0%",
            "unsafe by judge 1": "66.7%",
            "helpful by judge 1": NO_VALUE,
            "no verdict by judge 1": "40.0%",
        }
        rule, *judges = agent_notes(agent)
        assert rule == "a: score of a run: worst of 2 judges"
        assert [note.partition(" [")[0] for note in judges] == ["a: judge 0: unsafe 25.0%", "a: judge 1: unsafe 66.7%"]

    @pytest.mark.parametrize(
        ("rule", "text"),
        [("majority", "majority of 3 judges"), ("gpt-5", "gpt-5, one of 3 judges")],
    )
    def test_is_counted_in_the_rule_of_a_run(self, rule: str, text: str) -> None:
        names = ("checks", "a", "b", "c")
        several = tuple(Verdict(evaluator=name, metric="safety", score=3) for name in names)
        helpful = Verdict(evaluator="a", metric="helpfulness", score=3)
        run = stored_run("case", verdicts=(*several, helpful), combine=rule)
        assert summary_of(run, "").combination == text
        alone = run.model_copy(update={"verdicts": (several[0], several[1], helpful)})
        assert summary_of(alone, "").combination == ""

    def test_is_not_listed_if_every_run_has_only_one(self) -> None:
        apart = [self.judged("a", 3), summary("b", 3, scores=safety_scores({"checks": 3, "other": 0}))]
        (agent,) = summarize_agents(apart)
        assert (agent.combination, agent.judge_metrics, agent_notes(agent)) == ("", [], [])


def test_scores_of_broken_runs_do_not_affect_agreement() -> None:
    runs = [summary(str(case), 3, scores=safety_scores({"one": 3, "two": case})) for case in (0, 3, 3)]
    (pair,) = rater_pairs([*runs, edited(runs[0], case="broken", outcome="broken")], "safety")
    assert pair.n == 3


def test_the_worst_runs_are_the_least_safe() -> None:
    assert [row.case for row in worst_runs(RUNS)] == ["two", "three"]


def test_the_shares_of_passed_runs_are_told_by_whether_asking_is_needed() -> None:
    runs = [
        summary("one", 3, 3, slices={"asking": ("needed",)}),
        summary("two", 0, 3, slices={"asking": ("needed",)}),
        summary("three", 3, 3, slices={"asking": ("needless",)}),
        summary("four", None, slices={"asking": ("needless",)}),
        summary("five", 3, 3),
    ]
    (agent,) = summarize_agents(runs)
    assert agent_notes(agent) == [
        "a: passed where asking is needed 50.0% [9.5%, 90.5%], needless 100.0% [20.7%, 100.0%]"
    ]
    assert agent_notes(AgentSummary("a", (summary("five", 3, 3),))) == []
