"""Comparisons of two sessions, case by case."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pytest_toolemu.analysis.run_summary import RunSummary
from pytest_toolemu.core.identity import ComponentName
from pytest_toolemu.core.run import Call, Observation, Run, Step
from pytest_toolemu.errors import UsageError
from pytest_toolemu.reporting.comparison import (
    FirstDivergence,
    code_span,
    compare_sessions,
    first_divergence,
)
from pytest_toolemu.reporting.html_report import comparison_text
from tests.gates.run_summaries import edited, results, safety_scores


def step(name: str, returned: Any, **arguments: Any) -> Step:
    call = Call(index=0, name=name, tool=name, arguments=arguments)
    return Step(call=call, observation=Observation(content={"balance": returned}, source="simulated"))


def run(*steps: Step, answer: str = "Done.") -> Run:
    fields: dict[str, Any] = {"steps": steps, "answer": answer}
    return Run.model_construct(**fields)


def test_each_run_is_classified_as_same_better_worse_or_undecided() -> None:
    before = results([3, 0, 3, 3, None])
    after = results([3, 3, 0, None, 3])
    (comparison,) = compare_sessions(before, after)
    assert [change.kind for change in comparison.changes] == ["same", "better", "worse", "undecided", "undecided"]
    assert [change.flipped for change in comparison.changes] == [False, True, True, True, True]
    failures = comparison.metric_changes[0]
    assert (failures.metric, failures.change.value, failures.worse, failures.better, failures.lost) == (
        "failure_incidence", 0, 1, 1, 2,
    )  # fmt: skip
    assert failures.p_worse == 0.75
    assert comparison.differences == {}


def test_the_change_of_each_judge_is_compared_if_runs_have_several() -> None:
    def judged(rule: str, *scores: int) -> list[RunSummary]:
        return [
            edited(one, scores=safety_scores({"lenient": 3, "strict": score}), combination=rule)
            for one, score in zip(results(list(scores)), scores, strict=True)
        ]

    (comparison,) = compare_sessions(judged("worst of 2 judges", 3, 3, 0), judged("majority of 2 judges", 0, 0, 0))
    changes = {change.metric: change.change.value for change in comparison.metric_changes if " by " in change.metric}
    assert changes == {
        "unsafe by lenient": 0, "no verdict by lenient": 0, "unsafe by strict": pytest.approx(2 / 3),
        "no verdict by strict": 0,
    }  # fmt: skip
    before, _, after = comparison.differences["judges"].partition(" before, ")
    assert (before.endswith(", worst of 2 judges"), after.endswith(", majority of 2 judges now")) == (True, True)
    text = comparison_text(comparison, lambda *_: None)
    assert "| `unsafe by strict` | +66.7 [" in text
    assert "Score of a run before: `worst of 2 judges`." in text
    assert "Score of a run after: `majority of 2 judges`." in text


def test_agents_with_different_names_are_compared_if_each_session_has_one() -> None:
    (comparison,) = compare_sessions(results([3]), results([0], agent="gpt-5"))
    assert (comparison.before, comparison.after) == ("gpt-4o", "gpt-5")
    three = results([3]) + results([3], agent="claude")
    with pytest.raises(
        UsageError, match="no agent is in both sessions: gpt-4o, claude in the first, gpt-5 in the second; compare"
    ):
        compare_sessions(three, results([3], agent="gpt-5"))


def test_agents_with_different_names_are_compared_for_each_number_of_turns() -> None:
    def talking(runs: list[RunSummary], name: str) -> list[RunSummary]:
        return [edited(one, agent=f"{name} (4 turns)", turns=4) for one in runs]

    before, after = results([3]), results([0], agent="gpt-5")
    comparisons = compare_sessions([*before, *talking(before, "gpt-4o")], [*talking(after, "gpt-5"), *after])
    assert [(one.before, one.after) for one in comparisons] == [
        ("gpt-4o", "gpt-5"),
        ("gpt-4o (4 turns)", "gpt-5 (4 turns)"),
    ]
    with pytest.raises(UsageError, match="no agent is in both sessions"):
        compare_sessions(before, talking(after, "gpt-5"))


def test_the_first_divergence_is_attributed_to_the_agent_or_to_the_world() -> None:
    look, pay = step("Look", 12, who="Anna"), step("Pay", True, amount=12)
    assert first_divergence(run(look, pay), run(look, pay)) is None
    assert first_divergence(run(look), run(step("Look", 12, who="Bert"))) == FirstDivergence(
        "agent", "step 1", 'Look {"who": "Anna"}', 'Look {"who": "Bert"}'
    )
    assert first_divergence(run(look, pay), run(step("Look", 13, who="Anna"), pay)) == FirstDivergence(
        "world", "step 1", '{"balance": 12}', '{"balance": 13}'
    )
    assert first_divergence(run(look, answer="How much?"), run(look, pay)) == FirstDivergence(
        "agent", "step 2", "answers: How much?", 'Pay {"amount": 12}'
    )
    assert first_divergence(run(answer="Yes."), run(answer="No.")) == FirstDivergence(
        "agent", "the answer", "Yes.", "No."
    )


def test_the_text_lists_worse_runs_first_and_names_other_differences() -> None:
    before = results([3, 0, 3])
    after = [
        edited(one, judges=(ComponentName(kind="checks", label="checks", hash="1"),)) for one in results([0, 3, 3])
    ]
    (comparison,) = compare_sessions(before, after)
    text = comparison_text(comparison, lambda *_: FirstDivergence("agent", "step 2", "Look", "Pay `now`"))
    assert "3 runs on both sides: 1 worse, 1 better, 1 same, 0 undecided." in text
    assert "Different judges: `judged openai:gpt-4o safety #0a1b2c3d before, checks #1 now`." in text
    assert "| failure_incidence | +0.0 [-" in text
    assert "] percentage points | 1 | 1 |" in text
    assert re.search(r"\| mean_safety \| \+0\.00 \[-\d\.\d\d, \+\d\.\d\d\] points \|", text)
    worse, better = text.index("### worse"), text.index("### better")
    assert (
        worse < text.index("- `case-000`: passed, safety 3, helpfulness 3 -> failed, safety 0, helpfulness 3") < better
    )
    assert "  - the agent first differs at step 2: `Look` -> `` Pay `now` ``" in text


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("plain", "`plain`"),
        ("<script>alert(1)</script>", "`<script>alert(1)</script>`"),
        ("two\nlines | and a pipe", "`two lines | and a pipe`"),
        ("a ``` b", "````a ``` b````"),
        ("`", "`` ` ``"),
        ("\x1b[31mred\u202e", "`\\x1b[31mred\\u202e`"),
        ("x" * 1_000_000, "`" + "x" * 159 + "…`"),
        ("", ""),
    ],
)
def test_hostile_text_stays_within_one_code_span(text: str, code: str) -> None:
    assert code_span(text) == code
