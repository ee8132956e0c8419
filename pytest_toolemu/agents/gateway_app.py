"""Passes the requests of one agent's program on to its providers, as calls of any other model of the session."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urljoin

import httpx2
from starlette.requests import Request
from starlette.responses import Response

from pytest_toolemu.agents.local_server import body_of, json_error
from pytest_toolemu.agents.model_gateway import (
    EVENTS,
    PATHS,
    PassedCall,
    PassedRequest,
    Provider,
    SessionRules,
    error_of,
    reply_of,
    wire_of,
)
from pytest_toolemu.core.messages import ModelRequest, Reply
from pytest_toolemu.core.toolbox import Toolbox
from pytest_toolemu.errors import ModelError, NotRunError, ReplayMissError
from pytest_toolemu.formats.truncation import truncated
from pytest_toolemu.models.endpoint import NO_CREDIT, quotas, retry_after
from pytest_toolemu.models.structured_output import ask
from pytest_toolemu.scheduling.adaptive_limit import Quota

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

_TIMEOUT: Final = 600.0
_SHOWN: Final = 600
_MAX_BODY: Final = 64 * 1024 * 1024
_REDIRECTS: Final = (301, 302, 303, 307, 308)
_NOT_PASSED: Final = (b"connection", b"content-length", b"transfer-encoding", b"keep-alive", b"content-encoding")
# Statuses that say that an endpoint cannot be used, as opposed to a request of the agent that is not valid.
_UNUSABLE: Final = (None, 401, 402, 403, 408, 429)


@functools.cache  # on first use, since it reads the proxies in the environment
def _client() -> httpx2.AsyncClient:
    """Return the client of the server's loop. It follows no redirect: a request contains the key of the program."""
    return httpx2.AsyncClient(timeout=_TIMEOUT, limits=httpx2.Limits(max_connections=None))


class CaseGateway:
    """Answers the requests of one agent, as an ASGI application. ``base_urls`` are those of the providers."""

    def __init__(self, toolbox: Toolbox, rules: SessionRules, base_urls: Mapping[Provider, str]) -> None:
        self._home = toolbox.settle()
        self._toolbox = toolbox
        self._rules = rules
        self._base_urls = base_urls
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
        if call := request.model_call:
            try:
                response = await asyncio.wrap_future(self._home.submit(self._ask, call, exchange))
            except (asyncio.CancelledError, RuntimeError):  # the loop of the case may be closed
                response = _refusal(503, "the case has ended")
        elif self._rules.replays_only:
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
        provider = next((each for each, path in PATHS.items() if f"/{rest}".startswith(path)), None)
        if provider is None:
            return _refusal(404, "no provider is served at this address")
        body = await body_of(received, _MAX_BODY)
        if body is None:
            return _refusal(413, f"the body has more than {_MAX_BODY:,} bytes")
        query = received.scope["query_string"].decode("latin-1")
        target = f"/{rest}".removeprefix(PATHS[provider]) + (f"?{query}" if query else "")
        url = self._base_urls[provider]
        return PassedRequest(received.method, provider, url, target, dict(received.headers), body)

    async def _ask(self, call: PassedCall, exchange: Exchange) -> Response:
        """Ask the model on the loop of the case; return the response unless one was passed on.

        Failures that are not the agent's end its turn.
        """
        task = asyncio.current_task()
        if task is None or self._has_ended:
            return _refusal(503, "the case has ended")
        self._calls.add(task)
        toolbox = self._toolbox
        try:
            model = self._rules.limit(PassedModel(call, exchange))
            reply = await ask(model, "agent", toolbox.trajectory.ledger, call.messages)
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

    def __init__(self, call: PassedCall, exchange: Exchange) -> None:
        self._exchange = exchange
        self._quotas: tuple[Quota | None, Quota | None] = (None, None)
        address = call.address
        self.rate_limit_key = address.rate_limit_key
        self.label = address.spec.label
        self.identity: dict[str, Any] = {
            "provider": address.spec.provider,
            "name": address.spec.name,
            "base_url": address.base_url,
        }

    async def complete(self, request: ModelRequest) -> Reply:
        """Send the program's request; ModelError if the provider fails."""
        del request  # it was derived from the program's request, which is sent as it is
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

    async def served(self) -> list[str]:
        """Return no names: the program chooses the model."""
        return []

    async def confirm(self, name: str) -> None:
        """Accept any name."""

    async def probe(self) -> None:
        """Do nothing: the program's requests show whether there is such a route."""

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
        headers = {**request.passed_headers, "accept-encoding": "identity"}
        return _client().stream(request.method, request.url, content=request.body or None, headers=headers)

    async def _relay(self, response: httpx2.Response, label: str) -> bytes:
        self.has_answered = True
        headers = [(name.lower(), value) for name, value in response.headers.raw if name.lower() not in _NOT_PASSED]
        await self._send({"type": "http.response.start", "status": response.status_code, "headers": headers})
        body = bytearray()
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > _MAX_BODY:
                raise ModelError(f"{label}: the response has more than {_MAX_BODY:,} bytes")
            await self._send({"type": "http.response.body", "body": chunk, "more_body": True})
        self.is_complete = True
        return bytes(body)

    def _redirection(self, location: str) -> str:
        """Say where a redirect leads. The program does not get it: it would send its key there."""
        request = self._request
        url, variable = urljoin(request.url, location), f"{request.provider.upper()}_BASE_URL"
        if url.endswith(request.target):
            base_url = url.removesuffix(request.target)
            return f"{request.base_url} redirects to {base_url}; set {variable} to that address"
        return f"{request.url} redirects to {truncated(url.partition('?')[0], _SHOWN)}; correct {variable}"

    async def _refused(self, response: httpx2.Response, label: str) -> ModelError:
        status, headers = response.status_code, response.headers
        if location := headers.get("location") if status in _REDIRECTS else None:
            return ModelError(f"{label}: {self._redirection(location)}", status=status)
        body = (await response.aread())[:_MAX_BODY]
        passed = {name: value for name, value in headers.items() if name.encode() not in _NOT_PASSED}
        self.failure = Response(body, status, passed)
        text = body.decode("utf-8", "replace")
        shown = truncated(" ".join(text.split()), _SHOWN)
        has_credit = not any(code in text for code in NO_CREDIT)
        return ModelError(
            f"{label}: {self._request.base_url} answered {status}: {shown}",
            status=status,
            transient=(status in (408, 409, 429) or status >= 500) and has_credit,
            retry_after=retry_after(dict(headers)),
        )


def _refusal(status: int, message: str) -> Response:
    """Return an error in the format of both providers."""
    return json_error(status, message, code=None, param=None)
