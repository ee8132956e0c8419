"""One SDK client for every few requests in flight: the HTTP library's pool looks at each of its connections, and into
the socket of those at rest, whenever a request begins or ends. With 64 in one pool that is a fifth of all CPU.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, Protocol, TypeVar

import httpx2

SHARE: Final = 8
"""Requests in flight for which one pool of connections is enough."""


class Closable(Protocol):
    """An SDK's client."""

    async def close(self) -> None:
        """Close the connections."""
        ...


C = TypeVar("C", bound=Closable)


class Clients(Generic[C]):
    """As many as are needed, made by ``make``, which is given the ``verify`` of their HTTP clients: loading the
    certificates takes longer than all else.
    """

    def __init__(self, make: Callable[[Any], C]) -> None:
        self._make = make
        self._verify = httpx2.create_ssl_context()
        self._all = [make(self._verify)]
        self._in_flight: Counter[int] = Counter()

    @contextlib.contextmanager
    def one(self) -> Iterator[C]:
        """The one that has most to do of those with a place left: connections in use are there already."""
        index = next((index for index in range(len(self._all)) if self._in_flight[index] < SHARE), len(self._all))
        if index == len(self._all):
            self._all.append(self._make(self._verify))
        self._in_flight[index] += 1
        try:
            yield self._all[index]
        finally:
            self._in_flight[index] -= 1

    async def close(self) -> None:
        """Close all connections."""
        for client in self._all:
            await client.close()
