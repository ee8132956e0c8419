"""What the models of both SDKs share: they build a body, send it below the SDK's typed methods, and read the reply."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import ssl
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, ClassVar, Final, TypeVar

import httpx2

from pytest_toolemu.core.messages import ModelRequest, Reply
from pytest_toolemu.errors import ModelError, UsageError
from pytest_toolemu.formats.redaction import redact_json, secrets
from pytest_toolemu.formats.yaml_document import closest
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

# Statuses of an endpoint that cannot be used at all, and of a missing route or a response that is not JSON.
_UNUSABLE: Final = (None, 401, 407)
_NO_ROUTE: Final = (200, 404, 405, 501)


class ClientPool:
    """Clients of an SDK, created by ``make`` as needed, which gets the shared SSL context for their ``verify``."""

    def __init__(self, make: Callable[[Any], Any]) -> None:
        self._make = make
        self._in_flight: Counter[Any] = Counter({make(ssl_context()): 0})

    @contextlib.asynccontextmanager
    async def one(self) -> AsyncIterator[Any]:
        """Lend the first client that has room for one more request."""
        free = (client for client, number in self._in_flight.items() if number < REQUESTS_PER_CLIENT)
        client = next(free, None) or self._make(ssl_context())
        self._in_flight[client] += 1
        try:
            yield client
        finally:
            self._in_flight[client] -= 1

    async def close(self) -> None:
        """Close all connections."""
        await asyncio.gather(*(client.close() for client in self._in_flight), return_exceptions=True)


class SdkModel(ABC):
    """A model behind the protocol of an SDK.

    ``completions`` is the path of its requests, ``errors`` the base class of the SDK's errors, ``optional`` names the
    parameters that an endpoint may refuse, and ``listing`` has the options of a request for the list of models.
    """

    completions: ClassVar[str]
    errors: ClassVar[type[Exception]]
    optional: ClassVar[frozenset[str]]
    listing: ClassVar[dict[str, int]] = {}

    def __init__(self, address: EndpointAddress, parameters: Parameters) -> None:
        self.address = address
        self._parameters = parameters
        self.identity = model_identity(address.spec, address.recorded_as or address.base_url, parameters)
        self._capabilities = Capabilities(self.optional)
        self._clients = ClientPool(self._client)

    @abstractmethod
    def _client(self, verify: Any) -> Any: ...

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

        def redacted(request: ModelRequest, refused: frozenset[str]) -> Any:
            # Secrets of other providers are removed; the endpoint knows its own key.
            return redact_json(self._body(request, refused), secrets(self.address.secret))

        return await self._capabilities.negotiate(request, redacted, send)

    async def served(self) -> list[str]:
        """List the models at the URL."""
        return await self.call(
            lambda client: client.models.list(**self.listing),
            lambda page: [model.id for model in page.data or ()],
            ROUTE_SECONDS,
        )

    async def preflight(self) -> None:
        """Check that the endpoint answers, accepts the key, and serves the model; UsageError if not.

        This costs no token, except at an endpoint that lists no models. An endpoint that cannot be checked (no
        permission, busy) is accepted; its first request will show.
        """
        name, served = self.address.spec.name, []
        try:
            served = await self.served()
            # Aliases and fine-tuned models are served without being listed.
            if served and name not in served:
                await self.call(lambda client: client.models.retrieve(name), lambda _: None, ROUTE_SECONDS)
        except ModelError as error:
            if error.status in _UNUSABLE:
                raise UsageError(str(error)) from None
            if error.status == 404 and served:
                raise UsageError(
                    f"{self.address.base_url} does not serve a model {name!r}{closest(name, served)}"
                ) from None
            if error.status in _NO_ROUTE:
                await self._check_route()

    async def _check_route(self) -> None:
        """Distinguish an endpoint that lists no models from a URL with a wrong path, which has no completions either.

        The request is valid, and asks for one token: a small server may not survive an empty one.
        """
        message = {"role": "user", "content": "Hello"}
        body = {"model": self.address.spec.name, "messages": [message], "max_tokens": 1}
        try:
            await self.call(
                lambda client: client.post(self.completions, cast_to=httpx2.Response, body=body), read_nothing
            )
        except ModelError as error:
            if error.status in _UNUSABLE:
                raise UsageError(str(error)) from None
            if error.status in _NO_ROUTE:
                raise UsageError(
                    f"{self.address.spec.label}: {self.address.base_url} has no API for models at this path; correct "
                    "the base URL, which usually ends in /v1 (Anthropic: which has no path)"
                ) from None

    async def aclose(self) -> None:
        """Close the connections."""
        await self._clients.close()

    async def call(
        self, request: Callable[[Any], Awaitable[Any]], read: Callable[[Any], T], seconds: float = math.inf
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


@functools.cache
def ssl_context() -> ssl.SSLContext:
    """Return the SSL context that all clients of this process share, because loading the certificates takes long."""
    return httpx2.create_ssl_context()
