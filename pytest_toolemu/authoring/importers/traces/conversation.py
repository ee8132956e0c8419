"""A recorded conversation of an agent, whatever the format of its trace."""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

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
        """The calls with their results. A result belongs to the first call before it that has its ID and no result.

        Some servers give the same ID to the first call of every turn, or none at all.
        """
        return self._matched()[0]

    @property
    def unmatched(self) -> list[str]:
        """The IDs of results without a call before them that waits for one."""
        return self._matched()[1]

    def _matched(self) -> tuple[list[ObservedCall], list[str]]:
        defined = {tool.name for tool in self.tools if tool.definition is not None}
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
                    has_named_error=calls[index].name in defined,
                )
            elif event.kind == "result":
                unmatched.append(event.call_id or "without an ID")
        return calls, unmatched


def longest(conversations: list[Conversation]) -> list[Conversation]:
    """Return the conversations without those that others continue: each request repeats what was said before.

    A conversation gets the tools of those that it continues, because requests may offer different ones.
    """
    keys = [event_keys(conversation.events) for conversation in conversations]
    tools: dict[int, dict[str, ObservedTool]] = {}
    beginnings: dict[bytes, int] = {}
    for index in sorted(range(len(keys)), key=lambda index: -len(keys[index])):
        digest = hashlib.sha256()
        digests = [digest.digest()]
        for key in keys[index]:
            digest.update(key.encode())
            digests.append(digest.digest())
        whole = beginnings.get(digests[-1], index)
        kept = tools.setdefault(whole, {})
        for tool in conversations[index].tools:
            kept.setdefault(tool.name, tool)
        if whole == index:
            for each in digests:
                beginnings.setdefault(each, index)
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
