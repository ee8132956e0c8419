"""A request that an agent's program sends to a model, as the messages of a model call."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from pytest_toolemu.core.messages import Message
from pytest_toolemu.core.toolbox import printable
from pytest_toolemu.models.endpoint import EndpointAddress
from pytest_toolemu.models.spec import ModelSpec

Provider = Literal["openai", "anthropic"]

_MODEL_CALLS: Final = ("completions", "responses", "messages")
# Keys of a request with the conversation, which grows from request to request.
_CONVERSATION: Final = ("messages", "input", "prompt")
_ROLES: Final = ("system", "user", "assistant", "tool")
_NOT_PASSED: Final = ("host", "connection", "content-length", "accept-encoding", "transfer-encoding")
_KEYS: Final = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}


@dataclass(frozen=True)
class PassedRequest:
    """A request of a program. ``target`` is what follows the base URL; the names of headers are in lower case."""

    method: str
    provider: Provider
    base_url: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def url(self) -> str:
        """Where the provider gets the request."""
        return self.base_url + self.target

    @property
    def passed_headers(self) -> dict[str, str]:
        """The headers without those that concern the connection of the program only."""
        return {name: value for name, value in self.headers.items() if name not in _NOT_PASSED}

    @property
    def model_call(self) -> PassedCall | None:
        """The request as a model call; None if it is something else, such as a list of models."""
        path = self.target.partition("?")[0].rstrip("/")
        if self.method != "POST" or path.rpartition("/")[2] not in _MODEL_CALLS:
            return None
        try:
            content = json.loads(self.body)
        except (ValueError, RecursionError):
            return None
        is_call = isinstance(content, dict) and isinstance(content.get("model"), str) and bool(content["model"].strip())
        return PassedCall(self, content) if is_call else None


@dataclass(frozen=True)
class PassedCall:
    """A request to a model. ``content`` is its JSON body."""

    request: PassedRequest
    content: dict[str, Any]

    @property
    def address(self) -> EndpointAddress:
        """The provider, the model, and the credential of the program, which share a rate limit."""
        headers = self.request.headers
        secret = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ").strip()
        spec = ModelSpec(self.request.provider, printable(self.content["model"]))
        return EndpointAddress(spec, self.request.base_url, _KEYS[self.request.provider], secret or None)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The turns of the conversation, after a message with everything else, such as tools and parameters."""
        rest = {name: value for name, value in self.content.items() if name not in _CONVERSATION}
        turns = [turn for name in _CONVERSATION for turn in _turns(self.content.get(name))]
        return (Message(role="system", content=_text({"path": self.request.target, **rest})), *map(_message, turns))


def _turns(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _message(turn: Any) -> Message:
    """Return a turn as a message. What a message cannot express stays JSON."""
    if isinstance(turn, str):
        return Message(role="user", content=printable(turn))
    role = turn.get("role") if isinstance(turn, dict) else None
    if role in _ROLES and set(turn) == {"role", "content"} and isinstance(turn["content"], str):
        return Message(role=role, content=printable(turn["content"]))
    return Message(role=role if role in _ROLES else "user", content=_text(turn))


def _text(value: Any) -> str:
    return printable(json.dumps(value, ensure_ascii=False))
