"""The gateway between an agent's program and its models, so that its requests are limited, counted, and recorded.

The program gets base URLs that lead here. Requests in the formats of OpenAI and Anthropic are sent to the provider as
they are, streams included. Here is what a session prescribes, and how requests and replies are read; the requests
themselves are passed on by ``gateway_app``.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from pytest_toolemu.agents.mcp import started_server
from pytest_toolemu.core.messages import Message, Model, Reply, Usage
from pytest_toolemu.core.toolbox import Toolbox, printable
from pytest_toolemu.models.endpoint import EndpointAddress, RemoteModel
from pytest_toolemu.models.spec import ModelSpec, check_url
from pytest_toolemu.settings import OFFICIAL_URLS

Provider = Literal["openai", "anthropic"]

PATHS: Final[dict[Provider, str]] = {"openai": "/openai/v1", "anthropic": "/anthropic"}
"""The paths of the providers below the URL of a case. OpenAI's SDKs expect a base URL that ends with /v1."""
_VARIABLES: Final[dict[Provider, str]] = {"openai": "OPENAI_BASE_URL", "anthropic": "ANTHROPIC_BASE_URL"}


@dataclass(frozen=True)
class SessionRules:
    """What a session prescribes for the requests of programs.

    ``limit`` adds retries, rate limits, and the budget to a model. With ``replays_only``, nothing is sent, not even
    requests that are not model calls.
    """

    limit: Callable[[RemoteModel], Model]
    replays_only: bool = False


@contextlib.asynccontextmanager
async def passed_on(toolbox: Toolbox, rules: SessionRules) -> AsyncIterator[dict[str, str]]:
    """Pass on requests to models while a block runs, and yield the variables with the base URLs for the program.

    The environment has the variables with the real base URLs, if they are not the official ones.
    """
    server = started_server()
    from pytest_toolemu.agents.gateway_app import CaseGateway

    gateway = CaseGateway(toolbox, rules, _base_urls())
    url = server.open(gateway)
    try:
        yield {variable: url + PATHS[provider] for provider, variable in _VARIABLES.items()}
    finally:
        server.close(url)
        await gateway.end()


def check_base_urls() -> None:
    """Raise UsageError if a variable has a base URL to which no request can be sent."""
    for provider, url in _base_urls().items():
        check_url(url, _VARIABLES[provider])


def _base_urls() -> dict[Provider, str]:
    return {
        provider: os.environ.get(variable, "").strip().rstrip("/") or OFFICIAL_URLS[provider]
        for provider, variable in _VARIABLES.items()
    }


# ---- requests

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
        parameters = _json_text({"path": self.request.target, **rest})
        return (Message(role="system", content=parameters), *map(_message, turns))


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
    return Message(role=role if role in _ROLES else "user", content=_json_text(turn))


def _json_text(value: Any) -> str:
    return printable(json.dumps(value, ensure_ascii=False))


# ---- replies

EVENTS: Final = "text/event-stream"
_TYPE: Final = "content_type"
_BODY: Final = "body"
_FAILED: Final = "the response failed"


def reply_of(body: bytes, content_type: str, request_id: str | None) -> Reply:
    """Return a reply with text, model, and tokens. ``native`` keeps all of it, so that it can be replayed.

    The tokens are unknown if the provider does not state them.
    """
    text = body.decode("utf-8", "replace")
    values = list(_values(text, content_type))
    usage: dict[str, Any] = {}
    model = ""
    for holder in (part for value in values for part in _holders(value)):
        if isinstance(holder.get("usage"), dict):  # later events complete the counts of earlier ones
            usage |= {name: count for name, count in holder["usage"].items() if count is not None}
        model = model or str(holder.get("model") or "")
    return Reply(
        text=printable("".join(part for value in values for part in _texts(value))),
        usage=_usage(usage),
        model=printable(model),
        request_id=request_id,
        native=({_TYPE: content_type, _BODY: text},),
    )


def error_of(body: bytes, content_type: str) -> str:
    """Return the error that a reply with status 200 contains, or with which its stream ended; empty if none."""
    for value in _values(body.decode("utf-8", "replace"), content_type):
        response = value.get("response")
        error = value.get("error")  # of Anthropic, of a chunk in OpenAI's format, and of routers in a whole reply
        if value.get("type") == "response.failed" and isinstance(response, dict):
            error = response.get("error") or _FAILED
        if value.get("object") == "response" and value.get("status") == "failed":
            error = error or _FAILED
        if value.get("type") == "error":  # of OpenAI's Responses API, which has the members in the event itself
            error = error or {name: part for name, part in value.items() if name != "type"}
        for choice in _objects(value.get("choices")):  # of routers, beside the part of a reply that was written
            error = error or choice.get("error") or (_FAILED if choice.get("finish_reason") == "error" else None)
        if error:
            return printable(error if isinstance(error, str) else json.dumps(error, ensure_ascii=False))
    return ""


def wire_of(reply: Reply) -> tuple[str, bytes] | None:
    """Return content type and body of a recorded reply; None if it was not recorded here."""
    for part in reply.native or ():
        if isinstance(part.get(_TYPE), str) and isinstance(part.get(_BODY), str):
            return part[_TYPE], part[_BODY].encode()
    return None


def _values(text: str, content_type: str) -> Iterator[dict[str, Any]]:
    lines = [text]
    if content_type.startswith(EVENTS):  # whose lines end in these three ways only, unlike those of splitlines()
        lines = [line[5:] for line in re.split(r"\r\n|\r|\n", text) if line.startswith("data:")]
    for line in lines:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):  # such as the [DONE] at the end of a stream
            continue
        if isinstance(value, dict):
            yield value


def _holders(value: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the objects that can state model and usage: the reply, and what the first or last event wraps."""
    for holder in (value, value.get("message"), value.get("response")):
        if isinstance(holder, dict):
            yield holder


def _texts(value: dict[str, Any]) -> Iterator[str]:
    """Yield the text that a whole reply or one event of a stream contains."""
    for choice in _objects(value.get("choices")):
        for holder in (choice, choice.get("message"), choice.get("delta")):
            if isinstance(holder, dict):
                yield from (holder[name] for name in ("text", "content") if isinstance(holder.get(name), str))
    for block in _objects(value.get("content")):
        if isinstance(block.get("text"), str):
            yield block["text"]
    for item in _objects(value.get("output")):
        yield from (part["text"] for part in _objects(item.get("content")) if isinstance(part.get("text"), str))
    delta = value.get("delta")
    if isinstance(delta, dict) and isinstance(delta.get("text"), str):
        yield delta["text"]
    if value.get("type") == "response.output_text.delta" and isinstance(delta, str):
        yield delta


def _usage(counts: dict[str, Any]) -> Usage:
    """Return the tokens that OpenAI (Chat, Responses) or Anthropic states. Anthropic's input has no cached tokens."""
    known = {name: count for name, count in counts.items() if type(count) is int and count >= 0}
    prompt = known.get("input_tokens", known.get("prompt_tokens"))
    output = known.get("output_tokens", known.get("completion_tokens"))
    if prompt is None or output is None:
        return Usage(calls=1, unknown=1)
    read, written = known.get("cache_read_input_tokens", 0), known.get("cache_creation_input_tokens", 0)
    details = counts.get("prompt_tokens_details") or counts.get("input_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else 0
    return Usage(
        input=prompt + read + written,
        output=output,
        cached=min(prompt + read, read or (cached if type(cached) is int else 0)),
        cache_written=written,
        calls=1,
    )


def _objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
