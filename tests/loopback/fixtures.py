"""The fixture ``loopback``, for every test of the project."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Protocol

import pytest

from tests.loopback.records import Script
from tests.loopback.server import LoopbackServer


class Loopback(Protocol):
    """Starts a loopback server that lives as long as the test."""

    def __call__(
        self, script: Script | None = None, *, key: str | None = None, models: Sequence[str] | None = None
    ) -> LoopbackServer: ...


@pytest.fixture
def loopback() -> Iterator[Loopback]:
    """Start servers; each is stopped with the test, which fails if a script raised."""
    with ExitStack() as running:

        def start(
            script: Script | None = None, *, key: str | None = None, models: Sequence[str] | None = None
        ) -> LoopbackServer:
            return running.enter_context(LoopbackServer(script, key=key, models=models))

        yield start
