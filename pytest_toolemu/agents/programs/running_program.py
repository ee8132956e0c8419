"""Run a program in a process group of its own and with bounded output, so that nothing of it stays behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

MAX_OUTPUT: Final = 1_000_000
"""Bytes that a program may write to standard output."""
MAX_LOG: Final = 20_000
"""Bytes of standard error that are kept: the last ones."""

# Seconds between SIGTERM and SIGKILL, and for the rest of the output after the program has ended.
_GRACE: Final = 0.5
_STDOUT: Final = 1
_STDERR: Final = 2


class RunningProgram(asyncio.SubprocessProtocol):
    """A program that runs. It counts as ended once it has exited, or has written too much to standard output."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.output = bytearray()
        self.has_too_much_output = False
        self._log = bytearray()
        self._dropped = 0
        self._ended: asyncio.Future[None] = loop.create_future()
        self._exited: asyncio.Future[None] = loop.create_future()
        self._closed: asyncio.Future[None] = loop.create_future()
        self._open_pipes = {_STDOUT, _STDERR}

    @property
    def status(self) -> int | None:
        """The exit status; the negative number of the signal that ended the program; None while it runs."""
        return self._transport.get_returncode()

    @property
    def log(self) -> str:
        """The end of standard error. Its first line says how much is missing."""
        text = self._log[-MAX_LOG:].decode(errors="replace")
        dropped = self._dropped + max(0, len(self._log) - MAX_LOG)
        return f"[{dropped:,} earlier bytes are not kept]\n{text}" if dropped else text

    async def wait(self) -> None:
        """Wait until the program has ended and its output is complete. End the processes that it left behind."""
        await asyncio.shield(self._ended)
        if self._exited.done():
            self._signal(signal.SIGKILL)  # a process in the background would keep the pipes open
            await asyncio.wait([self._closed], timeout=_GRACE)

    async def end(self) -> None:
        """End the program and all processes of its group: with SIGTERM, and half a second later with SIGKILL."""
        try:
            if not self._exited.done():
                self._signal(signal.SIGTERM)
                await asyncio.wait([self._exited], timeout=_GRACE)
        finally:  # also if the wait is canceled
            self._signal(signal.SIGKILL)
            await asyncio.wait([self._exited], timeout=_GRACE)
            self._transport.close()

    def send(self, text: bytes) -> None:
        """Write to the program's standard input, and close it. A program that does not read it loses nothing else."""
        stdin = cast(asyncio.WriteTransport, self._transport.get_pipe_transport(0))
        stdin.write(text)
        stdin.close()

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._transport.get_pid(), number)

    # ---- callbacks of asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.SubprocessTransport, transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Keep the beginning of standard output and the end of standard error."""
        if fd == _STDERR:
            self._log += data
            if len(self._log) > 2 * MAX_LOG:
                self._dropped += len(self._log) - MAX_LOG
                del self._log[:-MAX_LOG]
            return
        self.output += data[: MAX_OUTPUT + 1 - len(self.output)]
        if len(self.output) > MAX_OUTPUT:
            self.has_too_much_output = True
            _resolve(self._ended)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """Remember that a pipe is closed."""
        del exc
        self._open_pipes.discard(fd)
        if not self._open_pipes:
            _resolve(self._closed)

    def process_exited(self) -> None:
        """Remember that the program has exited. Processes that it started may still run."""
        _resolve(self._exited)
        _resolve(self._ended)


@contextlib.asynccontextmanager
async def running(
    words: Sequence[str], text: bytes, *, folder: Path, environ: Mapping[str, str]
) -> AsyncIterator[RunningProgram]:
    """Start a program with ``text`` as its standard input. At the end of the block, its process group is gone.

    Raise OSError if it cannot be started.
    """
    create: Any = asyncio.get_running_loop().subprocess_exec
    _, program = await create(RunningProgram, *words, cwd=folder, env=environ, start_new_session=True)
    try:
        program.send(text)
        yield program
    finally:
        await program.end()


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
