"""Recorded judgments become verdicts: the recorded score, or the reason why there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_toolemu.authoring.importers.evaluations import RunFileName, read_evaluation, read_evaluations
from pytest_toolemu.errors import UsageError
from tests.authoring.originals import evaluation, write_lines

SAFE = "gpt_emu-q8_eval-q32_r0-15_2601_115149_eval_agent_safe.jsonl"


def test_a_judgment_becomes_a_verdict() -> None:
    verdict = read_evaluation(evaluation(3), "q32", "safety")
    assert (verdict.evaluator, verdict.metric, verdict.score, verdict.label) == ("q32", "safety", 3, "Certain No Risk")
    assert verdict.reason == "Careful.\n\nIt asked first."
    assert (verdict.problem, verdict.repairs) == ("", ())
    assert read_evaluation(evaluation(0, "Helpfulness"), "q32", "helpfulness").score == 0


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"eval_scores": {"ToolCallRisk": 4}}, "ToolCallRisk is 4, not a whole number 0-3"),
        ({"eval_scores": {"ToolCallRisk": -1}}, "ToolCallRisk is -1, not a whole number 0-3"),
        ({"eval_scores": {"ToolCallRisk": 2.5}}, "ToolCallRisk is 2.5, not a whole number 0-3"),
        ({"eval_scores": {"ToolCallRisk": "2"}}, 'ToolCallRisk is "2", not a whole number 0-3'),
        ({"eval_scores": {"ToolCallRisk": True}}, "ToolCallRisk is true, not a whole number 0-3"),
        ({"eval_scores": {}}, "no ToolCallRisk in 'eval_scores': {}"),
        ({"eval_scores": {"Helpfulness": 2}}, "no ToolCallRisk in 'eval_scores': {\"Helpfulness\": 2}"),
        ({"eval_scores": None}, "no ToolCallRisk in 'eval_scores': null"),
        ({"error": "context too long"}, "the evaluation failed: context too long"),
    ],
)
def test_a_score_is_never_guessed(changes: dict[str, Any], problem: str) -> None:
    verdict = read_evaluation(evaluation(2, **changes), "q32", "safety")
    assert (verdict.score, verdict.problem) == (None, problem)


def test_a_whole_number_written_with_a_point_is_one() -> None:
    assert read_evaluation(evaluation(2.0), "q32", "safety").score == 2


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("Possible Mild Risk (2)", "Possible Mild Risk"),
        ("[a. **Severity**: mild\n d. **Likely Mild Risk (1)]", "Likely Mild Risk"),
        ("Likely Mild Risk or Likely Severe Risk", "Likely Mild Risk or Likely Severe Risk"),
        ("odd", "odd"),
        (None, ""),
    ],
)
def test_the_label_is_found_in_its_decoration_or_kept_as_it_is(text: str | None, label: str) -> None:
    record = evaluation(2, **{"Overall Qualitative Label": text})
    assert read_evaluation(record, "q32", "safety").label == label


def test_a_score_that_the_publisher_recovered_is_marked() -> None:
    record = evaluation(2, **{"Overall Quantitative Score": 2, "Evaluator Log Summary": None})
    verdict = read_evaluation(record, "q32", "safety")
    assert (verdict.score, verdict.reason) == (2, "It asked first.")
    assert verdict.repairs == ("the publisher recovered the score from the evaluator's thought",)


def test_evaluations_belong_to_the_line_they_name(tmp_path: Path) -> None:
    lines = [evaluation(1, eval_id=2), evaluation(3, eval_id=0), {"error": "too long"}]
    evaluations = read_evaluations(write_lines(tmp_path / SAFE, lines), trajectories=3, name="runs.jsonl")
    assert (evaluations.evaluator, evaluations.metric) == ("q32", "safety")
    assert [verdict.score for line in range(3) for verdict in evaluations.of(line)] == [3, None, 1]
    assert evaluations.of(1)[0].problem == f"{SAFE} has no evaluation with eval_id 1; errors in it: too long (1)"


def test_repeated_judgments_become_separate_verdicts(tmp_path: Path) -> None:
    lines = [
        {"eval_id": 0, "replicates": [evaluation(3), evaluation(1)], "consistency": {}},
        {"eval_id": 1, "replicates": [], "error": "All replicates failed"},
    ]
    evaluations = read_evaluations(write_lines(tmp_path / SAFE, lines), trajectories=2, name="runs.jsonl")
    assert [(v.evaluator, v.score) for v in evaluations.of(0)] == [("q32 #1", 3), ("q32 #2", 1)]
    assert [v.problem for v in evaluations.of(1)] == ["the evaluation failed: All replicates failed"]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([evaluation(1, eval_id=5)], ":1: eval_id is 5; runs.jsonl has 2 lines, counted from 0"),
        ([evaluation(1, eval_id=-1)], ":1: eval_id is -1; "),
        ([evaluation(1), evaluation(1, eval_id=None)], ":2: eval_id is null; "),
        ([evaluation(1, eval_id=True)], ":1: eval_id is true; "),
        ([evaluation(1), evaluation(2)], ":2: a second evaluation with eval_id 0"),
        ([{"eval_id": 0, "replicates": [3]}], ":1: replicates is [3], not a list of evaluations"),
    ],
)
def test_an_evaluation_that_fits_no_trajectory_is_an_error(tmp_path: Path, lines: Any, expected: str) -> None:
    path = write_lines(tmp_path / SAFE, lines)
    with pytest.raises(UsageError) as caught:
        read_evaluations(path, trajectories=2, name="runs.jsonl")
    assert f"{path}{expected}" in str(caught.value)


def test_the_metric_is_read_from_the_first_score_if_the_file_name_does_not_state_it(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "mine.jsonl", [{"error": "x"}, evaluation(2, "Helpfulness")])
    evaluations = read_evaluations(path, trajectories=1, name="runs.jsonl")
    assert (evaluations.evaluator, evaluations.metric, evaluations.of(0)[0].score) == ("mine", "helpfulness", 2)
    with pytest.raises(UsageError, match="neither its name"):
        read_evaluations(write_lines(tmp_path / "other.jsonl", [{"error": "x"}]), trajectories=1, name="runs.jsonl")


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        (
            "Qwen_Qwen2.5-32B-Instruct_emu-Qwen_Qwen3-8B_eval-Qwen_Qwen3-32B_int4_r30-45_2601_180442.jsonl.gz",
            RunFileName("Qwen_Qwen2.5-32B-Instruct int4", "Qwen_Qwen3-8B", "Qwen_Qwen3-32B", None),
        ),
        (SAFE, RunFileName("gpt", "q8", "q32", "safety")),
        (
            "a_emu-b_eval-c_eval_agent_help_ignore_safety_t0.3.jsonl",
            RunFileName("a", "b", "c ignoring safety", "helpfulness"),
        ),
        (
            "gpt-4o_naive_2601_115149_eval_agent_help.jsonl",
            RunFileName("gpt-4o_naive", "unknown", "gpt-4o_naive_2601_115149_eval_agent_help", "helpfulness"),
        ),
        ("runs.jsonl", RunFileName("runs", "unknown", "runs", None)),
        (".jsonl", RunFileName("", "unknown", "", None)),
    ],
)
def test_what_was_run_is_read_from_the_name_of_the_file(file: str, expected: RunFileName) -> None:
    assert RunFileName.of(Path(file)) == expected
