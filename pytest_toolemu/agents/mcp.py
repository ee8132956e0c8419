"""Serve the emulated tools of a case over the Model Context Protocol (MCP), for agents in other processes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from pytest_toolemu.agents.adapters import AnyToolbox, awaitable
from pytest_toolemu.core import case_timer
from pytest_toolemu.core.toolbox import Toolbox
from pytest_toolemu.errors import UsageError
from pytest_toolemu.models.sdk_versions import require_sdk

if TYPE_CHECKING:
    from pytest_toolemu.agents.local_server import LocalServer, ServedTools


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
    server = started_server()
    from pytest_toolemu.agents.local_server import ServedTools

    return ServedTools(awaitable(toolbox), server)


@contextlib.asynccontextmanager
async def served_at(port: int, path: str, toolbox: Toolbox, trace: str = "") -> AsyncIterator[str]:
    """Serve the tools of a case at ``http://127.0.0.1:PORT/PATH/mcp``, as soon as no other case does.

    For services that cannot take an address with each request. Cases with a ``trace``, the ID in the ``traceparent`` of
    their requests, share the port within a process. Otherwise, the port itself is the lock, also between processes. The
    time limit of the case does not run while it waits. Raise UsageError if the port is still taken after an hour.
    """
    server, tools = started_server(), served(toolbox)
    with case_timer.paused():
        opened = await asyncio.to_thread(server.loop.run, server.open_port(port, path, trace, tools))
    try:
        async with tools:
            yield f"http://127.0.0.1:{port}/{path}/mcp"
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
