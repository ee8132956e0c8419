"""A recorded conversation of an agent, whatever the format of its trace."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pytest_toolemu.authoring.importers.function_tools import functions_in
from pytest_toolemu.authoring.importers.published_tools import PublishedTool
from pytest_toolemu.authoring.importers.sources import Notes, add_note, objects, parsed

Json = dict[str, Any]
Kind = Literal["system", "user", "assistant", "call", "result", "omitted"]


@dataclass(frozen=True)
class TraceEvent:
    """A message, a tool call, the result of one, or a part of the trace that a case cannot contain.

    ``text`` is the text of a message, the name of the called tool, or the type of an omitted part, such as ``image``.
    ``call_id`` connects a result with its call.
    ``value`` holds the arguments of a call, or the content of a result.
    """

    kind: Kind
    text: str = ""
    call_id: str = ""
    value: Any = None
    is_error: bool = False


@dataclass(frozen=True)
class ObservedCall:
    """A call and its result. ``has_result`` is False if the trace does not contain the result.

    ``has_named_error``: an error has the form ``Name: message`` already, with an error of the tool's definition.
    ``is_readable`` is False if the arguments are not a JSON object; ``arguments`` is empty then.
    """

    name: str
    arguments: Json
    result: Any = None
    is_error: bool = False
    has_result: bool = True
    has_named_error: bool = False
    is_readable: bool = True


@dataclass
class Conversation:
    """The events of one run of an agent, in order, and the tools that it had.

    ``definitions`` are whole tools, as in a toolkit's file, by their names in the trace, which is a record of this
    package then.
    """

    events: list[TraceEvent]
    tools: list[PublishedTool] = field(default_factory=list)
    definitions: dict[str, Json] = field(default_factory=dict)

    @property
    def user_messages(self) -> list[str]:
        """The texts of the user, in order."""
        return [event.text for event in self.events if event.kind == "user" and event.text.strip()]

    @property
    def answer(self) -> str:
        """The last text of the agent after its last call; empty if there is none."""
        answer = ""
        for event in self.events:
            if event.kind == "assistant" and event.text.strip():
                answer = event.text.strip()
            elif event.kind == "call":
                answer = ""
        return answer

    @property
    def calls(self) -> list[ObservedCall]:
        """The calls with their results. A result belongs to the first call before it that has its ID and no result.

        Some servers give the same ID to the first call of every turn, or none at all.
        """
        return self._matched()[0]

    @property
    def unmatched(self) -> list[str]:
        """The IDs of results without a call before them that waits for one."""
        return self._matched()[1]

    def _matched(self) -> tuple[list[ObservedCall], list[str]]:
        calls: list[ObservedCall] = []
        unmatched: list[str] = []
        waiting: dict[str, deque[int]] = {}
        for event in self.events:
            if event.kind == "call":
                waiting.setdefault(event.call_id, deque()).append(len(calls))
                is_readable = isinstance(event.value, dict)
                arguments = event.value if is_readable else {}
                calls.append(ObservedCall(event.text, arguments, has_result=False, is_readable=is_readable))
            elif event.kind == "result" and waiting.get(event.call_id):
                index = waiting[event.call_id].popleft()
                calls[index] = replace(
                    calls[index],
                    result=event.value,
                    is_error=event.is_error,
                    has_result=True,
                    has_named_error=calls[index].name in self.definitions,
                )
            elif event.kind == "result":
                unmatched.append(event.call_id or "without an ID")
        return calls, unmatched


def longest(conversations: list[Conversation]) -> list[Conversation]:
    """Return the conversations without those that others continue: each request repeats what was said before.

    A conversation gets the tools of those that it continues, because requests may offer different ones.
    """
    keys = ["\n".join(event_keys(conversation.events)) + "\n" for conversation in conversations]
    tools: dict[int, dict[str, PublishedTool]] = {}
    for index in sorted(range(len(keys)), key=lambda index: -len(keys[index])):
        whole = next((other for other in tools if keys[other].startswith(keys[index])), index)
        kept = tools.setdefault(whole, {})
        for tool in conversations[index].tools:
            kept.setdefault(tool.name, tool)
    return [Conversation(conversations[index].events, list(tools[index].values())) for index in sorted(tools)]


def event_keys(events: Iterable[TraceEvent]) -> list[str]:
    """Return a text for each event that is equal for equal events, whatever the IDs of their calls.

    Omitted parts have none, because not every request repeats them.
    """
    return [
        json.dumps([event.kind, event.text, event.value], sort_keys=True, default=str)
        for event in events
        if event.kind != "omitted"
    ]


def text_of(content: Any) -> str:
    """Return the text of a message's content, which is a text or a list of parts."""
    if isinstance(content, str):
        return content
    return "\n".join(filter(None, _texts(content)))


def _texts(content: Any) -> Iterator[str]:
    for part in content if isinstance(content, list) else ():
        if isinstance(part, str):
            yield part
        elif isinstance(part, dict):
            text = part.get("text", part.get("content", ""))
            yield text if isinstance(text, str) else ""


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
    for number, entry in enumerate(entries, 1):
        location = f"request {number}"
        request, response = _part(entry, "request"), _part(entry, "response") or _output(entry)
        if entry.get("response") and not response:
            add_note(notes, "a response that is not JSON, such as a stream, is left out", location)
        events = [*_request_events(request), *_response_events(response)]
        tools = list(functions_in(objects(request.get("tools")), {}))
        if previous := str(request.get("previous_response_id") or ""):
            if previous in responses:
                events = [*responses[previous].events, *events]
                tools = tools or responses[previous].tools
            else:
                add_note(notes, "messages before a request are not in the file", location)
        conversations.append(Conversation(events, tools))
        if isinstance(response.get("id"), str):
            responses[response["id"]] = conversations[-1]
    return conversations


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
    elif kind == "function_call_output":
        yield from _result(call_id, message.get("output"))
    elif role == "tool":
        yield from _result(message.get("tool_call_id"), content, is_error=message.get("status") == "error")
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
        elif kind == "tool_result":
            yield from (*_message(role, texts), *uses)
            texts, uses = [], []
            yield from _result(block.get("tool_use_id"), block.get("content"), is_error=bool(block.get("is_error")))
        else:
            yield TraceEvent("omitted", _type(block))
    yield from _message(role, texts if blocks else content)
    yield from uses
    for call in objects(message.get("tool_calls")):
        if isinstance(function := call.get("function"), dict):
            yield _call(call.get("id"), function.get("name"), function.get("arguments"))
        else:
            yield TraceEvent("omitted", str(call.get("type")))


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
