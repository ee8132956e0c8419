"""Requests that the loopback server received, and answers of scripts, in provider-neutral form."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal

Provider = Literal["openai", "anthropic"]


@dataclass(frozen=True)
class Call:
    """A tool call. ``arguments`` as a string is the raw text that OpenAI sends, which may be invalid JSON.

    A call in a reply without an id gets an id that is unique for the server.
    """

    name: str
    arguments: Any = field(default_factory=dict)
    id: str = ""


@dataclass(frozen=True)
class Message:
    """One turn. A tool result has role ``tool`` and the id of its call, in either provider's requests."""

    role: str
    text: str = ""
    calls: tuple[Call, ...] = ()
    call_id: str = ""


@dataclass(frozen=True)
class Tool:
    name: str
    description: str
    parameters: dict[str, Any]
    strict: bool = False


@dataclass(frozen=True)
class Content:
    """The content of a completion request. The client sends ``schema`` as a parameter, or as text in a message.

    ``schema_name`` is the schema's title if it has no name of its own: with Anthropic, and in a message.
    """

    model: str = ""
    messages: tuple[Message, ...] = ()
    tools: tuple[Tool, ...] = ()
    schema_name: str = ""
    schema: dict[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Request(Content):
    """One request; ``number`` counts from 1. The names in ``headers`` are lower-case; credentials are removed."""

    number: int
    provider: Provider
    method: str
    path: str
    headers: dict[str, str]
    body: Any = None

    @property
    def role(self) -> str:
        """The role of the client: ``agent`` without a schema, ``emulator`` for ``emul*``, ``evaluator`` for other names.

        For a schema without a name it is ``unknown``; for requests other than completions it is empty.
        """
        if not self.messages:
            return ""
        if self.schema is None:
            return "agent"
        if not self.schema_name:
            return "unknown"
        return "emulator" if self.schema_name.lower().startswith("emul") else "evaluator"

    @property
    def prompt(self) -> str:
        """The text of all messages, one after the other."""
        return "\n\n".join(message.text for message in self.messages)


@dataclass(frozen=True)
class Usage:
    """Token counts. For both providers, ``input`` counts the whole prompt, including cached and cache-written tokens."""

    input: int = 10
    output: int = 5
    cached: int = 0
    cache_written: int = 0
    reasoning: int = 0


@dataclass(frozen=True)
class Reply:
    """An answer with status 200.

    ``stop`` is stop, calls, length or refusal, translated to the provider's word; any other word is sent unchanged.
    ``refusal`` is the text of a refusal if the provider has a field for it; ``stop="refusal"`` alone is OpenAI's
    content filter. ``thinking`` reaches Anthropic's clients only. ``usage=None`` reports no usage. ``model`` is the
    name of the answering model, if it differs from the requested one. ``raw`` replaces the whole body.
    """

    text: str = ""
    calls: tuple[Call, ...] = ()
    stop: str = ""
    usage: Usage | None = Usage()
    refusal: str = ""
    thinking: str = ""
    model: str = ""
    raw: Any = None

    @classmethod
    def of(cls, value: Any) -> Reply:
        """Return a reply whose text is this value as JSON."""
        return cls(text=json.dumps(value))

    @property
    def reason(self) -> str:
        """The stop reason: the given one, or the one that follows from the other fields."""
        implied = "refusal" if self.refusal else "calls" if self.calls else "stop"
        return self.stop or implied


@dataclass(frozen=True)
class Fault:
    """A failure: an HTTP error in the provider's format, or a broken connection.

    ``drop`` closes without an answer, ``truncate`` closes within the body, ``stall`` never answers: it ends when the
    client gives up or the server stops. ``retry_after`` is in seconds, and sent as both headers that SDKs know.
    ``code`` replaces the provider's usual word for the status (OpenAI's ``code``, Anthropic's ``type``).
    """

    kind: Literal["error", "drop", "truncate", "stall"] = "error"
    status: int = 500
    message: str = "The script says that this request fails."
    retry_after: float | None = None
    code: str = ""


Answer = Reply | Fault
Script = Callable[[Request], Answer | Awaitable[Answer]]


class RefusedError(Exception):
    """The request breaks a rule of the provider's API."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.fault = Fault(status=status, message=message)
