"""What the loopback server understood, and what it is told to say, in terms of neither provider."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal

Provider = Literal["openai", "anthropic"]


@dataclass(frozen=True)
class Call:
    """A tool call. ``arguments`` as a string is the raw text that OpenAI sends, which may be no JSON at all.

    A reply's call without an id gets one that no other call of the server has.
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
    """What a completion asks for. ``schema`` may be sent as such or, in a message, in words.

    ``schema_name`` is the schema's title where it has no name of its own: with Anthropic, and in words.
    """

    model: str = ""
    messages: tuple[Message, ...] = ()
    tools: tuple[Tool, ...] = ()
    schema_name: str = ""
    schema: dict[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Request(Content):
    """One request as it arrived; ``number`` counts from 1. ``headers`` are lower-case and hold no credential."""

    number: int
    provider: Provider
    method: str
    path: str
    headers: dict[str, str]
    body: Any = None

    @property
    def role(self) -> str:
        """Who asked: ``agent`` without a schema, ``emulator`` for ``emul*``, ``evaluator`` for any other name.

        A schema without a name is nobody's: ``unknown``. What asks for no completion, as for the models, has no role.
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
    """Tokens. ``input`` counts the whole prompt, cached and cache-written ones included, whatever the provider does."""

    input: int = 10
    output: int = 5
    cached: int = 0
    cache_written: int = 0
    reasoning: int = 0


@dataclass(frozen=True)
class Reply:
    """An answer with status 200.

    ``stop`` is stop, calls, length or refusal, said in the provider's word; any other word is sent as it is.
    ``refusal`` is the text of a refusal where the provider has a field for one; ``stop="refusal"`` alone is OpenAI's
    content filter. ``thinking`` reaches Anthropic's clients only. ``usage=None`` reports nothing. ``model`` is the
    name that answers, if not the one asked for. ``raw`` is the whole body, in place of everything else.
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
        """Why it stops: what was said, or what follows from the rest."""
        implied = "refusal" if self.refusal else "calls" if self.calls else "stop"
        return self.stop or implied


@dataclass(frozen=True)
class Fault:
    """A failure: an HTTP error in the provider's shape, or a connection that breaks.

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
