"""Spread requests over several SDK clients, each with a small connection pool.

The HTTP library's pool checks all of its connections, and the sockets of the idle ones, whenever a request begins or
ends. With 64 connections in one pool, that takes a fifth of the CPU time.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ssl
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

import httpx2

REQUESTS_PER_CLIENT: Final = 8
"""Requests in flight that share one client."""

# Seconds after which an unused client is closed: its own pool drops idle connections only when it is used.
_IDLE_SECONDS: Final = 15.0


@functools.cache
def ssl_context() -> ssl.SSLContext:
    """Return the SSL context that all clients of this process share, because loading the certificates takes long."""
    return httpx2.create_ssl_context()


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
