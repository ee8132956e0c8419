"""Reads the evaluations that ToolEmu and its forks publish in files next to the trajectories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pytest_toolemu.authoring.importers.jsonl_files import JsonLine, RunFileName, raise_if_any, read_lines
from pytest_toolemu.core.case_vocabulary import Metric
from pytest_toolemu.core.verdict import HELPFULNESS_LABELS, SAFETY_LABELS, Verdict
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.yaml_document import show

MEMBERS: Final = {
    "Evaluator Thought",
    "Overall Qualitative Label",
    "Overall Quantitative Score",
    "Evaluator Log Summary",
    "eval_scores",
    "eval_id",
    "error",
    "replicates",
}
"""The members of an evaluation that are read."""

_SCORES: Final[dict[Metric, str]] = {"safety": "ToolCallRisk", "helpfulness": "Helpfulness"}
_LABELS: Final = {"safety": SAFETY_LABELS, "helpfulness": HELPFULNESS_LABELS}


def read_evaluation(record: Mapping[str, Any], evaluator: str, metric: Metric) -> Verdict:
    """Return the verdict of one evaluation.

    Its score is the recorded integer from 0 to 3; anything else is a problem.
    """
    score, problem = _score(record, metric)
    text = str(record.get("Overall Qualitative Label") or "")
    labels = [label for label in _LABELS[metric] if label in text]
    notes = (record.get("Evaluator Log Summary"), record.get("Evaluator Thought"))
    # Some publishers searched the thoughts for missing scores, and stored the result as a number.
    repaired = isinstance(record.get("Overall Quantitative Score"), int)
    return Verdict(
        evaluator=evaluator,
        metric=metric,
        score=score,
        label=labels[0] if len(labels) == 1 else text.strip(),
        reason="\n\n".join(str(note) for note in notes if note),
        problem=problem,
        repairs=("the publisher recovered the score from the evaluator's thought",) if repaired else (),
    )


def _score(record: Mapping[str, Any], metric: Metric) -> tuple[int | None, str]:
    if error := record.get("error"):
        return None, f"the evaluation failed: {error}"
    scores = record.get("eval_scores")
    value = scores.get(_SCORES[metric]) if isinstance(scores, dict) else None
    if value is None:
        return None, f"no {_SCORES[metric]} in 'eval_scores': {show(scores)}"
    if isinstance(value, bool) or not isinstance(value, int | float) or value not in range(4):
        return None, f"{_SCORES[metric]} is {show(value)}, not a whole number 0-3"
    return int(value), ""


@dataclass(frozen=True)
class EvaluationFile:
    """The verdicts of one evaluator on one metric, by the line number of the trajectory, counted from 0."""

    path: Path
    evaluator: str
    metric: Metric
    verdicts: dict[int, tuple[Verdict, ...]]
    lines: dict[int, JsonLine]
    """The evaluations as recorded, by the same line numbers."""
    failures: Counter[str]
    """Errors of evaluations that name no trajectory."""

    def of(self, line: int) -> tuple[Verdict, ...]:
        """Return the verdicts of a trajectory; if there are none, a verdict whose problem says so."""
        if line in self.verdicts:
            return self.verdicts[line]
        problem = f"{self.path.name} has no evaluation with eval_id {line}"
        if self.failures:
            problem += f"; errors in it: {', '.join(f'{error} ({n})' for error, n in self.failures.items())}"
        return (Verdict(evaluator=self.evaluator, metric=self.metric, problem=problem),)


def read_evaluations(path: Path, trajectories: int, name: str) -> EvaluationFile:
    """Read the evaluations of a number of trajectories, from a file called ``name``.

    Raise UsageError with every line that belongs to none of them.
    """
    lines = read_lines(path)
    metric = _metric(path, lines)
    evaluator = RunFileName.of(path).evaluator
    verdicts: dict[int, tuple[Verdict, ...]] = {}
    evaluated: dict[int, JsonLine] = {}
    failures: Counter[str] = Counter()
    problems = []
    for line in lines:
        identity, replicates = line.record.get("eval_id"), line.record.get("replicates", [])
        if identity is None and "error" in line.record:
            failures[str(line.record["error"])] += 1
        elif isinstance(identity, bool) or not isinstance(identity, int) or not 0 <= identity < trajectories:
            problems.append(f"{line}: eval_id is {show(identity)}; {name} has {trajectories} lines, counted from 0")
        elif identity in verdicts:
            problems.append(f"{line}: a second evaluation with eval_id {identity}")
        elif not (isinstance(replicates, list) and all(isinstance(record, dict) for record in replicates)):
            problems.append(f"{line}: replicates is {show(replicates)}, not a list of evaluations")
        else:
            numbered = [(f"{evaluator} #{n}", record) for n, record in enumerate(replicates, 1)]
            records = numbered or [(evaluator, line.record)]
            verdicts[identity] = tuple(read_evaluation(record, name, metric) for name, record in records)
            evaluated[identity] = line
    raise_if_any(problems)
    return EvaluationFile(path, evaluator, metric, verdicts, evaluated, failures)


def _metric(path: Path, lines: list[JsonLine]) -> Metric:
    """Return the metric of a file, from its name or else from its first score."""
    if named_metric := RunFileName.of(path).metric:
        return named_metric
    for line in lines:
        scores = line.record.get("eval_scores")
        for metric, key in _SCORES.items():
            if isinstance(scores, dict) and key in scores:
                return metric
    raise UsageError(
        f"{path}: neither its name ('…_eval_agent_safe.jsonl', '…_help.jsonl') nor a score states its metric; rename "
        "the file"
    )
