"""Reads requests to OpenAI (Chat Completions, Responses) and Anthropic (Messages) as applications log them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pytest_toolemu.authoring.importers.notes import Notes, add_note
from pytest_toolemu.authoring.importers.traces.conversation import (
    Conversation,
    Json,
    ObservedTool,
    TraceEvent,
    text_of,
)
from pytest_toolemu.authoring.importers.traces.json_values import objects, parsed


def is_request(entry: Json) -> bool:
    """Return whether an entry of a log is a request, or contains one, that this module reads."""
    request = _part(entry, "request")
    return isinstance(request.get("messages"), list) or isinstance(request.get("input"), list | str)


def conversations_in(entries: Iterable[Json], notes: Notes) -> list[Conversation]:
    """Return the conversation in each entry: a request and, if the entry contains it, the response.

    A request to the Responses interface that names an earlier response continues that response's conversation.
    """
    conversations: list[Conversation] = []
    responses: dict[str, Conversation] = {}
    for entry in entries:
        request, response = _part(entry, "request"), _part(entry, "response")
        if entry.get("response") and not response:
            add_note(notes, "a response that is not JSON, such as a stream, is left out", _location(conversations))
        events = [*_request_events(request), *_response_events(response)]
        tools = [tool for each in objects(request.get("tools")) if (tool := tool_of(each)) is not None]
        if previous := str(request.get("previous_response_id") or ""):
            if previous in responses:
                events = [*responses[previous].events, *events]
                tools = tools or responses[previous].tools
            else:
                add_note(notes, "messages before a request are not in the file", _location(conversations))
        conversations.append(Conversation(events, tools))
        if isinstance(response.get("id"), str):
            responses[response["id"]] = conversations[-1]
    return conversations


def _location(conversations: list[Conversation]) -> str:
    return f"request {len(conversations) + 1}"


def tool_of(definition: Any) -> ObservedTool | None:
    """Return the tool of an OpenAI or Anthropic definition; None for a tool that the provider executes itself."""
    if not isinstance(definition, dict):
        return None
    inner = definition.get("function")
    function: Json = inner if isinstance(inner, dict) else definition
    name = function.get("name")
    if not isinstance(name, str) or not name:
        return None
    parameters = function.get("parameters", function.get("input_schema", function.get("inputSchema")))
    return ObservedTool(
        name, str(function.get("description") or ""), parameters if isinstance(parameters, dict) else None
    )


def _part(entry: Json, name: str) -> Json:
    """Return the request or response of an entry: of a pair, in a body, or the entry itself if it is a request.

    Files of batches have the request in ``body`` (OpenAI) or ``params`` (Anthropic). Both may be logged as text.
    """
    part = parsed(entry.get(name, entry if name == "request" else {}))
    for inner in ("body", "params"):
        if isinstance(part, dict) and isinstance(body := parsed(part.get(inner)), dict):
            part = body
    return part if isinstance(part, dict) else {}


def _request_events(request: Json) -> Iterator[TraceEvent]:
    for name in ("system", "instructions"):
        if text := text_of(request.get(name)):
            yield TraceEvent("system", text)
    messages = request.get("messages", request.get("input"))
    if isinstance(messages, str):
        yield TraceEvent("user", messages)
        return
    for message in objects(messages):
        yield from message_events(message)


def _response_events(response: Json) -> Iterator[TraceEvent]:
    for choice in objects(response.get("choices"))[:1]:
        if isinstance(choice.get("message"), dict):
            yield from message_events(choice["message"])
    for item in objects(response.get("output")):
        yield from message_events(item)
    if isinstance(response.get("content"), list):
        yield from message_events({"role": "assistant", "content": response["content"]})


def message_events(message: Json) -> Iterator[TraceEvent]:
    """Yield the events of a message of any of the three formats."""
    role, content = message.get("role"), message.get("content")
    if message.get("type") == "function_call":
        yield _call(message.get("call_id"), message.get("name"), message.get("arguments"))
    elif message.get("type") == "function_call_output":
        yield _result(message.get("call_id"), message.get("output"))
    elif role in ("tool", "function"):
        yield _result(message.get("tool_call_id"), content)
    else:
        yield from _spoken(message, str(role), content)


def _spoken(message: Json, role: str, content: Any) -> Iterator[TraceEvent]:
    """Yield the events of a message with text, and with the calls or results that Anthropic puts next to it."""
    blocks = content if isinstance(content, list) else []
    for block in blocks:
        if isinstance(block, dict) and block.get("type") == "tool_result":
            yield _result(block.get("tool_use_id"), block.get("content"), is_error=bool(block.get("is_error")))
    if text := text_of([part for part in blocks if _is_text(part)] if blocks else content):
        yield TraceEvent(
            "user" if role == "user" else "system" if role in ("system", "developer") else "assistant", text
        )
    for block in blocks:
        if isinstance(block, dict) and block.get("type") == "tool_use":
            yield _call(block.get("id"), block.get("name"), block.get("input"))
    # Before OpenAI had IDs of calls, a message had one call.
    for call in (*objects(message.get("tool_calls")), {"function": message.get("function_call")}):
        function = call.get("function")
        if isinstance(function, dict):
            yield _call(call.get("id"), function.get("name"), function.get("arguments"))


def _is_text(part: Any) -> bool:
    return isinstance(part, str) or (isinstance(part, dict) and str(part.get("type", "text")).endswith("text"))


def _call(call_id: Any, name: Any, arguments: Any) -> TraceEvent:
    return TraceEvent("call", str(name or ""), str(call_id or ""), parsed(arguments or {}))


def _result(call_id: Any, content: Any, *, is_error: bool = False) -> TraceEvent:
    value = text_of(content) if isinstance(content, list) else content
    return TraceEvent("result", "", str(call_id or ""), parsed(value), is_error)
