"""The fixture ``loopback``, which all tests can use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Protocol

import pytest

from tests.loopback.records import Script
from tests.loopback.server import LoopbackServer


class Loopback(Protocol):
    """Start a loopback server that runs until the end of the test."""

    def __call__(
        self, script: Script | None = None, *, key: str | None = None, models: Sequence[str] | None = None
    ) -> LoopbackServer: ...


@pytest.fixture
def loopback() -> Iterator[Loopback]:
    """Return a function that starts servers. They stop after the test, which fails if a script raised an exception."""
    with ExitStack() as running:

        def start(
            script: Script | None = None, *, key: str | None = None, models: Sequence[str] | None = None
        ) -> LoopbackServer:
            return running.enter_context(LoopbackServer(script, key=key, models=models))

        yield start
