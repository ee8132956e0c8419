"""Reads the trajectories that ToolEmu (arXiv 2309.15817) and its forks recorded, in all their formats, as steps.

A record that is not valid raises ValueError with the reason.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from pytest_toolemu.authoring.importers.sources import Notes, add_note, note_unread
from pytest_toolemu.authoring.importers.toolemu import NAME, case_of
from pytest_toolemu.core.case import Case
from pytest_toolemu.core.run import ErrorInfo
from pytest_toolemu.core.toolkit import Toolkit, callable_tools
from pytest_toolemu.core.trajectory import Call, Emulation, Observation, Step, TurnEnding
from pytest_toolemu.formats.yaml_document import closest, format_location, show, too_deep

RAW: Final = "not a JSON object"
"""The only key of an observation whose text is not a JSON object; its value is the text that the agent received."""

_INPUT: Final = re.compile(r"\n\s*Action Input:")
# The members of a trajectory that are read; those in the second line repeat members of the case.
_MEMBERS: Final = {"output", "intermediate_steps", "case", "case_idx", "error", "error_type", "agent_llm"} | {
    "input", "underspecifications", "risky_outcome", "risky_actions",
}  # fmt: skip
_MARKERS: Final[dict[TurnEnding, str]] = {"final": "Final Answer", "quit": "QUIT:"}
_LEADING_COLON: Final = re.compile(r"\s*:[*_]*\s+")
# Recorded in place of a tool or an observation after the machine ran out of memory.
_PSEUDO: Final = {"[OOM]", "[PENDING]"}
_FORCED: Final[dict[str, TurnEnding]] = {
    "Agent stopped due to iteration limit or time limit.": "step_limit",
    "Agent stopped due to max iterations.": "step_limit",
    "Agent stopped: token limit exceeded": "token_limit",
    "Agent stopped: OOM": "error",
}
# The recording's checks insert their messages here without escaping them.
_PASTED: Final = re.compile(r'\{"error": "(InvalidRequestException: .*)"\}', re.DOTALL)
_CHECKS: Final = re.compile(
    r".* is not a valid tool, try another one\.|Invalid format: |Missing required parameter: |Unexpected parameters: "
    r"|Invalid type for ",
    re.DOTALL,
)


@dataclass(frozen=True)
class RecordedTrajectory:
    """A recorded trajectory.

    ``last_output`` is everything that the agent wrote at the end. ``discarded`` are the parts of it that do not count:
    text that led to no answer, and one text for each call whose observation the agent made up. ``thought`` is what it
    wrote before its final answer. ``error`` is set if the recording failed, as opposed to the agent.
    """

    case: Case
    toolkits: tuple[Toolkit, ...]
    steps: tuple[Step, ...] = ()
    answer: str = ""
    stop: TurnEnding = "final"
    stop_reason: str = ""
    last_output: str = ""
    discarded: tuple[str, ...] = ()
    thought: str = ""
    error: ErrorInfo | None = None


def read_trajectory(
    record: Mapping[str, Any], toolkits: Mapping[str, Toolkit], notes: Notes | None = None, location: str = ""
) -> RecordedTrajectory:
    """Read one record; ``toolkits`` are the imported toolkits by name. Raise ValueError if the record is not valid.

    ``notes`` receives what was left out or filled in, with the location ``location`` of the record.
    """
    notes = {} if notes is None else notes
    case = _case(record, notes)
    _note_differences(record, notes, location)
    if unknown := [name for name in case.toolkits if name not in toolkits]:
        raise ValueError(f"the toolkit {unknown[0]!r} has not been imported{closest(unknown[0], toolkits)}")
    kits = tuple(toolkits[name] for name in case.toolkits)
    if "error" in record and "intermediate_steps" not in record:
        error = ErrorInfo(type=str(record.get("error_type") or "Error"), message=str(record["error"]))
        return RecordedTrajectory(case, kits, stop="error", stop_reason=error.message, error=error)
    pairs, output = record.get("intermediate_steps"), record.get("output")
    if not isinstance(pairs, list) or not isinstance(output, str):
        raise ValueError("it has neither 'error' nor both 'intermediate_steps' (a list) and 'output' (text)")
    steps, last_output, pending = _steps(pairs, kits)
    stop, reason, answer = _ending(output)
    return RecordedTrajectory(
        case=case,
        toolkits=kits,
        steps=steps,
        answer=answer,
        stop=stop,
        stop_reason=f"{reason}; {pending} got no answer" if pending else reason,
        last_output=last_output,
        discarded=_discarded(last_output, _MARKERS.get(stop)),
        thought=_closing_thought(last_output, _MARKERS.get(stop)),
        error=ErrorInfo(type="OutOfMemory", message=reason) if stop == "error" else None,
    )


def _note_differences(record: Mapping[str, Any], notes: Notes, location: str) -> None:
    note_unread(notes, "trajectory", record, _MEMBERS, location)
    add_note(notes, "the file has no requests, tokens, costs, times, seeds, or limits, so these are unknown", location)
    if record.get("input", record["case"]["User Instruction"]) != record["case"]["User Instruction"]:
        add_note(notes, "an 'input' that differs from the instruction of its case is left out", location)
    if _LEADING_COLON.match(str(record.get("output", ""))):
        add_note(notes, "the colon that forks leave before an answer is removed", location)


def _case(record: Mapping[str, Any], notes: Notes) -> Case:
    original = record.get("case")
    if not isinstance(original, dict):
        raise ValueError(f"'case' is {show(original)}, not a case of ToolEmu")
    identity = str(original.get("name", f"case_{record.get('case_idx')}"))
    if not NAME.fullmatch(identity):
        raise ValueError(f"the case is named {show(identity)}; use letters, digits, '-', '_', and '.'")
    try:
        return Case.model_validate_json(json.dumps(case_of(original, notes) | {"id": identity}))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"'case' is not a case of ToolEmu: {type(error).__name__}: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"'case' cannot be read: {format_location(first['loc'])}: {first['msg']}") from None


def _steps(pairs: list[Any], kits: tuple[Toolkit, ...]) -> tuple[tuple[Step, ...], str, str]:
    """Return the answered calls, the agent's last output, and the tool of a last call without an answer."""
    tools = {name: f"{kit.name}.{tool.name}" for name, kit, tool in callable_tools(kits)}
    steps: list[Step] = []
    for index, pair in enumerate(pairs):
        if not isinstance(pair, list) or len(pair) != 2:
            raise ValueError(f"step {index} is {show(pair)}, not a pair of action and observation")
        (tool, text, log), answer = _action(pair[0], index), _texts(pair[1], index)
        if tool is None or _PSEUDO & {tool, answer[0]}:
            if index + 1 < len(pairs):
                raise ValueError(f"the agent ended at step {index}, but {len(pairs) - index - 1} more follow")
            return tuple(steps), log, "" if tool is None or tool in _PSEUDO else tool
        value = json_value(text, strict=False)
        arguments = text if value is NO_JSON else value
        call = Call(index=index, name=tool, tool=tools.get(tool), arguments=arguments)
        observation = _observation(*answer)
        if call.tool is None and observation.source == "recorded":
            raise ValueError(
                f"step {index}: {show(call.name)} was answered, but no imported toolkit of the case has it"
            )
        steps.append(Step(call=call, observation=observation, thought=log.partition("Action: ")[0].strip()))
    return tuple(steps), "", ""


def _action(action: Any, index: int) -> tuple[str | None, str, str]:
    """Return tool, input, and log of a call, or of a finish of the 2023 release or of the forks, without a tool."""
    match action:
        case [str(tool), str(text), str(log)]:
            return tool, text, log
        case [{"output": _}, str(log)] | {"return_values": {"output": _}, "log": str(log)}:
            return None, "", log
    raise ValueError(f"step {index}: the action is {show(action)}, neither a call nor a finish")


def _texts(observation: Any, index: int) -> tuple[str, str, str | None]:
    """Return observation, summary, and log. The log is None in old files, which contain only the observation."""
    match observation:
        case str(text):
            return text, "", None
        case [str(text), str(summary), str(log)]:
            return text, summary, log
    raise ValueError(f"step {index}: the observation is {show(observation)}, neither text nor three texts")


def _observation(text: str, summary: str, log: str | None) -> Observation:
    pasted = _PASTED.fullmatch(text)
    # The checks record their text also as the log; the emulator's log is its whole reply, or empty like its text.
    checked = pasted and _CHECKS.match(pasted[1].partition(": ")[2]) if log is None else text and text == log
    value = json_value(text)
    if not isinstance(value, dict) or RAW in value:
        value = {"error": pasted[1]} if checked and pasted else {RAW: text}
    if checked:
        return Observation(content=value, source="rejected")
    emulation = Emulation(reasoning=log or "", log_summary=summary) if log or summary else None
    return Observation(content=value, source="recorded", emulation=emulation)


NO_JSON: Final = object()
"""Returned for text that is not JSON, or that a record cannot represent."""


def json_value(text: str, *, strict: bool = True) -> Any:
    """Return the value of JSON text, or NO_JSON.

    Without ``strict``, strings may contain line breaks, as agents write.
    """
    try:
        value = json.loads(text, strict=strict)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return NO_JSON
    return NO_JSON if too_deep(value) else value


def _ending(output: str) -> tuple[TurnEnding, str, str]:
    """Return why the agent ended, the reason as text if that is not an answer, and the answer."""
    if output.strip() in _FORCED:
        return _FORCED[output.strip()], output.strip(), ""
    if output.startswith("QUIT:"):
        return "quit", output.removeprefix("QUIT:").strip(), ""
    # The forks search for the marker without its colon, so their answers begin with the colon.
    colon = _LEADING_COLON.match(output)
    return "final", "", output[colon.end() if colon else 0 :].strip()


def invented_calls(text: str) -> list[tuple[int, int]]:
    """Return the calls whose observation the agent made up, by the labels of ToolEmu's parser.

    Each is the start and the end of ``Action: ...``, ``Action Input: ...``, ``Observation:`` on separate lines; the
    input may be indented. The search takes linear time in the length of the text.
    """
    calls: list[tuple[int, int]] = []
    start = text.find("Action: ")
    while start >= 0:
        line_end = text.find("\n", start)
        head = _INPUT.match(text, line_end) if line_end >= 0 else None
        if head:
            observation = text.find("\nObservation:", head.end())
            if observation < 0:
                break
            line_end = observation + len("\nObservation:")
            calls.append((start, line_end))
        # Without an input after it, no other label on this line begins a call either.
        start = text.find("Action: ", line_end) if line_end >= 0 else -1
    return calls


def _closing_thought(output: str, marker: str | None) -> str:
    """Return the text before the answer and before the first made-up call; empty if all of it is discarded."""
    ends = [start for start, _ in invented_calls(output)[:1]]
    end = min([*ends, output.rfind(marker)]) if marker and marker in output else min(ends, default=0)
    return output[:end].strip() if marker else ""


def _discarded(output: str, marker: str | None) -> tuple[str, ...]:
    """Return the discarded parts of the last output, up to the last ``marker``, which begins the answer, if any."""
    calls = invented_calls(output)
    starts = [start for start, _ in calls]
    end = output.rfind(marker) if marker else -1
    if calls and end < calls[-1][1]:
        end = len(output)
    head = "" if marker else output[: starts[0] if starts else None]
    pieces = [output[start:stop] for start, stop in itertools.pairwise([*starts, end])]
    return tuple(piece.strip() for piece in (head, *pieces) if piece.strip())
