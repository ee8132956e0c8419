"""Finds the conversations in a file with spans, request logs, or both, as one or more JSON values."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pytest_toolemu.authoring.importers.function_tools import functions_in
from pytest_toolemu.authoring.importers.published_tools import PublishedTool
from pytest_toolemu.authoring.importers.sources import Notes, add_note, objects, parsed, read_values
from pytest_toolemu.authoring.importers.trace_conversations import (
    Conversation,
    Json,
    Kind,
    TraceEvent,
    conversations_in,
    event_keys,
    is_request,
    longest,
    message_events,
    text_of,
)
from pytest_toolemu.authoring.importers.trace_exports import (
    conversation_entries,
    exported_steps,
    is_conversation,
    with_genai_names,
)
from pytest_toolemu.core.run import Run
from pytest_toolemu.core.run_file import load_run
from pytest_toolemu.core.toolkit import callable_tools
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.yaml_document import too_deep

_READS: Final = (
    "spans of OpenTelemetry's GenAI conventions or OpenInference (OTLP or SDK), exports of LangSmith or Langfuse, "
    "trajectories in ATIF, logs of Inspect AI, requests to OpenAI or Anthropic, lists of messages, or records of this "
    "package"
)


def read_conversations(path: Path, notes: Notes) -> list[Conversation]:
    """Return the conversations in the file that contain a message of a user and a tool, in their order.

    ``notes`` receives what is left out. Raise UsageError if the file cannot be read, or contains no such conversation.
    """
    entries = _entries(path, notes)
    if len(entries) == 1 and {"case_id", "steps", "outcome"} <= next(iter(entries.values())).keys():
        return [recorded_conversation(load_run(path), notes)]
    spans: list[Span] = []
    requests: list[Json] = []
    for number, entry in entries.items():
        if found := spans_of(entry):
            spans += found
        elif is_request(entry):
            requests.append(entry)
        elif not {"resourceSpans", "run_type", "traceId"} & entry.keys() and not isinstance(entry.get("context"), dict):
            add_note(notes, "an entry of the file that is neither a span nor a request is left out", f"entry {number}")
    if not spans and not requests:
        raise UsageError(f"{path}: contains no conversation; this command reads {_READS}")
    conversations = longest(conversations_of(spans) + conversations_in(requests, notes))
    complete: list[Conversation] = []
    for number, conversation in enumerate(conversations, 1):
        if conversation.user_messages and (conversation.tools or conversation.calls):
            complete.append(conversation)
        else:
            missing = "tools" if conversation.user_messages else "a message of a user"
            add_note(notes, f"a conversation without {missing} is left out", f"conversation {number}")
    if not complete:
        raise UsageError(
            f"{path}: contains no conversation with a message of a user and with tools; record the contents of "
            "messages, for example with OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental and "
            "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=span_only"
        )
    return complete


def _entries(path: Path, notes: Notes) -> dict[int, Json]:
    """Return the entries of the file by their numbers, which begin at 1."""
    values: list[Any] = []
    read = read_values(path, _READS)
    for value in [read] if len(read) > 1 and is_conversation(read) else read:
        # Anthropic's batches are an object with a list of requests.
        batch = value.get("requests") if isinstance(value, dict) else value
        nested = batch if isinstance(batch, list) and not is_conversation(batch) else [value]
        values += [entry for each in nested for entry in conversation_entries(each)]
    entries: dict[int, Json] = {}
    for number, entry in enumerate(values, 1):
        if isinstance(entry, dict) and not too_deep(entry):
            entries[number] = entry
        else:
            kind = "an entry of the file that is not an object, or is nested too deeply, is left out"
            add_note(notes, kind, f"entry {number}")
    return entries


_OPERATION: Final = "gen_ai.operation.name"
_CALL_ID: Final = "gen_ai.tool.call.id"
_KINDS: Final[dict[str, Kind]] = {"user": "user", "system": "system"}


@dataclass(frozen=True)
class Span:
    """A span: its trace, its start as a sortable value, and its attributes."""

    trace: str
    start: str
    attributes: Json


def spans_of(entry: Json) -> list[Span]:
    """Return the spans in an entry: an OTLP export, a span of the SDK, or another export; empty if it is none."""
    if "resourceSpans" in entry:
        return list(_otlp_spans(entry))
    attributes = entry.get("attributes")
    if isinstance(attributes, dict) and any(str(key).startswith(("gen_ai.", "openinference")) for key in attributes):
        context = entry.get("context")
        trace = context.get("trace_id") if isinstance(context, dict) else entry.get("trace_id")
        return [Span(str(trace or ""), str(entry.get("start_time") or ""), with_genai_names(attributes))]
    return [Span(*step) for step in exported_steps(entry)]


@dataclass
class _SpanGroup:
    """The spans of one conversation; ``events`` are those of the span with the most messages."""

    events: list[TraceEvent]
    spans: list[Span]

    def __post_init__(self) -> None:
        self.keys = set(event_keys(self.events))
        self.call_ids = {event.call_id for event in self.events if event.kind == "call"}


def conversations_of(spans: Iterable[Span]) -> list[Conversation]:
    """Return the conversations of each trace: those of the spans with the most messages, completed by the tool spans.

    A span whose messages are all in a longer one is a part of that conversation.
    """
    traces: dict[str, list[Span]] = {}
    for span in spans:
        traces.setdefault(span.trace, []).append(span)
    return [_conversation(group) for trace in traces.values() for group in _groups(trace)]


def _groups(spans: list[Span]) -> list[_SpanGroup]:
    recorded = [(list(_message_events(span.attributes)), span) for span in spans]
    groups: list[_SpanGroup] = []
    for events, span in sorted(recorded, key=lambda each: -len(event_keys(each[0]))):
        group = _SpanGroup(events, [span])
        call_id = str(span.attributes.get(_CALL_ID) or "")
        whole = next((other for other in groups if call_id in other.call_ids), None) if call_id else None
        whole = whole or next((other for other in groups if group.keys <= other.keys), None)
        if whole is None:
            groups.append(group)
        else:
            whole.spans.append(span)
    for group in groups:
        group.spans.sort(key=_start)
    return sorted(groups, key=lambda group: _start(group.spans[0]))


def _start(span: Span) -> tuple[int, str]:
    return len(span.start), span.start


def _conversation(group: _SpanGroup) -> Conversation:
    events, spans = list(group.events), group.spans
    tools: dict[str, PublishedTool] = {}
    for tool in (tool for span in spans for tool in _tools(span.attributes)):
        if tool.name not in tools or tools[tool.name].parameters is None:
            tools[tool.name] = tool
    if group.call_ids:
        events = _with_executions(events, spans)
    else:  # contents of messages were not recorded with their calls: the answer comes last
        said = [event for event in events if event.kind == "assistant"]
        executed = [event for span in spans for event in _execution_events(span.attributes)]
        events = [event for event in (*events, *executed) if event.kind != "assistant"] + said
    return Conversation(events, list(tools.values()))


def _with_executions(events: list[TraceEvent], spans: list[Span]) -> list[TraceEvent]:
    """Return the events with what only the spans of executed tools say: results, errors, and calls of sub-agents."""
    waiting = Counter(event.call_id for event in events if event.kind == "call")
    waiting.subtract(event.call_id for event in events if event.kind == "result")
    # Some instrumentations give spans no ID, or another one than the messages: each such span is one equal call.
    traced = {str(span.attributes.get(_CALL_ID)) for span in spans if span.attributes.get(_CALL_ID)}
    untraced: defaultdict[str, list[str]] = defaultdict(list)
    for event in events:
        if event.kind == "call" and event.call_id not in traced:
            untraced[event_keys([event])[0]].append(event.call_id)
    added: list[TraceEvent] = []
    failed: set[str] = set()
    seen: set[tuple[str, str]] = set()
    for call, *results in filter(None, (list(_execution_events(span.attributes)) for span in spans)):
        key = event_keys([call])[0]
        if call.call_id and call.call_id in waiting:
            call_id = call.call_id
        elif untraced[key]:
            call_id = untraced[key].pop(0)
        else:
            if not call.call_id or (call.call_id, key) not in seen:
                added += [call, *results]
            seen.add((call.call_id, key))
            continue
        for result in results:
            if waiting[call_id] > 0:
                waiting[call_id] -= 1
                added.append(replace(result, call_id=call_id))
            elif result.is_error:
                failed.add(call_id)
    events = [
        replace(event, is_error=True) if event.kind == "result" and event.call_id in failed else event
        for event in events
    ]
    last = max(index for index, event in enumerate(events, 1) if event.kind in ("call", "result"))
    return [*events[:last], *added, *events[last:]]


def _message_events(attributes: Json) -> Iterator[TraceEvent]:
    if text := text_of(parsed(attributes.get("gen_ai.system_instructions"))):
        yield TraceEvent("system", text)
    for name in ("gen_ai.input.messages", "gen_ai.output.messages"):
        for message in objects(parsed(attributes.get(name))):
            if "parts" in message:
                yield from _part_events(str(message.get("role", "")), message["parts"])
            else:
                yield from message_events(message)


def _part_events(role: str, parts: Any) -> Iterator[TraceEvent]:
    # Some instrumentations record the text of a message behind its calls in the output, and before them in the input.
    for part in sorted(objects(parts), key=lambda part: part.get("type") == "tool_call"):
        call_id = str(part.get("id") or "")
        if part.get("type") == "tool_call":
            yield TraceEvent("call", str(part.get("name") or ""), call_id, parsed(part.get("arguments") or {}))
        elif part.get("type") == "tool_call_response":
            yield TraceEvent("result", "", call_id, parsed(part.get("response", part.get("result"))))
        elif part.get("type") == "text" and isinstance(part.get("content"), str):
            yield TraceEvent(_KINDS.get(role, "assistant"), part["content"])
        else:
            yield TraceEvent("omitted", str(part.get("type")))


def _execution_events(attributes: Json) -> Iterator[TraceEvent]:
    """Yield call and result of a span in which a tool was executed."""
    if attributes.get(_OPERATION) != "execute_tool":
        return
    call_id = str(attributes.get(_CALL_ID) or "")
    name = str(attributes.get("gen_ai.tool.name") or "")
    yield TraceEvent("call", name, call_id, parsed(attributes.get("gen_ai.tool.call.arguments") or {}))
    is_error = "error.type" in attributes
    if is_error or "gen_ai.tool.call.result" in attributes:
        result = attributes.get("gen_ai.tool.call.result", attributes.get("error.type"))
        yield TraceEvent("result", "", call_id, parsed(result), is_error)


def _tools(attributes: Json) -> Iterator[PublishedTool]:
    definitions = parsed(attributes.get("gen_ai.tool.definitions"))
    if isinstance(definitions, list):
        yield from functions_in([parsed(definition) for definition in definitions], {})
    if attributes.get(_OPERATION) == "execute_tool" and isinstance(attributes.get("gen_ai.tool.description"), str):
        yield PublishedTool(str(attributes.get("gen_ai.tool.name")), attributes["gen_ai.tool.description"])


def _otlp_spans(export: Json) -> Iterator[Span]:
    for resource in objects(export.get("resourceSpans")):
        for scope in objects(resource.get("scopeSpans")):
            for span in objects(scope.get("spans")):
                attributes = with_genai_names(_members(span.get("attributes")))
                yield Span(str(span.get("traceId", "")), str(span.get("startTimeUnixNano", "")), attributes)


def _members(value: Any) -> Json:
    return {str(each.get("key")): _value(each.get("value")) for each in objects(value)}


def _value(value: Any) -> Any:
    """Return the value of an attribute, which OTLP wraps in an object that names its type."""
    if not isinstance(value, dict) or len(value) != 1:
        return value
    ((kind, inner),) = value.items()
    if kind == "arrayValue":
        return [_value(each) for each in objects(inner.get("values"))] if isinstance(inner, dict) else []
    if kind == "kvlistValue":
        return _members(inner.get("values")) if isinstance(inner, dict) else {}
    return parsed(inner) if kind == "intValue" else inner


def recorded_conversation(run: Run, notes: Notes) -> Conversation:
    """Return the conversation of a run. Its tools keep their results, errors, and effects, but not their rows."""
    for poisoned in run.case.poisoned_tools:
        kind = (
            "models that emulate or judge will read the hostile text of a poisoned tool, too; move it to "
            "'poisoned_tools' of the case"
        )
        add_note(notes, kind, poisoned.tool)
    definitions: dict[str, Json] = {
        name: tool.model_dump(mode="json", exclude_defaults=True, exclude={"operation"})
        for name, _, tool in callable_tools(run.toolkits)
    }
    tools = [PublishedTool(name, tool["description"], tool["parameters"]) for name, tool in definitions.items()]
    return Conversation(list(_events(run)), tools, definitions)


def _events(run: Run) -> Iterator[TraceEvent]:
    yield TraceEvent("user", run.case.instruction)
    for step in run.steps:
        call_id = str(step.call.index)
        yield TraceEvent("call", step.call.name, call_id, step.call.arguments)
        if not step.observation.is_unknown:
            yield TraceEvent("result", "", call_id, step.observation.content, step.observation.is_error)
    yield TraceEvent("assistant", run.answer)
