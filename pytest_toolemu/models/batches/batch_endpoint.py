"""What a provider's batches have in common: create one, follow it, and read its results."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from pytest_toolemu.core.messages import ModelRequest, Reply
from pytest_toolemu.models.capabilities import Body
from pytest_toolemu.models.endpoint import EndpointAddress, RemoteModel

if TYPE_CHECKING:
    import httpx2

    from pytest_toolemu.models.client_pool import ClientPool, Closable

T = TypeVar("T")
C = TypeVar("C", bound="Closable")

UNANSWERED: Final = 408
"""Status of a request that its batch did not answer because it expired or was canceled; it costs nothing."""

# Clocks of provider and client may differ by this number of seconds.
_CLOCK_SKEW: Final = 300.0
# Seconds within which a provider that received a batch has created it.
_CREATION: Final = 900.0


@dataclass(frozen=True)
class BatchAccess(Generic[C]):
    """How the batches of a model are reached.

    ``read_reply`` reads the response to a single request, ``errors`` is the base class of the SDK's errors, and
    ``seconds`` limits each request to the batch API.
    """

    address: EndpointAddress
    clients: ClientPool[C]
    read_reply: Callable[[httpx2.Response], Reply]
    errors: type[Exception]
    seconds: float

    async def send(self, request: Awaitable[Any], read: Callable[[Any], T]) -> T:
        """Return what ``read`` makes of the response to a request of the SDK. ModelError if the request fails."""
        return await self.address.send(request, read, self.errors, self.seconds)


@dataclass(frozen=True)
class BatchRequest:
    """One request of a batch; ``custom_id`` is the name by which its result is found."""

    custom_id: str
    body: Body


@dataclass(frozen=True)
class BatchProgress:
    """How far a batch is. ``problem`` says why the provider refused it as a whole; it has no results then."""

    ended: bool
    done: int
    problem: str = ""


@dataclass(frozen=True)
class CreatedBatch:
    """A batch in the provider's list: its ID, its creation in seconds since the epoch, and its number of requests."""

    batch: str
    created: float
    requests: int

    def may_be(self, requests: int, started: float, excluded: Collection[str]) -> bool:
        """Return whether this may be a batch that was sent at ``started``, in seconds since the epoch."""
        in_time = started - _CLOCK_SKEW <= self.created <= started + _CREATION + _CLOCK_SKEW
        return in_time and self.requests == requests and self.batch not in excluded


class BatchEndpoint(Protocol):
    """The batches of one model at one provider. Every method that sends a request raises ModelError if it fails."""

    @property
    def max_requests(self) -> int:
        """The largest number of requests in a batch."""
        ...

    @property
    def max_bytes(self) -> int:
        """The largest size of a batch in bytes."""
        ...

    async def upload(self, requests: Sequence[BatchRequest]) -> str:
        """Upload the requests, and return the ID of their file; empty if the provider gets them with the batch."""
        ...

    async def create(self, requests: Sequence[BatchRequest], upload: str) -> str:
        """Create a batch, and return its ID. The provider starts with it at once."""
        ...

    async def find(self, upload: str, requests: int, started: float, excluded: Collection[str]) -> list[str]:
        """Return the IDs of the batches that may be the one that was sent at ``started``, except the excluded ones."""
        ...

    async def progress(self, batch: str) -> BatchProgress:
        """Return how far a batch is."""
        ...

    async def results(self, batch: str) -> dict[str, Any]:
        """Return the results of a batch that has ended, by custom ID, in the provider's format."""
        ...

    def reply(self, result: Any) -> Reply:
        """Return the reply in a result; ModelError if the request was not answered."""
        ...


class BatchableModel(RemoteModel, Protocol):
    """A remote model whose requests can be sent in batches."""

    async def complete_with(self, request: ModelRequest, send: Callable[[Body], Awaitable[Reply]]) -> Reply:
        """Return the reply to a request whose bodies ``send`` sends."""
        ...

    def batches(self) -> BatchEndpoint:
        """Return the batches of this model."""
        ...


def results_by_id(text: str) -> dict[str, Any]:
    """Return the lines of a results file by custom ID; ValueError for a line that is not a result."""
    results = {}
    for line in text.split("\n"):  # JSON may contain the other line ends of Unicode
        if line.strip():
            result = json.loads(line)
            if not isinstance(result, dict) or not isinstance(result.get("custom_id"), str):
                raise ValueError(line)
            results[result["custom_id"]] = result
    return results


def present(value: str | None, name: str) -> str:
    """Return a text that the provider must send; ValueError if it is missing."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"no {name} in the response")
    return value
