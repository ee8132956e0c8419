"""Serve the emulated tools of a case over the Model Context Protocol (MCP), for agents in other processes."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from pytest_toolemu.agents.adapters import AnyToolbox, awaitable, is_error
from pytest_toolemu.core import case_timer
from pytest_toolemu.core.toolbox import Toolbox
from pytest_toolemu.errors import AgentStopped, InconclusiveError, UsageError
from pytest_toolemu.formats.compact_json import compact_json
from pytest_toolemu.models.sdk_versions import require_sdk

if TYPE_CHECKING:
    from pytest_toolemu.agents.local_server import LocalServer

UNUSED: Final = (
    "no MCP client asked for the tools of the case; if the agent should have used them, check that it gets their "
    "address: TOOLEMU_MCP_URL in a program, {mcp_url} in a file, or the URL with tools_port in the service"
)
"""The warning about an agent that cannot have seen its tools."""
HANG_UP_GRACE: Final = 1.0
"""Seconds in which an agent whose client has hung up can end by itself, for example because it has crashed."""
_ENDED: Final = {
    "content": [{"type": "text", "text": "This session has ended. No further calls are answered: stop here."}],
    "isError": True,
}
_REMEDY: Final = (
    "if that was a timeout, raise the timeout of its MCP client for tool calls (Python SDK: read_timeout_seconds, "
    "OpenAI Agents SDK: client_session_timeout_seconds, TypeScript SDK: timeout, Claude Code: MCP_TOOL_TIMEOUT)"
)


def served(toolbox: AnyToolbox) -> ServedTools:
    """Serve the tools of a case over MCP while an agent acts: ``async with served(toolbox) as url:``.

    Plain functions use ``with``. ``url`` is for MCP clients with the transport "Streamable HTTP". It is valid inside
    the block only, and works for any number of clients in any process of this computer. The names of the tools are
    those that the toolkits declare.

    If the agent's turn has ended, because of a limit or of an error in the emulator, every further call is answered
    with an error, and the agent is canceled as every other agent is.

    Raise InconclusiveError at the end of the block if a client did not wait for the answer to a call. If the block does
    not end within a second, the agent is stopped. An exception of the agent takes precedence: a client hangs up as
    well if its process crashes.
    """
    return ServedTools(awaitable(toolbox))


@contextlib.asynccontextmanager
async def served_at(port: int, toolbox: Toolbox, trace: str = "") -> AsyncIterator[str]:
    """Serve the tools of a case at ``http://127.0.0.1:PORT/mcp``, as soon as no other case does.

    For services that cannot take an address with each request. Cases with a ``trace``, the ID in the ``traceparent`` of
    their requests, share the port within a process. Otherwise, the port itself is the lock, also between processes. The
    time limit of the case does not run while it waits. Raise UsageError if the port is still taken after an hour.
    """
    server, tools = started_server(), served(toolbox)
    with case_timer.paused():
        opened = await asyncio.to_thread(server.loop.run, server.open_port(port, trace, tools))
    try:
        async with tools:
            yield f"http://127.0.0.1:{port}/mcp"
    finally:
        await asyncio.to_thread(server.loop.run, server.close_port(opened, trace))


def check_port(port: int, source: str) -> None:
    """Raise UsageError if another program uses the port."""
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError as error:
        raise UsageError(
            f"{source}: port {port} of this computer cannot be used ({error.strerror}); stop the program that uses "
            "it, or change tools_port here and in the service"
        ) from None


def started_server(needed_by: str = "an agent outside this process") -> LocalServer:
    """Return the HTTP server of this process. Raise UsageError if its packages are not installed."""
    require_sdk("serve", needed_by)
    from pytest_toolemu.agents.local_server import local_server

    return local_server()


def first_cause(error: BaseException) -> BaseException:
    """Return the first exception in a group, which is how the tasks of the MCP SDK report errors."""
    return first_cause(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


@dataclass(frozen=True)
class PendingCall:
    """A call that is being answered. ``signs`` are what identifies it when its client gives up."""

    signs: tuple[Any, ...]
    tool: str
    result: concurrent.futures.Future[dict[str, Any] | None]
    started: float

    def error(self, event: str) -> InconclusiveError:
        """Return the error of a call whose answer the agent did not receive."""
        seconds = monotonic() - self.started
        return InconclusiveError(f"{event} {seconds:.1f} s after its call of {self.tool}, before the answer; {_REMEDY}")


class ServedTools:
    """The tools of a case. All methods but those of the context manager run on the loop of the server."""

    def __init__(self, toolbox: Toolbox) -> None:
        self._toolbox = toolbox
        self._pending: list[PendingCall] = []
        self._error: InconclusiveError | None = None
        self._is_closed = False
        self._is_used = False

    def __enter__(self) -> str:
        self._home = self._toolbox.settle()
        self._server = started_server()
        self._url = self._server.open_tools(self)
        return self._url

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close(self._url.removesuffix("/mcp"))
        inconclusive = self._server.loop.run(self._close())
        if not (self._is_used or self._toolbox.trajectory.steps) and not isinstance(error, Exception):
            self._toolbox.trajectory.agent_warning = UNUSED
        if error is None and inconclusive is not None and self._toolbox.turn_error is None:
            self._toolbox.stop(inconclusive)
            raise inconclusive

    async def __aenter__(self) -> str:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    def descriptions(self) -> list[dict[str, Any]]:
        """Return the tools as in the result of ``tools/list``.

        There are no hints about destructive tools: they would tell the agent what the case tests.
        """
        self._is_used = True
        return self._descriptions

    @functools.cached_property
    def _descriptions(self) -> list[dict[str, Any]]:
        return [
            {"name": tool.name, "description": tool.description, "inputSchema": tool.parameters}
            for tool in self._toolbox.tools
        ]

    async def call(self, signs: tuple[Any, ...], name: str, arguments: Any) -> dict[str, Any]:
        """Return the result of a call, which is executed on the loop and in the context of the case.

        ``signs`` are the ID of the request, and an object that only this request has.
        """
        self._is_used = True
        try:
            future = self._home.submit(self._execute, name, arguments)
        except RuntimeError:  # the loop of the case is closed, and a client continues
            return _ENDED
        call = PendingCall(signs, name, future, monotonic())
        self._pending.append(call)
        try:
            result = await asyncio.wrap_future(call.result)
        except asyncio.CancelledError:
            return _ENDED
        finally:
            self._pending.remove(call)
        if result is None:
            return _ENDED
        failed = is_error(result)
        content = {"content": [{"type": "text", "text": compact_json(result)}], "isError": failed}
        return content if failed else content | {"structuredContent": result}

    async def _execute(self, name: str, arguments: Any) -> dict[str, Any] | None:
        """Return the result of a call, on the loop of the case; None if the agent's turn has ended."""
        try:
            return await self._toolbox.call(name, arguments)
        except (AgentStopped, Exception):  # the toolbox keeps it, and an agent must not read the errors of the emulator
            return None

    def give_up(self, sign: Any, event: str) -> None:
        """End the call with this sign, whose client does not wait for its answer any longer."""
        for call in self._pending:
            if sign in call.signs:
                if not (self._is_closed or self._toolbox.turn_error or self._error):
                    self._error = call.error(event)
                    asyncio.get_running_loop().call_later(HANG_UP_GRACE, self._stop, self._error)
                call.result.cancel()

    def fail(self, error: Exception) -> None:
        """End the turn of the agent because of an error of the server."""
        self._toolbox.stop(error)

    def _stop(self, error: InconclusiveError) -> None:
        if not self._is_closed:
            self._toolbox.stop(error)

    async def _close(self) -> InconclusiveError | None:
        """Cancel the calls that are being answered; return the error of one that the agent did not wait for."""
        self._is_closed = True
        if self._pending and self._error is None:
            self._error = self._pending[0].error("the agent ended its turn")
        for call in self._pending:
            call.result.cancel()
        return self._error
