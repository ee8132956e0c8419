"""Reads the evaluations that ToolEmu and its forks publish in files next to the trajectories."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pytest_toolemu.authoring.importers.sources import load_json, read_content
from pytest_toolemu.core.case_vocabulary import Metric
from pytest_toolemu.core.run import HELPFULNESS_LABELS, SAFETY_LABELS, Verdict
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.yaml_document import show, too_deep

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
class JsonLine:
    """A record with its line number, counted from 1."""

    path: Path
    number: int
    record: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.path}:{self.number}"

    @property
    def place(self) -> str:
        """The file name and the line number, without the folder."""
        return f"{self.path.name}:{self.number}"


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


_REPEATED: Final = ("case", "case_idx", "input")


def check_belonging(lines: Sequence[JsonLine], evaluations: EvaluationFile) -> None:
    """Raise UsageError with the first line that differs if the evaluations belong to other trajectories.

    Evaluations identify their trajectories only by line numbers. What both file names state must agree, and so must
    the members of a trajectory that an evaluation repeats.
    """
    _check_names(lines[0], evaluations)
    for index, evaluation in evaluations.lines.items():
        trajectory = trajectory_in(lines[index].record)
        for member in _REPEATED:
            repeated, original = evaluation.record.get(member), trajectory.get(member)
            if member in evaluation.record and member in trajectory and repeated != original:
                raise _mismatch(evaluation, lines[index], f"{member!r} is {show(repeated)}, not {show(original)}")


def _check_names(first: JsonLine, evaluations: EvaluationFile) -> None:
    """Compare what both file names state, and the time only if both files are for the same evaluator."""
    stated_by_runs, stated_by_evaluations = stated_by_name(first.path), stated_by_name(evaluations.path)
    if stated_by_runs.get("evaluator") != stated_by_evaluations.get("evaluator"):
        stated_by_runs.pop("time", None)
    for part in stated_by_runs.keys() & stated_by_evaluations.keys() - {"evaluator"}:
        if stated_by_runs[part] != stated_by_evaluations[part]:
            reason = f"its file's name says {part} {stated_by_evaluations[part]!r}, not {stated_by_runs[part]!r}"
            raise _mismatch(JsonLine(evaluations.path, 1, {}), first, reason)


def _mismatch(evaluation: JsonLine, trajectory: JsonLine, reason: str) -> UsageError:
    return UsageError(f"{evaluation} does not evaluate {trajectory}: {reason}; name the evaluations of these runs")


_SHOWN: Final = 20


def read_lines(path: Path) -> list[JsonLine]:
    """Return all records of a ``.jsonl`` or ``.jsonl.gz`` file. Raise UsageError with every line that is not valid.

    No line is skipped, as evaluations identify a trajectory by its line number.
    """
    lines, problems = [], []
    content = read_content(path, "recordings of ToolEmu or a fork of it, one JSON object on each line").rstrip()
    for number, text in enumerate(content.split(b"\n") if content else (), 1):
        try:
            record = load_json(text.decode("utf-8-sig"))
            if not isinstance(record, dict):
                raise ValueError("not a JSON object")
            if too_deep(record):
                raise RecursionError
            lines.append(JsonLine(path, number, record))
        except (ValueError, RecursionError) as error:
            problem = "nested too deeply" if isinstance(error, RecursionError) else error
            problems.append(f"{path}:{number}: {problem}; fix or remove the line")
    raise_if_any(problems)
    if not lines:
        raise UsageError(f"{path}: the file is empty; name a file with content")
    return lines


def raise_if_any(problems: list[str]) -> None:
    """Raise UsageError with one line per problem, if there are any."""
    if problems:
        more = [f"… and {len(problems) - _SHOWN} more"] if len(problems) > _SHOWN else []
        raise UsageError("\n".join(problems[:_SHOWN] + more))


_NAME: Final = re.compile(
    r"(?P<agent>.+?)(?:_emu-(?P<emulator>.+?))?(?:_eval-(?P<evaluator>.+?))?(?:_(?P<quantization>int4|int8|fp16))?"
    r"(?:_r(?P<range>\d+-\d+))?(?:_(?P<time>\d{4}_\d{6}))?(?:_eval_agent_(?P<kind>safe|help|help_ignore_safety)(?:_t[\d.]+)?)?"
)
_METRICS: Final[dict[str | None, Metric]] = {
    "safe": "safety",
    "help": "helpfulness",
    "help_ignore_safety": "helpfulness",
}


@dataclass(frozen=True)
class RunFileName:
    """The parts of a file name: ``AGENT_emu-EMULATOR_eval-EVALUATOR_int4_r0-15_DDMM_HHMMSS_eval_agent_safe.jsonl``.

    All parts except the agent are optional.
    """

    agent: str
    emulator: str
    evaluator: str
    metric: Metric | None

    @classmethod
    def of(cls, path: Path) -> RunFileName:
        """Return the parts of a name.

        If it has another form, its stem is the name of both the agent and the evaluator.
        """
        stem = path.name.removesuffix(".gz").removesuffix(".jsonl")
        parts = _NAME.fullmatch(stem)
        if parts is None:
            return cls(agent=stem, emulator="unknown", evaluator=stem, metric=None)
        ignoring = " ignoring safety" if parts["kind"] == "help_ignore_safety" else ""
        return cls(
            agent=quantized(parts["agent"], parts["quantization"]),
            emulator=parts["emulator"] or "unknown",
            evaluator=(parts["evaluator"] or stem) + ignoring,
            metric=_METRICS.get(parts["kind"]),
        )


def trajectory_in(record: dict[str, Any]) -> dict[str, Any]:
    """Return the trajectory in a record, which may contain its evaluations as well."""
    inner = record.get("trajectory")
    return inner if isinstance(inner, dict) else record


def stated_by_name(path: Path) -> dict[str, str]:
    """Return the parts of a file name that are certain, by name; nothing if it has neither an emulator nor a time."""
    parts = _NAME.fullmatch(path.name.removesuffix(".gz").removesuffix(".jsonl"))
    if parts is None or not (parts["emulator"] or parts["time"]):
        return {}
    names = ("agent", "emulator", "evaluator", "quantization", "range", "time")
    return {name: parts[name] for name in names if parts[name]}


def recording_name(path: Path) -> str:
    """Return the name of the recording in a file: the file's name without the evaluator and its time.

    Forks publish a copy of the trajectories for each evaluator, and its time may be that of the evaluation.
    """
    parts = stated_by_name(path)
    if parts.pop("evaluator", None):
        parts.pop("time", None)
    return " ".join(parts.values()) or path.name.removesuffix(".gz").removesuffix(".jsonl")


def quantized(agent: str, quantization: str | None) -> str:
    """Return the name of an agent with its quantization: a quantized model is a different agent."""
    return agent if quantization in (None, "none") else f"{agent} {quantization}"
