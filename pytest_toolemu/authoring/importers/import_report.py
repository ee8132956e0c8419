"""What is in imported runs: who answered the calls and how well, how the agents ended, how the evaluators scored."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from pytest_toolemu.analysis.statistics.agreement import agreement_rate, cohen_kappa
from pytest_toolemu.analysis.statistics.description import mean, population_std, share_below
from pytest_toolemu.authoring.importers.trajectories import NO_JSON, invented_calls, json_value, recorded_text
from pytest_toolemu.core.case import Metric
from pytest_toolemu.core.run import Run
from pytest_toolemu.core.toolkit import Tool, callable_tools
from pytest_toolemu.core.trajectory import Observation, Step

ObservationClass = Literal["conforming", "empty", "error", "not_json", "not_object", "schema_mismatch"]
Answerer = Literal["emulator", "input_check", "name_check"]

_REJECTIONS: Final = {
    "Invalid format": "bad_json",
    "Missing required parameter": "missing_parameter",
    "Unexpected parameters": "unexpected_parameter",
    "Invalid type for": "wrong_type",
}
# As the recording's own check has it: an integer is a number, a boolean is neither.
_TYPES: Final[dict[str, type | tuple[type, ...]]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
}


@dataclass
class ImportReport:
    """Counts over many runs; ``invented`` are observations that agents wrote themselves in their last output."""

    runs: int = 0
    answered_by: Counter[Answerer] = field(default_factory=Counter)
    observations: Counter[ObservationClass] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)
    stops: Counter[str] = field(default_factory=Counter)
    invented: int = 0
    runs_with_invented: int = 0


def structure(runs: Iterable[Run]) -> ImportReport:
    """Count what is in runs that were imported."""
    found = ImportReport()
    for run in runs:
        tools = {name: tool for name, _, tool in callable_tools(run.toolkits)}
        found.runs += 1
        found.stops[run.stop] += 1
        for step in run.steps:
            who = answered_by(step)
            found.answered_by[who] += 1
            if who == "emulator":
                found.observations[observation_class(step.observation, tools[step.call.name])] += 1
            elif who == "input_check":
                found.rejected[rejection(step.observation)] += 1
        invented = inventions(run)
        found.invented += invented
        found.runs_with_invented += invented > 0
    return found


def answered_by(step: Step) -> Answerer:
    """Who answered a call: the emulator, or the check of names or of arguments before it."""
    if step.observation.source != "rejected":
        return "emulator"
    return "input_check" if step.call.tool else "name_check"


def rejection(observation: Observation) -> str:
    """Why the input check rejected a call: bad_json, missing_parameter, unexpected_parameter, wrong_type or other."""
    message = str(observation.content.get("error", "")).partition(": ")[2]
    return next((kind for start, kind in _REJECTIONS.items() if message.startswith(start)), "other")


def observation_class(observation: Observation, tool: Tool) -> ObservationClass:
    """How an observation stands to what the tool declares, by the types that the original declared.

    Only names and types of the top level count: the rest of an imported schema was read out of prose.
    """
    text = recorded_text(observation)
    if not text:
        return "empty"
    value = json_value(text)
    if value is NO_JSON:
        return "not_json"
    if not isinstance(value, dict):
        return "not_object"
    if observation.content.keys() == {"error"}:
        return "error"
    return "schema_mismatch" if any(mismatch(value, tool).values()) else "conforming"


def mismatch(content: dict[str, Any], tool: Tool) -> dict[str, list[str]]:
    """Names of the returns that are missing, unexpected, or of a wrong type."""
    declared = tool.returns.get("properties", {})
    return {
        "missing": [name for name in declared if name not in content],
        "unexpected": [name for name in content if name not in declared],
        "wrong_type": [
            name for name, value in content.items() if name in declared and not _is(value, declared[name].get("type"))
        ],
    }


def _is(value: Any, kind: str) -> bool:
    return isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))


def inventions(run: Run) -> int:
    """Observations that the agent invented in its last output."""
    return sum(bool(invented_calls(text)) for text in run.discarded)


def report(runs: Sequence[Run]) -> Iterator[str]:
    """The counts, the scores of each evaluator, and how far evaluators agree, as lines of text."""
    found = structure(runs)
    yield f"outcomes: {_counts(Counter(run.outcome for run in runs))}"
    yield f"agents ended: {_counts(found.stops)}"
    yield f"calls answered by: {_counts(found.answered_by)}"
    yield f"observations of the emulator: {_counts(found.observations)}"
    yield f"inputs rejected: {_counts(found.rejected)}"
    yield f"observations invented by agents: {found.invented} in {found.runs_with_invented} of {found.runs} runs"
    by_metric = scores(runs)
    for metric, by_evaluator in by_metric.items():
        for evaluator, given in by_evaluator.items():
            known = [score for score in given if score is not None]
            yield (
                f"{metric} by {evaluator}: n {len(known)} of {len(given)}, mean {_number(mean(known))}, "
                f"std {_number(population_std(known))}, below 2 {_number(share_below(known))}"
            )
        for (one, first), (other, second) in itertools.combinations(by_evaluator.items(), 2):
            both = [(a, b) for a, b in zip(first, second, strict=True) if a is not None and b is not None]
            left, right = [a for a, _ in both], [b for _, b in both]
            yield (
                f"{metric}, {one} and {other}: quadratic kappa {_number(cohen_kappa(left, right, 'quadratic'))}, "
                f"equal {_number(agreement_rate(left, right))}, within 1 {_number(agreement_rate(left, right, 1))}"
            )


def scores(runs: Sequence[Run]) -> dict[Metric, dict[str, list[int | None]]]:
    """By metric and evaluator, the score of each run in turn; None where the evaluator gave none."""
    names = dict.fromkeys((verdict.metric, verdict.evaluator) for run in runs for verdict in run.verdicts)
    found: dict[Metric, dict[str, list[int | None]]] = {}
    for metric, evaluator in names:
        own = [{(v.metric, v.evaluator): v.score for v in run.verdicts}.get((metric, evaluator)) for run in runs]
        found.setdefault(metric, {})[evaluator] = own
    return found


def _counts(counts: Counter[Any]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.most_common()) or "none"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
