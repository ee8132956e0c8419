"""Reads requests to OpenAI (Chat Completions, Responses) and Anthropic (Messages) as applications log them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from pytest_toolemu.authoring.importers.notes import Notes, add_note
from pytest_toolemu.authoring.importers.traces.conversation import (
    Conversation,
    Json,
    ObservedTool,
    TraceEvent,
    text_of,
)
from pytest_toolemu.authoring.importers.traces.json_values import objects, parsed

_TEXT_INPUT: Final = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}


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
        request, response = _part(entry, "request"), _part(entry, "response") or _output(entry)
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
    if definition.get("type") == "custom":  # of OpenAI; takes a text
        inner = definition.get("custom")
    function: Json = inner if isinstance(inner, dict) else definition
    name = function.get("name")
    if not isinstance(name, str) or not name:
        return None
    text_input = _TEXT_INPUT if definition.get("type") == "custom" else None
    schemas = (function.get(key) for key in ("parameters", "input_schema", "inputSchema"))
    parameters = next((schema for schema in schemas if isinstance(schema, dict)), text_input)
    return ObservedTool(name, str(function.get("description") or ""), parameters)


def _part(entry: Json, name: str) -> Json:
    """Return the request or response of an entry: of a pair, in a body, or the entry itself if it is a request.

    Files of batches have the request in ``body`` (OpenAI) or ``params`` (Anthropic). Both may be logged as text.
    """
    part = parsed(entry.get(name, entry if name == "request" else {}))
    for inner in ("body", "params"):
        if isinstance(part, dict) and isinstance(body := parsed(part.get(inner)), dict):
            part = body
    return part if isinstance(part, dict) else {}


def _output(entry: Json) -> Json:
    """Return the response of an entry that has it in ``output``, next to ``input``, as observability tools do."""
    output = parsed(entry.get("output")) if "input" in entry and "response" not in entry else None
    if isinstance(output, str):
        return {"output": [{"role": "assistant", "content": output}]}
    if isinstance(output, dict):
        is_message = "role" in output or "tool_calls" in output or isinstance(output.get("content"), str)
        return {"output": [{"role": "assistant", **output}]} if is_message else output
    return {"output": output} if isinstance(output, list) else {}


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
    for number, choice in enumerate(objects(response.get("choices")), 1):
        if number > 1:
            yield TraceEvent("omitted", f"choice {number}")
        elif isinstance(choice.get("message"), dict):
            yield from message_events(choice["message"])
    for item in objects(response.get("output")):
        yield from message_events(item)
    if isinstance(response.get("content"), list):
        yield from message_events({"role": "assistant", "content": response["content"]})


def message_events(message: Json) -> Iterator[TraceEvent]:
    """Yield the events of a message of any of the three formats."""
    role, content, kind = message.get("role"), message.get("content"), message.get("type")
    call_id = message.get("call_id")
    if kind == "function_call":
        yield _call(call_id, message.get("name"), message.get("arguments"))
    elif kind == "custom_tool_call":
        yield _call(call_id, message.get("name"), {"input": message.get("input")})
    elif kind in ("function_call_output", "custom_tool_call_output"):
        yield from _result(call_id, message.get("output"))
    elif kind == "mcp_call":  # executed by the provider: its result is next to it
        yield _call(message.get("id"), message.get("name"), message.get("arguments"))
        error, output = message.get("error"), message.get("output")
        if error or output is not None:
            yield from _result(message.get("id"), error or output, is_error=bool(error))
    elif role in ("tool", "function"):
        yield from _result(message.get("tool_call_id"), content)
    elif role is None and kind not in (None, "message"):
        yield TraceEvent("omitted", str(kind))
    else:
        yield from _spoken(message, str(role), content)


def _spoken(message: Json, role: str, content: Any) -> Iterator[TraceEvent]:
    """Yield the events of a message with text, and with the calls or results that Anthropic puts next to it."""
    blocks = content if isinstance(content, list) else []
    texts: list[Any] = []
    uses: list[TraceEvent] = []
    for block in blocks:
        kind = block.get("type") if isinstance(block, dict) else None
        if _is_text(block):
            texts.append(block)
        elif kind == "tool_use":
            uses.append(_call(block.get("id"), block.get("name"), block.get("input")))
        elif kind in ("tool_result", "mcp_tool_use", "mcp_tool_result"):
            yield from (*_message(role, texts), *uses)
            texts, uses = [], []
            if kind == "mcp_tool_use":  # executed by the provider: its result follows
                yield _call(block.get("id"), block.get("name"), block.get("input"))
            else:
                yield from _result(block.get("tool_use_id"), block.get("content"), is_error=bool(block.get("is_error")))
        else:
            yield TraceEvent("omitted", _type(block))
    yield from _message(role, texts if blocks else content)
    yield from uses
    # Before OpenAI had IDs of calls, a message had one call.
    for call in (*objects(message.get("tool_calls")), {"function": message.get("function_call")}):
        function, custom = call.get("function"), call.get("custom")
        if isinstance(function, dict):
            yield _call(call.get("id"), function.get("name"), function.get("arguments"))
        elif isinstance(custom, dict):
            yield _call(call.get("id"), custom.get("name"), {"input": custom.get("input")})
        elif "type" in call:
            yield TraceEvent("omitted", str(call["type"]))


def _message(role: str, content: Any) -> Iterator[TraceEvent]:
    if text := text_of(content):
        yield TraceEvent(
            "user" if role == "user" else "system" if role in ("system", "developer") else "assistant", text
        )


def _is_text(part: Any) -> bool:
    return isinstance(part, str) or (isinstance(part, dict) and str(part.get("type", "text")).endswith("text"))


def _call(call_id: Any, name: Any, arguments: Any) -> TraceEvent:
    return TraceEvent("call", str(name or ""), str(call_id or ""), parsed(arguments or {}))


def _result(call_id: Any, content: Any, *, is_error: bool = False) -> Iterator[TraceEvent]:
    """Yield the result of a call, unless it has only parts that a case cannot contain."""
    value = content
    if isinstance(content, list):
        texts = [part for part in content if _is_text(part) or text_of([part])]
        yield from (TraceEvent("omitted", _type(part)) for part in content if part not in texts)
        if content and not texts and not is_error:
            return
        value = text_of(texts)
    yield TraceEvent("result", "", str(call_id or ""), parsed(value), is_error)


def _type(part: Any) -> str:
    return str(part.get("type")) if isinstance(part, dict) else "a value"
