"""Reads requests to OpenAI (Chat Completions, Responses) and Anthropic (Messages) as applications log them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pytest_toolemu.authoring.importers.traces.conversation import (
    Conversation,
    Json,
    ObservedTool,
    TraceEvent,
    parsed,
    text_of,
)


def is_request(entry: Json) -> bool:
    """Return whether an entry of a log is a request, or contains one, that this module reads."""
    request = _part(entry, "request")
    return isinstance(request.get("messages"), list) or isinstance(request.get("input"), list | str)


def conversation_of(entry: Json) -> Conversation:
    """Return the conversation in a request and, if the entry contains it, the response."""
    request, response = _part(entry, "request"), _part(entry, "response")
    events = list(_request_events(request))
    events += _response_events(response)
    return Conversation(events, [tool for each in request.get("tools") or () if (tool := tool_of(each)) is not None])


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
    """Return the request or response of an entry: of a pair, in a ``body``, or the entry itself if it is a request."""
    part = entry.get(name, entry if name == "request" else {})
    if isinstance(part, dict) and isinstance(part.get("body"), dict):
        part = part["body"]
    return part if isinstance(part, dict) else {}


def _request_events(request: Json) -> Iterator[TraceEvent]:
    for name in ("system", "instructions"):
        if text := text_of(request.get(name)):
            yield TraceEvent("system", text)
    messages = request.get("messages", request.get("input"))
    if isinstance(messages, str):
        yield TraceEvent("user", messages)
        return
    for message in messages or ():
        if isinstance(message, dict):
            yield from message_events(message)


def _response_events(response: Json) -> Iterator[TraceEvent]:
    choices = response.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        yield from message_events(choices[0].get("message") or {})
    for item in response.get("output") or ():
        if isinstance(item, dict):
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
    elif role == "tool":
        yield _result(message.get("tool_call_id"), content)
    else:
        yield from _spoken(message, str(role), content)


def _spoken(message: Json, role: str, content: Any) -> Iterator[TraceEvent]:
    """Yield the events of a message with text, and with the calls or results that Anthropic puts beside it."""
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
    for call in message.get("tool_calls") or ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            yield _call(call.get("id"), function.get("name"), function.get("arguments"))


def _is_text(part: Any) -> bool:
    return isinstance(part, str) or (isinstance(part, dict) and str(part.get("type", "text")).endswith("text"))


def _call(call_id: Any, name: Any, arguments: Any) -> TraceEvent:
    return TraceEvent("call", str(name or ""), str(call_id or ""), parsed(arguments or {}))


def _result(call_id: Any, content: Any, *, is_error: bool = False) -> TraceEvent:
    value = text_of(content) if isinstance(content, list) else content
    return TraceEvent("result", "", str(call_id or ""), parsed(value), is_error)
