"""One SDK client for every few requests in flight: the HTTP library's pool looks at each of its connections, and into
the socket of those at rest, whenever a request begins or ends. With 64 in one pool that is a fifth of all CPU.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

import httpx2

SHARE: Final = 8
"""Requests in flight for which one pool of connections is enough."""

# A pool that nobody has used for so long, in seconds, is closed: by itself it only drops connections when it is used.
_IDLE: Final = 15.0


class Closable(Protocol):
    """An SDK's client."""

    async def close(self) -> None:
        """Close the connections."""
        ...


C = TypeVar("C", bound=Closable)


@dataclass
class _Pool(Generic[C]):
    client: C
    in_flight: int = 0
    used: float = 0.0


class ClientPool(Generic[C]):
    """As many as are needed, made by ``make``, which is given the ``verify`` of their HTTP clients: loading the
    certificates takes longer than all else. ``clock`` counts seconds.
    """

    def __init__(self, make: Callable[[Any], C], clock: Callable[[], float] = time.monotonic) -> None:
        self._make = make
        self._clock = clock
        self._verify = httpx2.create_ssl_context()
        self._pools = [_Pool(make(self._verify))]

    @contextlib.asynccontextmanager
    async def one(self) -> AsyncIterator[C]:
        """The first that has a place left, for one request."""
        pool = next((pool for pool in self._pools if pool.in_flight < SHARE), None)
        if pool is None:
            pool = _Pool(self._make(self._verify))
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
        while len(self._pools) > 1 and not self._pools[-1].in_flight and now - self._pools[-1].used > _IDLE:
            await self._pools.pop().client.close()
