"""What the models of both SDKs share: they build a body, send it below the SDK's typed methods, and read the reply."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import httpx2

from pytest_toolemu.core.messages import ModelRequest, Reply
from pytest_toolemu.formats.redaction import redact_json, secrets
from pytest_toolemu.models.batches.batch_endpoint import BatchAccess
from pytest_toolemu.models.capabilities import Body, Capabilities
from pytest_toolemu.models.client_pool import ClientPool
from pytest_toolemu.models.endpoint import ROUTE_SECONDS, EndpointAddress, read_nothing
from pytest_toolemu.models.spec import Parameters, model_identity
from pytest_toolemu.scheduling.adaptive_limit import Quota

T = TypeVar("T")


class ModelsRoute(Protocol):
    """The models route of an SDK's client."""

    def retrieve(self, name: str, /) -> Awaitable[object]:
        """Return one model."""
        ...


class SdkClient(Protocol):
    """The part of an SDK's client that both SDKs have."""

    @property
    def models(self) -> ModelsRoute:
        """The models route."""
        ...

    def post(self, path: str, *, cast_to: type[httpx2.Response], body: object) -> Awaitable[httpx2.Response]:
        """Send a body."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


C = TypeVar("C", bound=SdkClient)


class SdkModel(ABC, Generic[C]):
    """A model behind the protocol of an SDK.

    ``completions`` is the path of its requests, ``errors`` the base class of the SDK's errors, and ``optional`` names
    the parameters that an endpoint may refuse.
    """

    completions: ClassVar[str]
    errors: ClassVar[type[Exception]]
    optional: ClassVar[frozenset[str]]

    def __init__(self, address: EndpointAddress, parameters: Parameters) -> None:
        self._address = address
        self._parameters = parameters
        self.identity = model_identity(address.spec, address.recorded_as or address.base_url, parameters)
        self._capabilities = Capabilities(self.optional)
        self._clients = ClientPool(self._client)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._address.spec}>"

    @abstractmethod
    def _client(self, verify: Any) -> C: ...

    @abstractmethod
    def _body(self, request: ModelRequest, refused: frozenset[str]) -> Body: ...

    @abstractmethod
    def _reply(self, response: httpx2.Response) -> Reply: ...

    @property
    def rate_limit_key(self) -> str:
        """Name of what shares a rate limit."""
        return self._address.rate_limit_key

    def quotas(self) -> tuple[Quota | None, Quota | None]:
        """Return the remaining requests and tokens from the headers received since the last call."""
        return self._address.quotas()

    async def complete(self, request: ModelRequest) -> Reply:
        """Send one request; send more only to learn what the endpoint does not accept."""
        return await self.complete_with(request, self._send)

    async def complete_with(self, request: ModelRequest, send: Callable[[Body], Awaitable[Reply]]) -> Reply:
        """Return the reply to a request whose bodies ``send`` sends."""
        return await self._capabilities.negotiate(request, self._redacted_body, send)

    def _redacted_body(self, request: ModelRequest, refused: frozenset[str]) -> Body:
        """Return the body without secrets of other providers; the endpoint knows its own key."""
        body: Body = redact_json(self._body(request, refused), secrets(self._address.secret))
        return body

    async def confirm(self, name: str) -> None:
        """Ask the URL for one model by name or alias."""
        async with self._clients.one() as client:
            await self._route(client.models.retrieve(name), lambda _: None)

    async def probe(self) -> None:
        """Send an empty completion request, which every endpoint refuses at no cost."""
        async with self._clients.one() as client:
            await self._route(client.post(self.completions, cast_to=httpx2.Response, body={}), read_nothing)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._clients.close()

    def _batch_access(self) -> BatchAccess[C]:
        seconds = self._parameters.timeout
        return BatchAccess(self._address, self._clients, self._reply, self.errors, seconds)

    async def _send(self, body: Body) -> Reply:
        # Below the SDK's typed method, which walks through request and reply type by type: a third of its CPU time.
        async with self._clients.one() as client:
            request = client.post(self.completions, cast_to=httpx2.Response, body=body)
            return await self._address.send(request, self._reply, self.errors, self._parameters.timeout)

    async def _route(self, request: Awaitable[Any], read: Callable[[Any], T]) -> T:
        return await self._address.send(request, read, self.errors, min(self._parameters.timeout, ROUTE_SECONDS))
