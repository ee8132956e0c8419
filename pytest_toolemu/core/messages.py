"""Requests to models and their replies, independent of any provider."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

from pydantic import Field

from pytest_toolemu.formats.yaml_document import Record

Role = Literal["agent", "emulator", "user", "evaluator", "builder", "author"]
FinishReason = Literal["stop", "calls", "length", "refusal", "other"]


class ToolCall(Record):
    """A native tool call. ``arguments`` is the raw text, which need not be JSON."""

    id: str = Field(description="ID of the call, given by the provider")
    name: str = Field(description="Name of the tool")
    arguments: str = Field(description="Text of the arguments, which need not be JSON")


class Message(Record):
    """A message. ``call_id`` belongs to the role ``tool``. ``native`` is a provider's content, returned unchanged."""

    role: Literal["system", "user", "assistant", "tool"] = Field(description="Who wrote the message")
    content: str = Field(default="", description="Text of the message")
    calls: tuple[ToolCall, ...] = Field(default=(), description="Tool calls of the model")
    call_id: str | None = Field(default=None, description="ID of the call that it answers; role `tool` only")
    native: tuple[dict[str, Any], ...] | None = Field(default=None, description="Content in the provider's own format")


class ToolSpec(Record):
    """A tool as offered to a model."""

    name: str
    description: str
    parameters: dict[str, Any]

    def __hash__(self) -> int:
        """Return the hash of the name: hashing the schema would take longer than the work that caches save."""
        return hash(self.name)


class ReplySchema(Record):
    """The schema of a reply: its name and its JSON Schema."""

    name: str
    schema_: dict[str, Any] = Field(alias="schema")

    def __hash__(self) -> int:
        """Hash by the name only: hashing the schema would take longer than the work that a cache saves."""
        return hash(self.name)


class Usage(Record):
    """The tokens of one or more model calls.

    ``input`` counts the whole prompt, of which ``cached`` was read from a cache and ``cache_written`` was written to
    one. ``output`` counts everything generated, of which ``reasoning`` is not part of the reply. ``unknown`` counts the
    calls for which the endpoint reported no usage: a sum that includes one is a lower bound.
    """

    input: int = Field(default=0, description="Tokens of the prompts")
    output: int = Field(default=0, description="Generated tokens")
    cached: int = Field(default=0, description="Tokens of the prompts that were read from a cache")
    cache_written: int = Field(default=0, description="Tokens of the prompts that were written to a cache")
    reasoning: int = Field(default=0, description="Generated tokens that are not part of the reply")
    calls: int = Field(default=0, description="Number of model calls")
    unknown: int = Field(default=0, description="Number of model calls for which the endpoint reported no usage")

    def __add__(self, other: Usage) -> Usage:
        return Usage(**{name: getattr(self, name) + getattr(other, name) for name in Usage.model_fields})

    @property
    def total(self) -> int:
        """Input and output tokens."""
        return self.input + self.output


class Reply(Record):
    """A model's reply: text, tool calls, or both. ``model`` is the model name in the endpoint's response."""

    text: str = Field(default="", description="Text of the reply")
    calls: tuple[ToolCall, ...] = Field(default=(), description="Tool calls in the reply")
    stop: FinishReason = Field(default="stop", description="Why the reply ended")
    stop_detail: str = Field(default="", description="Why the reply ended, as the provider stated it")
    usage: Usage = Field(default=Usage(), description="Tokens of the call")
    model: str = Field(default="", description="Model name in the endpoint's response")
    request_id: str | None = Field(default=None, description="ID of the request, given by the provider")
    native: tuple[dict[str, Any], ...] | None = Field(default=None, description="Content in the provider's own format")
    schema_fallback: str = Field(default="", description="Why the schema was sent as text in the prompt")
    refused_parameters: tuple[str, ...] = Field(default=(), description="Parameters that the endpoint refuses")
    batch: str = Field(default="", description="ID of the batch in which the provider answered")

    lost_attempts: int = Field(default=0, description="Earlier attempts whose replies were lost, and maybe charged")

    @property
    def usage_of_attempts(self) -> Usage:
        """Tokens of the call with its lost attempts, whose usage is unknown."""
        return self.usage + Usage(calls=self.lost_attempts, unknown=self.lost_attempts)

    def as_message(self) -> Message:
        """Return the reply as the next message of its conversation."""
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
        """The provider, name, base URL, and parameters that distinguish models in records; never a credential."""
        ...

    async def complete(self, request: ModelRequest) -> Reply:
        """Send one request and return its reply; ModelError when the endpoint fails."""
        ...


Stage = Literal["checks", "cheap", "strong"]
"""The case's checks, the cheap judge, and the strong judge. The only judge of a cascade is the strong one."""


class AskingStage(Record):
    """The stage of a cascade that sent a request."""

    cascade: str = Field(description="Name of the cascade in its verdict")
    stage: Stage = Field(description="The cheap judge, or the strong judge")


FallbackReason = Literal["refused", "invalid"]
"""The model refused, or its reply stayed invalid after all corrections."""


class PassedOverModel(Record):
    """A model of an ordered fallback that gave no usable reply, so that the next model was asked."""

    model: str = Field(description="The model as `provider:name`")
    reason: FallbackReason = Field(description="Whether the model refused, or its reply stayed invalid")
    problem: str = Field(description="The refusal, or what was wrong with the last reply")


class FallbackUse(Record):
    """An answer of a fallback model, with the models that were asked before it."""

    model: str = Field(description="Model that answered, as `provider:name`")
    passed_over: tuple[PassedOverModel, ...] = Field(description="Models that were asked before it, in their order")

    @property
    def has_refusal(self) -> bool:
        """Whether a model refused."""
        return any(each.reason == "refused" for each in self.passed_over)

    def __str__(self) -> str:
        reasons = "; ".join(f"{each.model}: {each.problem}" for each in self.passed_over)
        return f"answered by the fallback model {self.model}, because of {reasons}"


class ModelCall(Record):
    """One request and its reply, as recorded; ``messages`` are indices into the record's message table."""

    role: Role = Field(description="Role for which the model was called")
    model: dict[str, Any] = Field(description="Identity of the model")
    messages: tuple[int, ...] = Field(description="Indices of the request's messages in `messages` of the run")
    tools: tuple[str, ...] = Field(default=(), description="Names of the tools that were offered")
    schema_name: str | None = Field(default=None, description="Name of the schema of the reply; null without one")
    reply: Reply | None = Field(default=None, description="The reply; null if the call failed")
    error: str | None = Field(default=None, description="Why the call failed; null if it did not")
    replayed: str = Field(default="", description="FILE#NUMBER of the recording that the reply is from")
    instead_of: PassedOverModel | None = Field(default=None, description="The fallback's model before this one")
    asked_by: AskingStage | None = Field(default=None, description="Stage of the cascade that sent the request")
    started: float = Field(description="Start, in seconds since the epoch")
    seconds: float = Field(description="Duration in seconds")


class Recorder(Protocol):
    """Sits between one run and its models: replays recorded replies and records new ones."""

    async def complete(self, role: Role, model: Model, request: ModelRequest) -> tuple[Reply, str]:
        """Return the reply and the cassette file it was replayed from; the file is empty if the model was called."""
        ...


class Ledger:
    """All model calls of one run. A message is stored once, even if it is sent many times.

    ``seed`` goes with every request of the run, so that trials of a case are independent of each other. If there is a
    ``recorder``, every request passes through it.
    """

    recorder: Recorder | None = None

    def __init__(self, seed: int | None = None) -> None:
        self.seed = seed
        self.messages: list[Message] = []
        self.model_calls: list[ModelCall] = []
        self._index: dict[str, int] = {}

    def indices(self, messages: tuple[Message, ...]) -> tuple[int, ...]:
        """Return the indices of these messages in the table, and add new messages to it."""
        indices = []
        for message in messages:
            key = message.model_dump_json()
            if key not in self._index:
                self._index[key] = len(self.messages)
                self.messages.append(message)
            indices.append(self._index[key])
        return tuple(indices)

    def usage(self, role: Role | None = None) -> Usage:
        """Return the tokens used so far by one role, or by all."""
        total = Usage()
        for call in self.model_calls:
            if call.reply is not None and role in (None, call.role):
                total += call.reply.usage_of_attempts
        return total
