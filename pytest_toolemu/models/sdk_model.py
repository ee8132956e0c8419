"""What the models of both SDKs share: they build a body, send it below the SDK's typed methods, and read the reply."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import ssl
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

import httpx2

from pytest_toolemu.core.messages import ModelRequest, Reply
from pytest_toolemu.formats.redaction import redact_json, secrets
from pytest_toolemu.models.endpoint import (
    ROUTE_SECONDS,
    Body,
    Capabilities,
    EndpointAddress,
    Parameters,
    model_identity,
    read_nothing,
)
from pytest_toolemu.scheduling.adaptive_limit import Quota

T = TypeVar("T")


class ModelsRoute(Protocol):
    """The models route of an SDK's client."""

    def retrieve(self, name: str, /) -> Awaitable[object]:
        """Return one model."""


class SdkClient(Protocol):
    """The part of an SDK's client that both SDKs have."""

    @property
    def models(self) -> ModelsRoute:
        """The models route."""

    def post(self, path: str, *, cast_to: type[httpx2.Response], body: object) -> Awaitable[httpx2.Response]:
        """Send a body."""

    async def close(self) -> None:
        """Close the connections."""


C = TypeVar("C", bound=SdkClient)


class ClientPool(Generic[C]):
    """Clients created by ``make`` as needed; ``clock`` counts seconds.

    ``make`` gets the shared SSL context for the HTTP client's ``verify``.
    """

    def __init__(self, make: Callable[[Any], C], clock: Callable[[], float] = time.monotonic) -> None:
        self._make = make
        self._clock = clock
        self._pools = [_Pool(make(ssl_context()))]

    @contextlib.asynccontextmanager
    async def one(self) -> AsyncIterator[C]:
        """Lend the first client that has room for one more request."""
        pool = next((pool for pool in self._pools if pool.in_flight < REQUESTS_PER_CLIENT), None)
        if pool is None:
            pool = _Pool(self._make(ssl_context()))
            self._pools.append(pool)
        pool.in_flight += 1
        try:
            await self._drop_idle()
            yield pool.client
        finally:
            pool.in_flight -= 1
            pool.used = self._clock()

    async def close(self) -> None:
        """Close all connections."""
        await asyncio.gather(*(pool.client.close() for pool in self._pools), return_exceptions=True)

    async def _drop_idle(self) -> None:
        now = self._clock()
        while len(self._pools) > 1 and not self._pools[-1].in_flight and now - self._pools[-1].used > _IDLE_SECONDS:
            await self._pools.pop().client.close()


class SdkModel(ABC, Generic[C]):
    """A model behind the protocol of an SDK.

    ``completions`` is the path of its requests, ``errors`` the base class of the SDK's errors, and ``optional`` names
    the parameters that an endpoint may refuse.
    """

    completions: ClassVar[str]
    errors: ClassVar[type[Exception]]
    optional: ClassVar[frozenset[str]]

    def __init__(self, address: EndpointAddress, parameters: Parameters) -> None:
        self.address = address
        self._parameters = parameters
        self.identity = model_identity(address.spec, address.recorded_as or address.base_url, parameters)
        self._capabilities = Capabilities(self.optional)
        self._clients = ClientPool(self._client)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.address.spec}>"

    @abstractmethod
    def _client(self, verify: Any) -> C: ...

    @abstractmethod
    def _body(self, request: ModelRequest, refused: frozenset[str]) -> Body: ...

    @abstractmethod
    def read_reply(self, response: httpx2.Response) -> Reply:
        """Return the reply in a response. ValueError with the text of an unusable one."""

    @property
    def rate_limit_key(self) -> str:
        """Name of what shares a rate limit."""
        return self.address.rate_limit_key

    def quotas(self) -> tuple[Quota | None, Quota | None]:
        """Return the remaining requests and tokens from the headers received since the last call."""
        return self.address.quotas()

    async def complete(self, request: ModelRequest) -> Reply:
        """Send one request; send more only to learn what the endpoint does not accept."""
        return await self.complete_with(request, self._send)

    async def complete_with(self, request: ModelRequest, send: Callable[[Body], Awaitable[Reply]]) -> Reply:
        """Return the reply to a request whose bodies ``send`` sends."""
        return await self._capabilities.negotiate(request, self._redacted_body, send)

    def _redacted_body(self, request: ModelRequest, refused: frozenset[str]) -> Body:
        """Return the body without secrets of other providers; the endpoint knows its own key."""
        body: Body = redact_json(self._body(request, refused), secrets(self.address.secret))
        return body

    async def confirm(self, name: str) -> None:
        """Ask the URL for one model by name or alias."""
        await self.call(lambda client: client.models.retrieve(name), lambda _: None, ROUTE_SECONDS)

    async def probe(self) -> None:
        """Send an empty completion request, which every endpoint refuses at no cost."""
        await self.call(
            lambda client: client.post(self.completions, cast_to=httpx2.Response, body={}), read_nothing, ROUTE_SECONDS
        )

    async def aclose(self) -> None:
        """Close the connections."""
        await self._clients.close()

    async def call(
        self, request: Callable[[C], Awaitable[Any]], read: Callable[[Any], T], seconds: float = math.inf
    ) -> T:
        """Return what ``read`` makes of the response to a request of a client. ModelError if the request fails."""
        async with self._clients.one() as client:
            seconds = min(seconds, self._parameters.timeout)
            return await self.address.send(request(client), read, self.errors, seconds)

    async def _send(self, body: Body) -> Reply:
        # Below the SDK's typed method, which walks through request and reply type by type: a third of its CPU time.
        return await self.call(
            lambda client: client.post(self.completions, cast_to=httpx2.Response, body=body), self.read_reply
        )


REQUESTS_PER_CLIENT: Final = 8
"""Requests in flight that share one client."""

# Seconds after which an unused client is closed: its own pool drops idle connections only when it is used.
_IDLE_SECONDS: Final = 15.0


@functools.cache
def ssl_context() -> ssl.SSLContext:
    """Return the SSL context that all clients of this process share, because loading the certificates takes long."""
    return httpx2.create_ssl_context()


@dataclass
class _Pool(Generic[C]):
    client: C
    in_flight: int = 0
    used: float = 0.0
