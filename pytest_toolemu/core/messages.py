"""What goes to a model and what comes back, in terms that no provider owns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

from pydantic import Field

from pytest_toolemu.formats.yaml_document import Record

Role = Literal["agent", "emulator", "evaluator"]
Stop = Literal["stop", "calls", "length", "refusal", "other"]


class ToolCall(Record):
    """A native tool call. ``arguments`` is the raw text, which may be no JSON at all."""

    id: str
    name: str
    arguments: str


class Message(Record):
    """One turn. ``call_id`` belongs to role ``tool``; ``native`` is a provider's own content, sent back as it came."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    calls: tuple[ToolCall, ...] = ()
    call_id: str | None = None
    native: tuple[dict[str, Any], ...] | None = None


class ToolSpec(Record):
    """A tool as offered to a model."""

    name: str
    description: str
    parameters: dict[str, Any]

    def __hash__(self) -> int:
        """Equal tools have equal names; a hash of their schemas would take longer than what is cached by it."""
        return hash(self.name)


class ReplySchema(Record):
    """A reply's shape: a name for it and its JSON Schema."""

    name: str
    schema_: dict[str, Any] = Field(alias="schema")


class Usage(Record):
    """Tokens of one or many exchanges. ``input`` counts all of the prompt, of which ``cached`` came from a cache and
    ``cache_written`` went into one; ``output`` counts all that was generated, of which ``reasoning`` was not shown.

    ``unknown`` counts exchanges for which the endpoint reported nothing: a sum with any is a lower bound.
    """

    input: int = 0
    output: int = 0
    cached: int = 0
    cache_written: int = 0
    reasoning: int = 0
    calls: int = 0
    unknown: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(**{name: getattr(self, name) + getattr(other, name) for name in Usage.model_fields})

    @property
    def total(self) -> int:
        """Tokens in and out."""
        return self.input + self.output


class Reply(Record):
    """A model's answer: text, tool calls, or both. ``model`` is the name the endpoint answered with."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    stop: Stop = "stop"
    stop_detail: str = ""
    usage: Usage = Usage()
    model: str = ""
    request_id: str | None = None
    native: tuple[dict[str, Any], ...] | None = None
    schema_fallback: str = Field(
        default="", description="Why the reply's schema was asked for in words, and not sent as structured output"
    )

    def as_message(self) -> Message:
        """The reply as the next turn of its conversation."""
        return Message(role="assistant", content=self.text, calls=self.calls, native=self.native)


@dataclass(frozen=True)
class ModelRequest:
    """Everything that determines a model's reply, besides the model itself.

    With ``schema``, the reply's text should be JSON of that shape; callers still validate it. ``seed`` is sent only to
    endpoints that accept one.
    """

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    schema: ReplySchema | None = None
    seed: int | None = None


class Model(Protocol):
    """Answers requests."""

    @property
    def identity(self) -> dict[str, Any]:
        """Return what records tell models apart by: provider, name, base URL, parameters. Never a credential."""
        ...

    async def complete(self, request: ModelRequest) -> Reply:
        """Send one request and return its reply; ModelError when the endpoint fails."""
        ...


class ModelCall(Record):
    """One request and its reply, as recorded; ``messages`` are indices into the record's message table."""

    role: Role
    model: dict[str, Any]
    messages: tuple[int, ...]
    tools: tuple[str, ...] = ()
    schema_name: str | None = None
    reply: Reply | None = None
    error: str | None = None
    replayed: str = Field(default="", description="FILE#NUMBER of the recording that the reply is from")
    started: float
    seconds: float


class Recorder(Protocol):
    """Sits between one run and its models: replays recorded replies and records new ones."""

    async def complete(self, role: Role, model: Model, request: ModelRequest) -> tuple[Reply, str]:
        """Return the reply and the cassette file it was replayed from; the file is empty if the model was called."""
        ...


class Ledger:
    """Every exchange of one run. A message occurs once, however often it is sent again.

    ``seed`` goes with every request of the run, so that trials of a case are independent of each other. If there is a
    ``recorder``, every request passes through it.
    """

    recorder: Recorder | None = None

    def __init__(self, seed: int | None = None) -> None:
        self.seed = seed
        self.messages: list[Message] = []
        self.exchanges: list[ModelCall] = []
        self._index: dict[str, int] = {}

    def indices(self, messages: tuple[Message, ...]) -> tuple[int, ...]:
        """Where these messages stand in the table; new ones are added."""
        found = []
        for message in messages:
            key = message.model_dump_json()
            if key not in self._index:
                self._index[key] = len(self.messages)
                self.messages.append(message)
            found.append(self._index[key])
        return tuple(found)

    def usage(self, role: Role | None = None) -> Usage:
        """Tokens so far, of one role or of all."""
        total = Usage()
        for exchange in self.exchanges:
            if exchange.reply is not None and role in (None, exchange.role):
                total += exchange.reply.usage
        return total
