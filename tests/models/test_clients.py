"""Connection pools: as many as the requests in flight need, and all of them are closed."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from pytest_toolemu.models.sdk_model import REQUESTS_PER_CLIENT, ClientPool


class Client:
    def __init__(self, verify: Any) -> None:
        self.verify = verify
        self.closed = False

    async def close(self) -> None:
        self.closed = True
        if self.verify is None:
            raise OSError


async def clients_for(clients: ClientPool, number: int) -> list[Client]:
    """Return the clients that serve this many requests at once."""
    async with contextlib.AsyncExitStack() as all_at_once:
        return [await all_at_once.enter_async_context(clients.one()) for _ in range(number)]


def test_eight_requests_share_a_client_and_further_ones_get_another() -> None:
    async def story() -> None:
        clients: ClientPool = ClientPool(Client)
        first = await clients_for(clients, REQUESTS_PER_CLIENT + 1)
        assert [first.index(client) for client in first] == [0] * REQUESTS_PER_CLIENT + [REQUESTS_PER_CLIENT]
        assert first[0].verify is first[REQUESTS_PER_CLIENT].verify
        assert await clients_for(clients, REQUESTS_PER_CLIENT + 1) == first
        await clients.close()
        assert all(client.closed for client in first)

    asyncio.run(story())


def test_a_failed_request_frees_its_connection() -> None:
    async def story() -> None:
        clients: ClientPool = ClientPool(Client)
        (only,) = await clients_for(clients, 1)
        for _ in range(REQUESTS_PER_CLIENT):
            with contextlib.suppress(OSError):
                async with clients.one():
                    raise OSError
        assert await clients_for(clients, 1) == [only]

    asyncio.run(story())


def test_a_client_that_fails_to_close_does_not_keep_others_open() -> None:
    async def story() -> None:
        clients: ClientPool = ClientPool(Client)
        first = await clients_for(clients, REQUESTS_PER_CLIENT + 1)
        first[0].verify = None
        await clients.close()
        assert all(client.closed for client in first)

    asyncio.run(story())
