"""Pools of connections: as many as the requests in flight need, and all of them closed."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from pytest_toolemu.models.clients import SHARE, Clients


class Client:
    def __init__(self, verify: Any) -> None:
        self.verify = verify
        self.closed = False

    async def close(self) -> None:
        self.closed = True


def test_a_few_requests_share_a_pool_and_more_have_another_that_is_used_again() -> None:
    clients = Clients(Client)
    with contextlib.ExitStack() as first:
        lent = [first.enter_context(clients.one()) for _ in range(SHARE + 1)]
        assert [lent.index(client) for client in lent] == [0] * SHARE + [SHARE]
        assert lent[0].verify is lent[SHARE].verify
    with contextlib.ExitStack() as again:
        assert [again.enter_context(clients.one()) for _ in range(SHARE + 1)] == lent
    asyncio.run(clients.close())
    assert all(client.closed for client in lent)


def test_a_request_that_fails_gives_its_place_back() -> None:
    clients = Clients(Client)
    with clients.one() as whole:
        pass
    for _ in range(SHARE):
        with contextlib.suppress(OSError), clients.one():
            raise OSError
    with clients.one() as after:
        assert after is whole
