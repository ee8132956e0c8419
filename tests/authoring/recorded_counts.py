"""Counts over imported runs: who answered the calls and how well, and how agents ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from pytest_toolemu.authoring.importers.runs import NO_JSON, RAW, invented_calls, json_value
from pytest_toolemu.core.run import Observation, Run, Step
from pytest_toolemu.core.toolkit import Tool, callable_tools

ObservationClass = Literal["conforming", "empty", "error", "not_json", "not_object", "schema_mismatch"]
Answerer = Literal["emulator", "input_check", "name_check"]

_REJECTIONS: Final = {
    "Invalid format": "bad_json",
    "Missing required parameter": "missing_parameter",
    "Unexpected parameters": "unexpected_parameter",
    "Invalid type for": "wrong_type",
}
# The types as the recording's own check treats them: an integer is a number, a boolean is neither.
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
    """Counts over many runs. ``invented`` counts observations that agents made up in their last output."""

    runs: int = 0
    answered_by: Counter[Answerer] = field(default_factory=Counter)
    observations: Counter[ObservationClass] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)
    stops: Counter[str] = field(default_factory=Counter)
    invented: int = 0
    runs_with_invented: int = 0


def count_runs(runs: Iterable[Run]) -> ImportReport:
    """Return the counts over imported runs."""
    counts = ImportReport()
    for run in runs:
        tools = {name: tool for name, _, tool in callable_tools(run.toolkits)}
        counts.runs += 1
        counts.stops[run.stop] += 1
        for step in run.steps:
            answerer = answered_by(step)
            counts.answered_by[answerer] += 1
            if answerer == "emulator":
                counts.observations[observation_class(step.observation, tools[step.call.name])] += 1
            elif answerer == "input_check":
                counts.rejected[rejection(step.observation)] += 1
        invented = inventions(run)
        counts.invented += invented
        counts.runs_with_invented += invented > 0
    return counts


def answered_by(step: Step) -> Answerer:
    """Return what answered a call: the emulator, or the check of names or arguments before it."""
    if step.observation.source != "rejected":
        return "emulator"
    return "input_check" if step.call.tool else "name_check"


def rejection(observation: Observation) -> str:
    """Return why the input check rejected a call: bad_json, missing_parameter, wrong_type, etc., or other."""
    message = str(observation.content.get("error", "")).partition(": ")[2]
    return next((kind for start, kind in _REJECTIONS.items() if message.startswith(start)), "other")


def observation_class(observation: Observation, tool: Tool) -> ObservationClass:
    """Return how an observation relates to the tool's declared result.

    Only names and types of the top level count, as the rest of an imported schema was inferred from prose.
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
    """Return the names of the returns that are missing, unexpected, or of a wrong type."""
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
    """Return the number of observations that the agent made up in its last output."""
    return sum(bool(invented_calls(text)) for text in run.discarded)


def recorded_text(observation: Observation) -> str:
    """Return the text of an imported observation; for a JSON object, blanks and escapes may differ."""
    raw = observation.content.get(RAW)
    return raw if isinstance(raw, str) and len(observation.content) == 1 else observation.text
