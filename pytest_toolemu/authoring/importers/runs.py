"""Converts recorded trajectories and their evaluations to runs, so that every command can read them.

Imported runs have no messages, usage, or times, as the files contain none.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from pytest_toolemu.authoring.importers.evaluations import (
    JsonLine,
    RunFileName,
    check_belonging,
    quantized,
    raise_if_any,
    read_evaluation,
    read_evaluations,
    read_lines,
    recording_name,
    trajectory_in,
)
from pytest_toolemu.authoring.importers.sources import Notes, add_note, note_unread
from pytest_toolemu.authoring.importers.toolemu import NAME, READ, case_of
from pytest_toolemu.core.case import SUFFIX as CASE_SUFFIX
from pytest_toolemu.core.case import Case
from pytest_toolemu.core.case_loading import load_toolkit
from pytest_toolemu.core.case_vocabulary import Metric
from pytest_toolemu.core.run import (
    PASSING,
    Call,
    Emulation,
    ErrorInfo,
    Identity,
    Observation,
    Run,
    Step,
    TurnEnding,
    Verdict,
    decide,
    hashes_of,
    run_key,
    sha256,
)
from pytest_toolemu.core.run_file import load_run
from pytest_toolemu.core.toolkit import SUFFIX as TOOLKIT_SUFFIX
from pytest_toolemu.core.toolkit import Toolkit, callable_tools
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.yaml_document import closest, format_location, show, too_deep
from pytest_toolemu.sessions.manifest_records import Manifest
from pytest_toolemu.sessions.store import RunStore

ORIGIN: Final = "imported from"
"""The key of the imported file, with the line number, in ``versions`` of a run."""

# The rubrics in records with a trajectory and its evaluations.
_RUBRICS: Final[dict[str, tuple[str, Metric]]] = {
    "safety": ("", "safety"),
    "helpfulness": ("", "helpfulness"),
    "helpfulness_ignore_safety": (" ignoring safety", "helpfulness"),
}


def import_runs(file: Path, folder: Path, evaluations: Iterable[Path] = (), notes: Notes | None = None) -> list[Run]:
    """Return one run for each line of the file, in its order; ``folder`` is what ``toolemu import toolemu`` wrote.

    ``notes`` receives what was left out or filled in. Raise UsageError with every line that is not valid, and for
    evaluations of other runs: a file is imported completely or not at all.
    """
    notes = {} if notes is None else notes
    lines = read_lines(file)
    toolkits = {kit.name: kit for kit in map(load_toolkit, sorted((folder / "toolkits").glob(f"*{TOOLKIT_SUFFIX}")))}
    if not toolkits:
        raise UsageError(f"{folder / 'toolkits'}: no toolkits; run 'toolemu import toolemu ASSETS FOLDER' first")
    evaluation_files = [read_evaluations(path, len(lines), file.name) for path in evaluations]
    for evaluated in evaluation_files:
        check_belonging(lines, evaluated)
        for line in evaluated.lines.values():
            note_unread(notes, "evaluation", line.record, READ["evaluation"], line.place)
    # Independent of evaluators. Other files may have the same name, and other sessions may have the same content.
    recording = sha256([recording_name(lines[0].path), *(trajectory_in(line.record) for line in lines)])[:12]
    name = RunFileName.of(file)
    runs: list[Run] = []
    problems: list[str] = []
    trials: Counter[tuple[str, str]] = Counter()
    for index, line in enumerate(lines):
        try:
            record, trajectory = line.record, trajectory_in(line.record)
            if not isinstance(record.get("trajectory", {}), dict):
                raise ValueError(f"'trajectory' is {show(record['trajectory'])}, not an object")
            recorded = read_trajectory(trajectory, toolkits, notes, line.place)
            verdicts = [verdict for evaluated in evaluation_files for verdict in evaluated.of(index)]
            if trajectory is record:
                agent, emulator = str(record.get("agent_llm") or name.agent), name.emulator
            else:
                note_unread(notes, "record", record, READ["record"], line.place)
                agent = quantized(str(record.get("agent_model", "unknown")), record.get("quantization"))
                emulator = str(record.get("emulator_model", "unknown"))
                verdicts += _own_verdicts(record.get("evaluations", {}), notes, line.place)
        except ValueError as error:
            problems.append(f"{line}: {error}")
            continue
        trials[agent, recorded.case.id] += 1
        # The identity excludes evaluators: the same trajectories with other evaluations are the same runs.
        identity = Identity(
            agent={"kind": "imported", "name": agent, "recording": recording},
            emulator={"kind": "imported", "name": emulator},
            evaluators=(),
        )
        run = imported_run(line, recorded, tuple(verdicts), identity, trials[agent, recorded.case.id], folder)
        named = [record.get("group"), *(record.get("tags") or ())]
        runs.append(run.model_copy(update={"tags": tuple(tag for tag in named if isinstance(tag, str) and tag)}))
    raise_if_any(problems)
    return runs


def write_runs(runs: Sequence[Run], target: Path) -> int:
    """Add runs to a folder of imported runs. Raise UsageError if the folder contains the runs of a session.

    A run that is already there receives the new verdicts, which replace those of the same evaluators and metrics.
    Return the number of such runs.
    """
    store = RunStore(target)
    manifest = store.manifest()
    if not manifest.is_empty and not manifest.imported_from:
        raise UsageError(f"{target}: contains the runs of a session; name another folder")
    target.mkdir(parents=True, exist_ok=True)
    updated = 0
    for run in runs:
        path = store.path(run)
        updated += path.is_file()
        store.put(_joined(load_run(path), run) if path.is_file() else run)
    files = {run.versions[ORIGIN].rpartition(":")[0] for run in runs}
    store.put_manifest(Manifest(session=target.name, imported_from=tuple(sorted(files.union(manifest.imported_from)))))
    return updated


def _joined(before: Run, now: Run) -> Run:
    """Return the run with the verdicts of both imports."""
    replaced = {(verdict.evaluator, verdict.metric) for verdict in now.verdicts}
    verdicts = (*(v for v in before.verdicts if (v.evaluator, v.metric) not in replaced), *now.verdicts)
    return now.model_copy(update=_judgment(now.identity, verdicts, now.error))


def _own_verdicts(evaluations: Any, notes: Notes, location: str) -> Iterable[Verdict]:
    """Return the evaluations in the record itself: by evaluator, then by rubric."""
    try:
        evaluated = [
            (record, f"{evaluator}{_RUBRICS[rubric][0]}", _RUBRICS[rubric][1])
            for evaluator, rubrics in evaluations.items()
            for rubric, record in rubrics.items()
        ]
        for record, _, _ in evaluated:
            note_unread(notes, "evaluation", record, READ["evaluation"], location)
        return [read_evaluation(*one) for one in evaluated]
    except (AttributeError, KeyError) as error:
        rubrics = ", ".join(_RUBRICS)
        raise ValueError(f"'evaluations' are not by evaluator and rubric ({rubrics}): {error}") from None


def _judgment(identity: Identity, verdicts: tuple[Verdict, ...], error: ErrorInfo | None) -> dict[str, Any]:
    """Return the members of a run that follow from its verdicts."""
    evaluators = tuple({"kind": "imported", "name": v.evaluator, "metric": v.metric} for v in verdicts)
    thresholds: dict[Metric, int] = {"safety": PASSING}
    if any(verdict.metric == "helpfulness" for verdict in verdicts):
        thresholds["helpfulness"] = PASSING
    outcome, reasons = decide(verdicts, thresholds)
    if error is not None:
        outcome, reasons = "broken", (f"{error.type}: {error.message}",)
    return {
        "identity": identity.model_copy(update={"evaluators": evaluators}),
        "verdicts": verdicts,
        "thresholds": thresholds,
        "outcome": outcome,
        "reasons": reasons,
    }


def imported_run(
    line: JsonLine,
    recorded: RecordedTrajectory,
    verdicts: tuple[Verdict, ...],
    identity: Identity,
    trial: int,
    folder: Path,
) -> Run:
    """Return the run of a trajectory. Its case is a file in ``folder`` if ``toolemu import toolemu`` wrote it there."""
    case = recorded.case
    path = folder / "cases" / f"{case.id}{CASE_SUFFIX}"
    hashes = hashes_of(case, recorded.toolkits)
    return Run(
        key=run_key(case.id, hashes, identity, trial, seed=0),
        agent=identity.agent["name"],
        case_id=case.id,
        case_path=(path if path.is_file() else line.path).as_posix(),
        hashes=hashes,
        trial=trial,
        versions={ORIGIN: str(line)},
        **{name: part for name, part in vars(recorded).items() if name != "last_output"},
        **_judgment(identity, verdicts, recorded.error),
    )


RAW: Final = "not a JSON object"
"""The only key of an observation whose text is not a JSON object; its value is the text that the agent received."""

_INPUT: Final = re.compile(r"\n\s*Action Input:")
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
    note_unread(notes, "trajectory", record, READ["trajectory"], location)
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
