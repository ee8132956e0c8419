"""Converts conversations that people have labeled to runs and label files: neutral JSON lines, R-Judge, ASSEBench."""

from __future__ import annotations

import ast
import json
import re
import warnings
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field, ValidationError

from pytest_toolemu.analysis.calibration.labels import Label
from pytest_toolemu.analysis.rejudge import fingerprint
from pytest_toolemu.authoring.importers.evaluations import JsonLine, raise_if_any
from pytest_toolemu.authoring.importers.function_tools import functions_in
from pytest_toolemu.authoring.importers.incident import note_omitted, observed_toolkit, result_of
from pytest_toolemu.authoring.importers.published_tools import PublishedTool
from pytest_toolemu.authoring.importers.runs import NO_JSON, RecordedTrajectory, imported_run, json_value
from pytest_toolemu.authoring.importers.sources import Notes, add_note, note_unread, objects, parsed, read_values
from pytest_toolemu.authoring.importers.trace_conversations import Conversation, Json, ObservedCall, message_events
from pytest_toolemu.core.case import Case, User
from pytest_toolemu.core.case_vocabulary import Score
from pytest_toolemu.core.run import UNJUDGED, Call, Identity, Observation, Run, Step, Utterance
from pytest_toolemu.core.toolkit import Toolkit
from pytest_toolemu.formats.identifiers import slug
from pytest_toolemu.formats.text import truncated
from pytest_toolemu.formats.validation_messages import explain
from pytest_toolemu.formats.yaml_document import Record, show
from pytest_toolemu.sessions.store import run_file

_EXPECTED: Final = "JSON lines with 'messages' and 'labels', or the records of R-Judge or ASSEBench"
_KIT: Final = "Recorded"
_UNRECORDED: Final = "not recorded"


class HumanLabel(Record):
    """What one person decided about one metric: a score from 0 to 3, or true (safe, helpful) or false."""

    metric: Literal["safety", "helpfulness"]
    value: Score | bool
    annotator: str = ""
    comment: str = ""


class LabeledRecord(Record):
    """One line: messages in OpenAI's format, the tools of the request if known, labels, and tags for slices."""

    id: str | int
    messages: list[Json]
    tools: list[Json] = []
    labels: list[HumanLabel] = Field(min_length=1)
    tags: list[str] = []


def import_labeled(file: Path, notes: Notes) -> tuple[list[Run], list[Label]]:
    """Return one run for each record of the file, and the labels; one without ``annotator`` has the file's name.

    ``notes`` receives what was left out. Raise UsageError with every record that is not valid: a file is imported
    completely or not at all.
    """
    values = read_values(file, _EXPECTED)
    records = values[0] if len(values) == 1 and isinstance(values[0], list) else values
    stem = slug(file.name.partition(".")[0]) or "labeled"
    runs: dict[str, Run] = {}
    labels: list[Label] = []
    problems: list[str] = [] if records else [f"{file}: contains no record; this command reads {_EXPECTED}"]
    for number, record in enumerate(records, 1):
        line = JsonLine(file, number, record if isinstance(record, dict) else {})
        try:
            labeled = _record(line, notes)
            case_id = f"{stem}-{slug(str(labeled.id))}"
            if case_id in runs:
                raise ValueError(f"a second record with the id {show(labeled.id)}; give each record its own id")
            runs[case_id] = _run(line, labeled, case_id, notes)
            labels += _labels(runs[case_id], labeled, stem)
        except ValueError as error:
            problems.append(f"{line}: {error}")
    raise_if_any(problems)
    return list(runs.values()), labels


def _record(line: JsonLine, notes: Notes) -> LabeledRecord:
    content = line.record
    if "contents" in content:
        note_unread(notes, "record", content, _READ, line.place)
        content = _published(content)
    try:
        return LabeledRecord.model_validate(content)
    except ValidationError as error:
        _, message = explain(LabeledRecord, content, error.errors(include_url=False)[:1])[0]
        raise ValueError(f"{message}; this command reads {_EXPECTED}") from None


def _labels(run: Run, labeled: LabeledRecord, stem: str) -> list[Label]:
    """Return one label of each annotator. ValueError for a metric that one person labeled twice."""
    people: dict[str, Json] = {}
    for one in labeled.labels:
        fields = people.setdefault(one.annotator or stem, {"note": ""})
        if one.metric in fields:
            raise ValueError(f"{one.annotator or stem} labeled {one.metric} twice; remove one of the labels")
        fields.update({one.metric: one.value, "note": f"{fields['note']}\n{one.comment}".strip()})
    named = {"run": Path(run_file(run.case_id, run.key, "")).stem, "trajectory": fingerprint(run)}
    return [Label.model_validate({"annotator": name, **named, **fields}) for name, fields in people.items()]


def _run(line: JsonLine, labeled: LabeledRecord, case_id: str, notes: Notes) -> Run:
    """Return the run of a record. Nothing is invented: a call without a result has an unknown one."""
    events = [event for message in labeled.messages for event in message_events(message)]
    conversation = Conversation(events, list(functions_in(labeled.tools, notes)))
    note_omitted(conversation, notes)
    if not conversation.tools and not conversation.calls:
        conversation.tools.append(PublishedTool(_UNRECORDED, "The record names no tool."))
    kit, names = observed_toolkit(conversation, _KIT, {})
    for tool in kit["tools"]:
        tool["errors"] = {} if "errors" in tool["inferred"] else tool["errors"]
    toolkit = Toolkit.model_validate_json(json.dumps(kit))
    asked, steps, dialogue, answer = _course(conversation, {name: f"{_KIT}.{t['name']}" for name, t in names.items()})
    if not asked:
        asked = f"({_UNRECORDED})"
        add_note(notes, f"no message of a user is recorded, so judges read {asked}", line.place)
    user, title = User(name=_UNRECORDED, email=_UNRECORDED), truncated(" ".join(asked.split()), 80)
    case = Case(id=case_id, title=title, toolkits=(_KIT,), instruction=asked, user=user)
    recorded = RecordedTrajectory(case, (toolkit,), steps, answer, "final" if answer or not steps else "unknown")
    part = {"kind": "imported", "name": _UNRECORDED}
    run = imported_run(line, recorded, (), Identity(agent=part, emulator=part, evaluators=()), 1, line.path.parent)
    changes = {"dialogue": dialogue, "tags": tuple(labeled.tags), "outcome": UNJUDGED, "reasons": (), "thresholds": {}}
    return run.model_copy(update={**changes, "limits": {"turns": len(dialogue) + 1} if dialogue else {}})


def _course(
    conversation: Conversation, tools: dict[str, str]
) -> tuple[str, tuple[Step, ...], tuple[Utterance, ...], str]:
    """Return the instruction, the steps, what agent and user said between them, and the answer.

    Text of the agent before a call is its thought, before a message of the user it was said, and at the end it is the
    answer.
    """
    asked, text = "", ""
    steps: list[Step] = []
    dialogue: list[Utterance] = []
    observed = iter(conversation.calls)
    for event in conversation.events:
        if event.kind == "assistant":
            text = f"{text}\n\n{event.text}".strip()
        elif event.kind == "user" and not (steps or dialogue or text):
            asked = f"{asked}\n\n{event.text}".strip()
        elif event.kind == "user":
            said = (
                Utterance(step=len(steps), by="agent", text=text),
                Utterance(step=len(steps), by="user", text=event.text),
            )
            dialogue += said if text else said[1:]
            text = ""
        elif event.kind == "call":
            call = Call(index=len(steps), name=event.text, tool=tools.get(event.text), arguments=event.value)
            steps.append(Step(call=call, observation=_observation(next(observed)), thought=text))
            text = ""
    return asked, tuple(steps), tuple(dialogue), text


def _observation(call: ObservedCall) -> Observation:
    if not call.has_result:
        return Observation(content={}, source="unknown")
    is_text = call.is_error and isinstance(call.result, str)
    return Observation(content={"error": call.result} if is_text else result_of(call), source="recorded")


# ---- R-Judge and ASSEBench

_TAGS: Final = ("scenario", "application_scenario", "risk_type")
_READ: Final = {*_TAGS, "id", "contents", "label", "risk_description", "ambiguous"}
_NAME: Final = re.compile(r"[A-Za-z_][\w.]*")
_ANSWER: Final = "Final Answer:"
_OBSERVED: Final = "[Observation]:"
_FREE: Final = "action"
"""The name of an action that is not written as a call, such as a command or a click."""


def _published(record: Json) -> Json:
    """Return a record of R-Judge or ASSEBench in the neutral format. The label 0 is safe, and 1 is unsafe."""
    parts, label = record["contents"], record.get("label")
    talk = [one for part in (parts if isinstance(parts, list) else ()) for one in objects(part)]
    talk = [one for one in talk if one.get("role") == "agent" or one.get("content")]
    value = label == 0 if label in (0, 1) else f"label {label}"
    named = filter(None, map(record.get, _TAGS))
    return {
        "id": record.get("id"),
        "messages": [message for index in range(len(talk)) for message in _messages(talk, index)],
        "labels": [{"metric": "safety", "value": value, "comment": str(record.get("risk_description") or "")}],
        "tags": [*map(str, named), *["ambiguous"] * (record.get("ambiguous") == 1)],
    }


def _messages(talk: list[Json], index: int) -> list[Json]:
    """Return the messages of an entry. A result belongs to the action directly before it."""
    role, content = talk[index].get("role"), str(talk[index].get("content") or "")
    if role == "environment":
        return [_result(index - 1, _python_value(content))]
    if role != "agent":
        return [{"role": "user", "content": content}]
    thought, action = str(talk[index].get("thought") or ""), str(talk[index].get("action") or "").strip()
    name, arguments = _call(action)
    is_last, is_followed_by_user = (
        not talk[index + 1 :],
        talk[index + 1 : index + 2] and talk[index + 1].get("role") == "user",
    )
    is_sentence = name == _FREE and action[:1].isupper() and "```" not in action
    if not action or action.startswith(_ANSWER) or (is_sentence and (is_last or is_followed_by_user)):
        return [{"role": "assistant", "content": action.removeprefix(_ANSWER).strip() or thought}]
    if is_last and name.casefold() == "complete" and isinstance(arguments, dict):
        return [{"role": "assistant", "content": str(arguments.get("response") or thought or name)}]
    call = {"id": str(index), "function": {"name": name, "arguments": arguments}}
    if not thought.startswith(_OBSERVED):
        return [{"role": "assistant", "content": thought, "tool_calls": [call]}]
    # ASSEBench has the results of some agents in place of their thoughts.
    return [{"role": "assistant", "tool_calls": [call]}, _result(index, thought.removeprefix(_OBSERVED).strip())]


def _result(action: int, value: Any) -> Json:
    return {"role": "tool", "tool_call_id": str(action), "content": json.dumps(value, ensure_ascii=False)}


def _call(action: str) -> tuple[str, Any]:
    """Return the name and the arguments of an action, which is written in one of five ways, or a free text."""
    whole = action.removeprefix("{")
    head, brace, _ = whole.partition("{")
    name = head.strip().removesuffix("Action Input:").strip().removesuffix(":").strip().strip('"')
    if brace and _NAME.fullmatch(name):
        text = whole[len(head) :]
        arguments = next((v for end in range(3) if isinstance(v := _python_value(text, end), dict)), text)
        if name == "command" and isinstance(arguments, dict) and isinstance(arguments.get("name"), str):
            return arguments["name"], arguments.get("args", {})
        return name, arguments
    head, _, rest = action.partition("(")
    if rest.endswith(")") and _NAME.fullmatch(head):
        return head, rest[:-1].strip() or {}
    return _FREE, action


def _python_value(text: str, surplus: int = 0) -> Any:
    """Return the value of a JSON text or a Python literal, in quotes or not, else the text; without surplus braces."""
    inner = text.strip()
    for _ in range(surplus):
        inner = inner.removesuffix("}").rstrip()
    for candidate in (inner, inner.strip('"')):
        value = parsed(candidate)
        if value is not candidate and not isinstance(value, str):
            return value
        if candidate[:1] in ("{", "["):
            try:
                with warnings.catch_warnings(action="ignore"):  # of escapes that are none in Python
                    value = json_value(json.dumps(ast.literal_eval(candidate)))
            except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
                continue
            if value is not NO_JSON:
                return value
    return text.strip()
