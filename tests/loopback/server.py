"""The loopback server: both providers' endpoints on one local port, served by a thread with its own event loop."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from tests.loopback import http11
from tests.loopback.batches import LoopbackBatches
from tests.loopback.log import Log
from tests.loopback.records import Request, Script
from tests.loopback.scripts import conforming
from tests.loopback.service import Pages, Service

_BACKLOG: Final = 512


class ScriptError(Exception):
    """A script raised an exception, or had no more answers."""


class LoopbackServer:
    """A provider on ``url`` (OpenAI's clients want ``url + "/v1"``), running within its ``with`` block.

    Requests with a key other than ``key`` get 401; those for a model not in ``models`` get 404. Without ``models``, every
    model exists.
    ``pages`` are further responses, by path.
    At the end of the block, exceptions of the script are raised as ScriptError.
    """

    def __init__(
        self,
        script: Script | None = None,
        *,
        key: str | None = None,
        models: Sequence[str] | None = None,
        port: int = 0,
        pages: Pages | None = None,
    ) -> None:
        self.port = port
        self._log = Log()
        self._service = Service(script or conforming(), key, models, self._log, pages)
        self._up = threading.Event()
        self._failure: OSError | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="loopback", daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def requests(self) -> tuple[Request, ...]:
        """All requests so far in order of arrival, including failed ones."""
        return self._log.requests

    @property
    def batches(self) -> LoopbackBatches:
        """The batches of this server, whose fields say how they end."""
        return self._service.batches

    @property
    def errors(self) -> tuple[str, ...]:
        """The exceptions of the script, as text."""
        return self._log.errors

    @property
    def peak(self) -> int:
        """The largest number of requests that waited for an answer at one time."""
        return self._log.peak

    def __enter__(self) -> Self:
        self._thread.start()
        self._up.wait()
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        if self.errors and error is None:
            raise ScriptError("; ".join(self.errors))

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        try:
            server = await asyncio.start_server(self._accept, "127.0.0.1", self.port, backlog=_BACKLOG)
        except OSError as failure:
            self._failure = failure
            self._up.set()
            return
        self.port = server.sockets[0].getsockname()[1]
        self._up.set()
        await self._stop.wait()
        server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.create_task(self._converse(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while incoming := await http11.read(reader):
                # No SDK sends a request before the previous answer, so only the client's departure ends this read.
                response = await self._service.respond(incoming, functools.partial(reader.read, 1))
                if response is None:
                    break
                writer.write(response.encode())
                await writer.drain()
                if not response.whole:
                    break
        except ConnectionError:
            pass  # the client may leave at any time
        finally:
            writer.close()
