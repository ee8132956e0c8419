"""A recorded conversation of an agent, whatever the format of its trace."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal

Json = dict[str, Any]
# Readers of YAML disagree on integers with so many characters or more.
_DIGITS: Final = 19
Kind = Literal["system", "user", "assistant", "call", "result"]


@dataclass(frozen=True)
class TraceEvent:
    """A message, a tool call, or the result of one.

    ``text`` is the text of a message, or the name of the called tool. ``call_id`` connects a result with its call.
    ``value`` holds the arguments of a call, or the content of a result.
    """

    kind: Kind
    text: str = ""
    call_id: str = ""
    value: Any = None
    is_error: bool = False


@dataclass(frozen=True)
class ObservedTool:
    """A tool as the agent's model was offered it; ``parameters`` is None if the trace does not contain the schema.

    ``definition`` is the whole tool, as in a toolkit's file, if the trace is a record of this package.
    """

    name: str
    description: str = ""
    parameters: Json | None = None
    definition: Json | None = None


@dataclass(frozen=True)
class ObservedCall:
    """A call and its result. ``has_result`` is False if the trace does not contain the result.

    ``has_named_error``: an error has the form ``Name: message`` already, with an error of the tool's definition.
    """

    name: str
    arguments: Json
    result: Any = None
    is_error: bool = False
    has_result: bool = True
    has_named_error: bool = False


@dataclass
class Conversation:
    """The events of one run of an agent, in order, and the tools that it had."""

    events: list[TraceEvent]
    tools: list[ObservedTool] = field(default_factory=list)

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
        """The calls with their results. Without an ID, a result belongs to the first call that has none."""
        results = {event.call_id: event for event in self.events if event.kind == "result" and event.call_id}
        nameless = iter([event for event in self.events if event.kind == "result" and not event.call_id])
        calls = []
        for event in self.events:
            if event.kind != "call":
                continue
            result = results.get(event.call_id) if event.call_id else next(nameless, None)
            arguments = event.value if isinstance(event.value, dict) else {}
            is_defined = any(tool.definition and tool.name == event.text for tool in self.tools)
            calls.append(
                ObservedCall(event.text, arguments, has_result=False)
                if result is None
                else ObservedCall(event.text, arguments, result.value, result.is_error, has_named_error=is_defined)
            )
        return calls


def longest(conversations: Iterable[Conversation]) -> list[Conversation]:
    """Return the conversations without those that others continue: each request repeats what was said before."""
    kept: list[Conversation] = []
    for conversation in sorted(conversations, key=lambda each: -len(each.events)):
        begins = any(_keys(other)[: len(conversation.events)] == _keys(conversation) for other in kept)
        if not begins:
            kept.append(conversation)
    return kept


def _keys(conversation: Conversation) -> list[str]:
    return [
        json.dumps([event.kind, event.text, event.value], sort_keys=True, default=str) for event in conversation.events
    ]


def parsed(value: Any) -> Any:
    """Return the JSON value in a text; the text itself if it is not JSON."""
    if not isinstance(value, str):
        return value
    try:
        return load_json(value)
    except (ValueError, RecursionError):
        return value


def load_json(text: str) -> Any:
    """Return the value of JSON text; a number that files of cases cannot contain becomes text. Raise ValueError."""
    return json.loads(text, parse_int=_number, parse_float=_number, parse_constant=str)


def _number(text: str) -> Any:
    if text.lstrip("-").isdigit():
        return int(text) if len(text) < _DIGITS else text
    return text if abs(float(text)) == float("inf") else float(text)


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
