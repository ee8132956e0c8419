"""Passes the requests of one agent's program on to its providers, as calls of any other model of the session."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import httpx2
from starlette.requests import Request
from starlette.responses import Response

from pytest_toolemu.agents.local_server import body_of, json_error
from pytest_toolemu.core.messages import Message, Model, ModelRequest, Reply
from pytest_toolemu.core.toolbox import Toolbox, printable
from pytest_toolemu.errors import ModelError, NotRunError, ReplayMissError
from pytest_toolemu.formats.text import truncated
from pytest_toolemu.models.endpoint import (
    EndpointAddress,
    ModelSpec,
    RemoteModel,
    quotas,
    retry_after,
    usage_of,
)
from pytest_toolemu.models.structured_output import ask
from pytest_toolemu.scheduling.adaptive_limit import Quota
from pytest_toolemu.settings.model_names import KEY_STAND_IN, KEY_VARIABLES

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

Provider = Literal["openai", "anthropic"]

PATHS: Final[dict[Provider, str]] = {"openai": "/openai/v1", "anthropic": "/anthropic"}
"""The paths of the providers below the URL of a case. OpenAI's SDKs expect a base URL that ends with /v1."""
_TIMEOUT: Final = 600.0
_SHOWN: Final = 600
_MAX_BODY: Final = 64 * 1024 * 1024
_NOT_RELAYED: Final = (b"connection", b"content-length", b"transfer-encoding", b"keep-alive", b"content-encoding")
# Statuses that say that an endpoint cannot be used, as opposed to a request of the agent that is not valid.
_UNUSABLE: Final = (None, 401, 402, 403, 408, 429)


@functools.cache  # on first use, since it reads the proxies in the environment
def _client() -> httpx2.AsyncClient:
    """Return the client of the server's loop. It follows no redirect: a request contains the key of the program."""
    return httpx2.AsyncClient(timeout=_TIMEOUT, limits=httpx2.Limits(max_connections=None))


class CaseGateway:
    """Answers the requests of one agent, as an ASGI application. ``base_urls`` are those of the providers."""

    def __init__(
        self, toolbox: Toolbox, base_urls: Mapping[str, str], limit: Callable[[RemoteModel], Model], replays_only: bool
    ) -> None:
        self._home = toolbox.settle()
        self._toolbox, self._base_urls, self._limit, self._replays_only = toolbox, base_urls, limit, replays_only
        self._calls: set[asyncio.Task[Response]] = set()
        self._has_ended = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, on the loop of the server."""
        request = await self._request(Request(scope, receive))
        if isinstance(request, Response):
            await request(scope, receive, send)
            return
        exchange = Exchange(request, send)
        response: Response | None
        if request.model_call is not None:
            try:
                response = await asyncio.wrap_future(self._home.submit(self._ask, request, exchange))
            except (asyncio.CancelledError, RuntimeError):  # the loop of the case may be closed
                response = _refusal(503, "the case has ended")
        elif self._replays_only:
            what = f"{request.method} {request.target}"
            response = _refusal(503, f"{what}: only recorded requests to models are answered")
        else:
            response = await exchange.forward()
        if exchange.is_complete:  # only now, so that the program does not end its turn before the call is recorded
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        elif response is not None and not exchange.has_answered:
            await response(scope, receive, send)

    async def end(self) -> None:
        """Cancel the requests that the agent has left, so that they are recorded."""
        self._has_ended = True
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)

    async def _request(self, received: Request) -> PassedRequest | Response:
        _, _, rest = received.scope["raw_path"].decode("latin-1").removeprefix("/").partition("/")
        provider = next((each for each, path in PATHS.items() if f"/{rest}/".startswith(f"{path}/")), None)
        if provider is None:
            return _refusal(404, "no provider is served at this address")
        body = await body_of(received, _MAX_BODY)
        if body is None:
            return _refusal(413, f"the body has more than {_MAX_BODY:,} bytes")
        query = received.scope["query_string"].decode("latin-1")
        target = f"/{rest}".removeprefix(PATHS[provider]) + (f"?{query}" if query else "")
        url, headers = self._base_urls[provider], dict(received.headers)
        for variable in KEY_VARIABLES[provider]:
            key = os.environ.get(variable, "")
            headers = {name: value.replace(KEY_STAND_IN + variable, key) for name, value in headers.items()}
        request = PassedRequest(received.method, provider, url, target, headers, body)
        return _refusal(*request.problem) if request.problem else request

    async def _ask(self, request: PassedRequest, exchange: Exchange) -> Response:
        """Ask the model on the loop of the case; return the response unless one was passed on.

        Failures that are not the agent's end its turn.
        """
        task = asyncio.current_task()
        if task is None or self._has_ended:
            return _refusal(503, "the case has ended")
        self._calls.add(task)
        toolbox = self._toolbox
        try:
            model = self._limit(PassedModel(request, exchange, toolbox))
            reply = await ask(model, "agent", toolbox.trajectory.ledger, request.messages)
        except (NotRunError, ReplayMissError) as error:
            toolbox.stop(error)
            return _refusal(503, str(error))
        except ModelError as error:
            if error.status in _UNUSABLE or not 400 <= error.status < 500:
                toolbox.stop(error)
            return exchange.failure or _refusal(502, str(error))
        except Exception as error:  # a fault of the gateway itself, not of the agent
            toolbox.stop(error)
            return _refusal(502, "the gateway has failed")
        finally:
            self._calls.discard(task)
        if limit := toolbox.exceeded_tokens():
            toolbox.stop(limit)
        content_type, body = wire_of(reply) or ("text/plain", b"")
        return Response(body, headers={"Content-Type": content_type})


class PassedModel:
    """The model that a program asks, for one request: the response goes to the program while it arrives."""

    def __init__(self, request: PassedRequest, exchange: Exchange, toolbox: Toolbox) -> None:
        self._exchange, self._toolbox = exchange, toolbox
        self._quotas: tuple[Quota | None, Quota | None] = (None, None)
        address = request.address
        self.rate_limit_key = address.rate_limit_key
        self.label = address.spec.label
        self.identity: dict[str, Any] = {
            "provider": address.spec.provider,
            "name": address.spec.name,
            "base_url": address.base_url,
        }

    async def complete(self, request: ModelRequest) -> Reply:
        """Send the program's request; ModelError if the provider fails. NotRunError if the agent's turn has ended."""
        del request  # it was derived from the program's request, which is sent as it is
        if (ending := self._toolbox.turn_error) is not None:  # perhaps while this request waited for its permit
            raise NotRunError(f"the turn of the agent has ended: {getattr(ending, 'reason', ending)}")
        exchange = self._exchange
        fetching = asyncio.run_coroutine_threadsafe(exchange.fetch(self.label), exchange.loop)
        body, headers = await asyncio.wrap_future(fetching)
        self._quotas = quotas(dict(headers))
        content_type = headers.get("content-type", "")
        if error := error_of(body, content_type):
            what = "broke off its stream" if content_type.startswith(EVENTS) else "answered 200 with an error"
            raise ModelError(f"{self.label}: {self.identity['base_url']} {what}: {truncated(error, _SHOWN)}")
        request_id = headers.get("x-request-id") or headers.get("request-id")
        return reply_of(body, content_type, request_id)

    def quotas(self) -> tuple[Quota | None, Quota | None]:
        """Return the remaining requests and tokens from the headers of the response."""
        return self._quotas

    async def preflight(self) -> None:
        """Do nothing: the program chooses the model."""

    async def aclose(self) -> None:
        """Do nothing: a connection ends with its request."""


class Exchange:
    """A request that is sent, perhaps several times, until a response begins. It belongs to the loop of the server."""

    def __init__(self, request: PassedRequest, send: Send) -> None:
        self.loop = asyncio.get_running_loop()
        self._request = request
        self._send = send
        self.failure: Response | None = None
        """The last response, if it was an error."""
        self.has_answered = False
        """Whether a response has begun, so that the request must not be sent again."""
        self.is_complete = False
        """Whether the response is passed on but for its end."""

    async def fetch(self, label: str) -> tuple[bytes, Mapping[str, str]]:
        """Pass the response on, and return its body and headers. ModelError for any failure, and for none.

        ``label`` names the model in messages.
        """
        request = self._request
        try:
            async with self._sent() as response:
                if not response.is_success:
                    raise await self._refused(response, label)
                return await self._relay(response, label), response.headers
        except httpx2.HTTPError as error:
            reason = str(error) or type(error).__name__
            if self.has_answered:
                raise ModelError(f"{label}: the response of {request.base_url} was cut off: {reason}") from None
            raise ModelError(f"{label}: {request.base_url} cannot be reached ({reason})", transient=True) from None

    async def forward(self) -> Response | None:
        """Pass on a request that is not a model call, and any response to it; return an error if there is none."""
        try:
            async with self._sent() as response:
                await self._relay(response, self._request.url)
        except (httpx2.HTTPError, ModelError) as error:
            return _refusal(502, f"{self._request.base_url} cannot be reached ({error})")
        return None

    def _sent(self) -> Any:
        request = self._request
        # The response is read and recorded as it is, so it must not be compressed.
        headers = {name: value for name, value in request.headers.items() if name not in _NOT_PASSED}
        headers["accept-encoding"] = "identity"
        return _client().stream(request.method, request.url, content=request.body or None, headers=headers)

    async def _relay(self, response: httpx2.Response, label: str) -> bytes:
        self.has_answered = True
        headers = [(name.lower(), value) for name, value in response.headers.raw if name.lower() not in _NOT_RELAYED]
        await self._send({"type": "http.response.start", "status": response.status_code, "headers": headers})
        body = bytearray()
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > _MAX_BODY:
                raise ModelError(f"{label}: the response has more than {_MAX_BODY:,} bytes")
            await self._send({"type": "http.response.body", "body": chunk, "more_body": True})
        self.is_complete = True
        return bytes(body)

    async def _refused(self, response: httpx2.Response, label: str) -> ModelError:
        status, headers = response.status_code, response.headers
        if 300 <= status < 400:  # the program does not get it: it would send its key there
            remedy = f"correct {self._request.provider.upper()}_BASE_URL"
            return ModelError(f"{label}: {self._request.url} redirects the request; {remedy}", status=status)
        body = (await response.aread())[:_MAX_BODY]
        passed = {name: value for name, value in headers.items() if name.encode() not in _NOT_RELAYED}
        self.failure = Response(body, status, passed)
        content: Any = body.decode("utf-8", "replace")
        with contextlib.suppress(ValueError, RecursionError):
            content = json.loads(content)
        return self._request.address.refusal(status, content, retry_after(dict(headers)))


def _refusal(status: int, message: str) -> Response:
    """Return an error in the format of both providers."""
    return json_error(status, message, code=None, param=None)


# ---- requests

_PATH: Final = re.compile(r"(?:/(?!\.{1,2}(?:/|\Z))[\w.~:@%-]+)*/?", re.ASCII)
_MODEL_CALL: Final = re.compile(r"(?:/v1)?/(?:chat/completions|completions|responses|embeddings|messages)/?")
_FREE_POST: Final = re.compile(r"(?:/v1)?/(?:responses/input_tokens|messages/count_tokens|moderations)/?")
# Keys of a request with the conversation, which grows from request to request.
_CONVERSATION: Final = ("messages", "input", "prompt")
_ROLES: Final = ("system", "user", "assistant", "tool")
# Headers that concern the connection of the program only.
_NOT_PASSED: Final = ("host", "connection", "content-length", "accept-encoding", "transfer-encoding")


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
    def problem(self) -> tuple[int, str] | None:
        """Status and message if the request could cost something and not count; None if it can be passed on."""
        path = self.target.partition("?")[0]
        if self.method == "POST" and _MODEL_CALL.fullmatch(path):
            no_model = 'the body is no JSON object with the name of a model, as in {"model": "gpt-4o"}'
            return None if self.model_call else (400, no_model)
        if (_FREE_POST if self.method == "POST" else _PATH).fullmatch(path) and self.method in ("GET", "HEAD", "POST"):
            return None
        return 404, (
            f"{self.method} {path}: only chat/completions, completions, responses, embeddings, messages, and requests "
            "that cost nothing are passed on, so that all count against the budget; in an agent file, 'gateway: false' "
            "lets the program send others itself"
        )

    @functools.cached_property
    def model_call(self) -> dict[str, Any] | None:
        """The JSON body of a request to a model; None if it is something else, such as a list of models."""
        if self.method != "POST" or not _MODEL_CALL.fullmatch(self.target.partition("?")[0]):
            return None
        try:
            content = json.loads(self.body)
        except (ValueError, RecursionError):
            return None
        is_call = isinstance(content, dict) and isinstance(content.get("model"), str) and bool(content["model"].strip())
        return content if is_call else None

    @property
    def address(self) -> EndpointAddress:
        """The provider, the model, and the credential of the program, which share a rate limit."""
        headers, content = self.headers, self.model_call or {}
        secret = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ").strip()
        spec = ModelSpec(self.provider, printable(content["model"]))
        return EndpointAddress(spec, self.base_url, KEY_VARIABLES[self.provider][0], secret or None)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The turns of the conversation, after a message with everything else, such as tools and parameters."""
        content = self.model_call or {}
        rest = {name: value for name, value in content.items() if name not in _CONVERSATION}
        values = [content[name] for name in _CONVERSATION if content.get(name) is not None]
        turns = [turn for value in values for turn in (value if isinstance(value, list) else [value])]
        parameters = _json_text({"path": self.target, **rest})
        return (Message(role="system", content=parameters), *map(_message, turns))


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
    # The reply, and what the first or last event wraps.
    parts = (part for value in values for part in (value, value.get("message"), value.get("response")))
    for holder in (part for part in parts if isinstance(part, dict)):
        if isinstance(holder.get("usage"), dict):  # later events complete the counts of earlier ones
            usage |= {name: count for name, count in holder["usage"].items() if count is not None}
        model = model or str(holder.get("model") or "")
    return Reply(
        text=printable("".join(part for value in values for part in _texts(value))),
        usage=usage_of(usage),
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


def _objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
