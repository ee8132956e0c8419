"""Writes the toolkit and the case of a recorded conversation, so that an incident becomes a test."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pytest_toolemu.authoring.importers.personal_data import SensitiveData, find_sensitive
from pytest_toolemu.authoring.importers.published_tools import (
    PublishedTool,
    PublishedToolkit,
    distinct_tools,
    tool_names,
    toolkit_of,
)
from pytest_toolemu.authoring.importers.sources import Notes, add_note
from pytest_toolemu.authoring.importers.trace_conversations import Conversation, Json, ObservedCall
from pytest_toolemu.authoring.importers.trace_files import read_conversations
from pytest_toolemu.authoring.pin import pins_in_turn
from pytest_toolemu.core.case import SUFFIX as CASE_SUFFIX
from pytest_toolemu.core.case_loading import build_case
from pytest_toolemu.core.toolkit import NAME
from pytest_toolemu.core.toolkit import SUFFIX as TOOLKIT_SUFFIX
from pytest_toolemu.errors import DocumentError, UsageError
from pytest_toolemu.formats.identifiers import case_id_problem, slug
from pytest_toolemu.formats.json_schema import TYPE_NAMES, conforms
from pytest_toolemu.formats.text import truncated
from pytest_toolemu.formats.yaml_document import Document, closest, dump, show

INCIDENT: Final = "incident"
"""The name of the unlabeled reference that repeats what the agent did."""

_TITLE_LENGTH: Final = 70
_NAME_LENGTH: Final = 30


@dataclass(frozen=True)
class ImportedIncident:
    """The written files, the numbers of tools, calls, and pins, and what was left out or looks sensitive.

    ``sensitive`` is None if it was not searched for, because a package is missing.
    """

    case: Path
    toolkit: Path
    tools: int
    calls: int
    pins: int
    checks: int
    notes: Notes
    sensitive: SensitiveData | None


def import_trace(
    source: Path,
    target: Path,
    *,
    case_id: str = "",
    toolkit: str = "",
    never: Sequence[str] = (),
    never_same: Sequence[str] = (),
    redact: bool = False,
) -> list[ImportedIncident]:
    """Write ``toolkits/`` and ``cases/`` below ``target`` for each conversation in a trace.

    Without ``case_id`` and ``toolkit``, the names are those of the file, with a number if they exist. ``never`` names
    tools, as the trace calls them, that must not be called again, and ``never_same`` tools whose observed calls must
    not happen again. With ``redact``, what looks like a secret or like personal data is replaced. Raise UsageError if
    the trace cannot be read, a name is not valid, such a tool gets no check, a file exists, or the result would not be
    valid; nothing is written then.
    """
    names = _names(source, target, case_id, toolkit)
    file_notes: Notes = {}
    conversations = read_conversations(source, file_notes)
    called = dict.fromkeys(call.name for conversation in conversations for call in conversation.calls)
    options = {**dict.fromkeys(never_same, "--never-same"), **dict.fromkeys(never, "--never")}
    for name, option in options.items():
        if name not in called:
            raise UsageError(f"{option} {name}: the trace contains no call of this tool{closest(name, called)}")
    made = dict.fromkeys(options, 0)
    incidents = [
        _incident(
            conversation,
            target,
            *next(names),
            made,
            never,
            file_notes if number == 1 else {},
            redact=redact,
        )
        for number, conversation in enumerate(conversations, 1)
    ]
    if unchecked := [name for name, checks in made.items() if not checks]:
        raise UsageError(
            f"{options[unchecked[0]]} {unchecked[0]}: no call of this tool gives a check, because each ended in an "
            "error or does not fit the schema of its tool, and only calls that succeed can violate a check; import "
            "without this option to see which calls are left out, or name another tool"
        )
    files = {path: text for _, texts in incidents for path, text in texts.items()}
    if existing := [path for path in files if path.exists()]:
        raise UsageError(f"{existing[0]}: already exists; choose other names with --id and --toolkit")
    _write(source, files)
    return [incident for incident, _ in incidents]


def _write(source: Path, files: dict[Path, str]) -> None:
    """Write all files or none. Raise UsageError if one cannot be written, exists meanwhile, or is not valid."""
    begun: list[Path] = []
    path = Path()
    try:
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8", newline="\n") as file:
                begun.append(path)
                file.write(text)
        for path in files:
            if path.name.endswith(CASE_SUFFIX):
                build_case(Document.read(path))
    except (OSError, DocumentError) as error:
        for each in begun:
            each.unlink(missing_ok=True)
        if isinstance(error, DocumentError):
            raise UsageError(f"{source}: cannot be converted: {error}") from None
        raise UsageError(f"{path}: cannot be written: {error.strerror}; choose another folder") from None


def _names(source: Path, target: Path, case_id: str, toolkit: str) -> Iterator[tuple[str, str]]:
    """Return the names of cases and toolkits; those after the first end in a number. Raise UsageError."""
    if case_id and (problem := case_id_problem(case_id)):
        raise UsageError(f"--id {show(case_id)}: {problem}")
    if toolkit and not NAME.fullmatch(toolkit):
        raise UsageError(
            f"--toolkit {show(toolkit)}: use letters and digits, begin with a letter, and use at most 40 characters"
        )
    stem = slug(source.name.partition(".")[0])[:_NAME_LENGTH] or INCIDENT
    folders = target / "cases", target / "toolkits"
    return zip(
        _numbered(case_id or stem, "-", folders[0], "" if case_id else CASE_SUFFIX),
        _numbered(toolkit or tool_names([stem])[stem], "", folders[1], "" if toolkit else TOOLKIT_SUFFIX),
        strict=True,
    )


def _numbered(name: str, separator: str, folder: Path, suffix: str) -> Iterator[str]:
    """Yield a name, and the same with numbers; with ``suffix``, those of which the folder has no file."""
    for number in itertools.count(1):
        numbered = name if number == 1 else f"{name}{separator}{number}"
        if not (suffix and (folder / f"{numbered}{suffix}").exists()):
            yield numbered


def _incident(
    conversation: Conversation,
    target: Path,
    case_id: str,
    toolkit_name: str,
    made: dict[str, int],
    never: Sequence[str],
    notes: Notes,
    *,
    redact: bool,
) -> tuple[ImportedIncident, dict[Path, str]]:
    """Return what becomes of a conversation, and the texts of the files; ``made`` receives the numbers of checks."""
    calls = conversation.calls
    toolkit, tools = observed_toolkit(conversation, toolkit_name, notes)
    case = _case(conversation, toolkit_name, tools, made, never, notes)
    sensitive: SensitiveData | None = None
    try:
        sensitive = find_sensitive([case, toolkit])
    except UsageError:
        if redact:
            raise
    if redact and sensitive is not None:
        case, toolkit = sensitive.replaced([case, toolkit])
    title = truncated(" ".join(case["instruction"].partition("\n\n")[0].split()), _TITLE_LENGTH).rstrip(".!?")
    case = {"title": title, **case}
    paths = target / "cases" / f"{case_id}{CASE_SUFFIX}", target / "toolkits" / f"{toolkit_name}{TOOLKIT_SUFFIX}"
    incident = ImportedIncident(
        case=paths[0],
        toolkit=paths[1],
        tools=len(toolkit["tools"]),
        calls=len(calls),
        pins=len(case.get("pins", ())),
        checks=len(case.get("checks", ())),
        notes=notes,
        sensitive=sensitive,
    )
    return incident, {paths[1]: dump(toolkit), paths[0]: dump(case)}


def _case(
    conversation: Conversation,
    toolkit_name: str,
    tools: dict[str, Json],
    made: dict[str, int],
    never: Sequence[str],
    notes: Notes,
) -> Json:
    calls, messages = conversation.calls, conversation.user_messages
    if len(messages) > 1:
        add_note(notes, "messages of the user after the first one become part of the instruction", str(len(messages)))
    note_omitted(conversation, notes)
    instruction = "\n\n".join(message.strip() for message in messages)
    full = {name: f"{toolkit_name}.{tool['name']}" for name, tool in tools.items()}
    usable: list[ObservedCall] = []
    for call in calls:
        if call.name not in tools:
            continue  # left out with its tool
        if not call.is_readable:
            add_note(notes, "a call whose arguments are not a JSON object is left out", call.name)
        elif conforms(tools[call.name]["parameters"], call.arguments):
            usable.append(call)
        else:
            add_note(notes, "a call that breaks the schema of its tool is left out", call.name)
    pins = list(_pins(usable, full, notes))
    checks: list[Json] = []
    for name in made:
        patterns = list(_patterns(name, usable, tools[name], notes, any_call=name in never)) if name in tools else []
        made[name] += len(patterns)
        for pattern in patterns:
            check_id = slug(name) or "repeated"
            if any(check["id"] == check_id for check in checks):
                check_id = f"{check_id}-{len(checks) + 1}"
            watched = {"tool": full[name], **pattern}
            checks.append({"id": check_id, "never": watched, "likelihood": "likely", "severity": "severe"})
    answer = conversation.answer
    if not answer:
        add_note(notes, "the trace has no final answer", INCIDENT)
    return {
        "toolkits": [toolkit_name],
        "instruction": instruction,
        "tags": [INCIDENT],
        **({"pins": pins} if pins else {}),
        **({"checks": checks} if checks else {}),
        "thresholds": {"helpfulness": "none"},
        "unlabeled": {
            INCIDENT: {
                "calls": [{"tool": full[call.name], "arguments": call.arguments} for call in usable],
                "answer": answer or "(no answer)",
            }
        },
        "inferred": ["title"],
    }


def note_omitted(conversation: Conversation, notes: Notes) -> None:
    """Add notes on the parts of a conversation that do not become parts of the case."""
    if any(event.kind == "system" for event in conversation.events):
        add_note(notes, "the system prompt is left out, because it belongs to the agent", "instructions")
    for event in conversation.events:
        if event.kind == "omitted":
            add_note(notes, "a part that a case cannot contain, such as an image, is left out", event.text)
    for call_id in conversation.unmatched:
        add_note(notes, "a result without a call, or a further one of the same call, is left out", call_id)


def _pins(calls: list[ObservedCall], full: dict[str, str], notes: Notes) -> Iterator[Json]:
    """Yield a pin for each observed result. Equal calls with different results are answered in their order."""
    groups: dict[tuple[str, str], tuple[Json, list[Json]]] = {}
    for call in calls:
        if not call.has_result:
            add_note(notes, "a call without a result in the trace is not pinned", call.name)
            continue
        error = error_of(call)
        answer: Json = {"error": error} if error is not None else {"returns": result_of(call)}
        key = call.name, json.dumps(call.arguments, sort_keys=True)
        groups.setdefault(key, (call.arguments, []))[1].append(answer)
    for (name, _), (arguments, answers) in groups.items():
        yield from pins_in_turn(full[name], arguments, answers)


def _patterns(name: str, calls: list[ObservedCall], tool: Json, notes: Notes, *, any_call: bool) -> Iterator[Json]:
    """Yield a pattern of each distinct call of a tool that succeeded in the incident; of ``any_call``, one in all."""
    seen: list[Json] = []
    own = [call for call in calls if call.name == name]
    if any_call:
        yield from [{} for call in own if error_of(call) is None][:1]
        return
    for call in own:
        if error_of(call) is None and call.arguments not in seen:
            seen.append(call.arguments)
            yield _pattern(call.arguments, tool["parameters"])
    for call in own:
        if call.arguments not in seen:
            add_note(notes, "a call that ended in an error gets no check, because it cannot violate one", name)


def _pattern(arguments: Json, parameters: Json) -> Json:
    """Return the pattern of a call: plain values, which must be equal, if all of them are in the tool's schema."""
    if not arguments:
        return {}
    is_plain = "schema" not in arguments and arguments.keys() <= parameters.get("properties", {}).keys()
    return {"arguments": arguments if is_plain else {"schema": {"const": arguments}}}


# The member of a result that was a list.
_LIST: Final = "items"
# The error of a tool whose observed results include an error.
_FAILED: Final = "Failed"
_ERROR_LENGTH: Final = 500


def observed_toolkit(conversation: Conversation, name: str, notes: Notes) -> tuple[Json, dict[str, Json]]:
    """Return the toolkit of the offered and the called tools, and its tools by their names in the trace."""
    calls, observed = conversation.calls, {tool.name: tool for tool in conversation.tools}
    for call in calls:
        if call.name not in observed:
            observed[call.name] = PublishedTool(call.name)
            add_note(notes, "a tool that was called but not defined is inferred from its calls", call.name)
    sources = [_published(tool, [call for call in calls if call.name == tool.name]) for tool in observed.values()]
    published = PublishedToolkit(name, "an imported trace", tuple(sources), notes=notes)
    toolkit = toolkit_of(published, sources, name)
    tools: dict[str, Json] = {}
    for source, tool in zip(distinct_tools(sources, {}).values(), toolkit["tools"], strict=True):
        definition = conversation.definitions.get(source.name)
        results = [call.result for call in calls if call.name == source.name and call.has_result and not error_of(call)]
        if results and all(isinstance(result, list) for result in results):
            tool["list_member"] = _LIST
        tools[source.name] = {**definition, "name": tool["name"], "call_as": source.name} if definition else tool
    toolkit["tools"] = list(tools.values())
    return toolkit, tools


def result_of(call: ObservedCall) -> Json:
    """Return the observed result as an object, as the results of tools are. Agents receive a list as a list."""
    if isinstance(call.result, dict) and set(call.result) != {"error"}:
        return call.result
    kind = _LIST if isinstance(call.result, list) else "text" if isinstance(call.result, str) else "value"
    return {kind: call.result}


def error_of(call: ObservedCall) -> str | None:
    """Return the observed error as ``Name: message``; None if the call succeeded."""
    is_error_object = isinstance(call.result, dict) and set(call.result) == {"error"}
    if not call.is_error and not is_error_object:
        return None
    message = call.result["error"] if is_error_object else call.result
    if call.has_named_error:
        return str(message)
    return f"{_FAILED}: {truncated(' '.join(str(message).split()) or 'no message', _ERROR_LENGTH)}"


def _published(tool: PublishedTool, calls: list[ObservedCall]) -> PublishedTool:
    """Return a tool as the trace describes it; what it does not describe is inferred from the calls."""
    parameters = tool.parameters
    if parameters is None and calls:
        parameters = {**observed_schema([call.arguments for call in calls]), "required": []}
    results = [result_of(call) for call in calls if call.has_result and error_of(call) is None]
    return replace(
        tool,
        parameters=parameters,
        parameters_are_stated=tool.parameters is not None,
        returns=observed_schema(results) if results else tool.returns,
        returns_are_stated=False,
    )


def observed_schema(values: list[Json]) -> Json:
    """Return a JSON Schema of the members that all or some of the values have. Nested values stay open."""
    types: dict[str, set[str]] = {}
    for value in values:
        for key, member in value.items():
            types.setdefault(key, set()).add(TYPE_NAMES[type(member)])
    properties = {
        key: {"type": next(iter(kinds)) if len(kinds) == 1 else sorted(kinds)} for key, kinds in types.items()
    }
    required = [key for key in types if all(key in value for value in values)]
    return {"type": "object", "properties": properties, "required": required}
