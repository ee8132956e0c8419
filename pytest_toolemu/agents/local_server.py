"""The HTTP server of this process for agents in other processes: Starlette on Uvicorn, in a daemon thread.

What is served to one case has a random path: its tools over MCP, a gateway to models, a capture of requests. Tools can
also be served at a port that a service knows.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import errno
import functools
import json
import secrets
import socket
import threading
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import CallToolResult, ListToolsResult
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pytest_toolemu.agents.adapters import is_error
from pytest_toolemu.agents.adapters.guard import SERVER
from pytest_toolemu.core.toolbox import Toolbox
from pytest_toolemu.errors import AgentStopped, InconclusiveError, UsageError
from pytest_toolemu.formats.text import compact_json
from pytest_toolemu.scheduling.event_loop import CaseLoop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_MESSAGE: Final = 4 * 1024 * 1024
"""Bytes of a message of an MCP client, as in the official SDKs."""
_HOST: Final = "127.0.0.1"
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
_TOOLS: Final = "toolemu.tools"
_HANG_UP: Final = "toolemu.hang_up"
_HUNG_UP: Final = "the MCP client of the agent hung up"
_RETRY_SECONDS: Final = 0.05
_MAX_SECONDS: Final = 3600.0
_HOSTS: Final = (_HOST, "localhost")
# A web page that a browser has loaded must not call tools.
_SECURITY: Final = TransportSecuritySettings(
    allowed_hosts=[f"{host}:*" for host in _HOSTS],
    allowed_origins=[f"{scheme}://{host}:*" for scheme in ("http", "https") for host in _HOSTS],
)
_CONFIG: Final[dict[str, Any]] = {
    "log_config": None,
    "log_level": "critical",
    "access_log": False,
    "lifespan": "off",
    "http": "h11",
    "ws": "none",
    "server_header": False,
    # An agent may think for long between two calls; a connection that closes just then would look like a failure.
    "timeout_keep_alive": 24 * 3600,
}


class LocalServer:
    """Serves applications at random paths of one port of the loopback interface, until the process ends."""

    def __init__(self) -> None:
        self.loop = CaseLoop("toolemu-serve")
        self._apps: dict[str, ASGIApp] = {}
        self._ports: dict[tuple[int, str], FixedPort] = {}
        self.sessions = _tool_sessions()
        listener = socket.create_server((_HOST, 0), backlog=512)
        self._url = f"http://{_HOST}:{listener.getsockname()[1]}"
        self.loop.run(self._start(listener))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on to the application of its path."""
        app = self._apps.get(scope["path_params"]["token"])
        ended = "no case is served at this address, which is valid only until its case ends"
        with contextlib.suppress(ClientDisconnect):
            await (app or json_error(404, ended))(scope, receive, send)

    def open(self, app: ASGIApp) -> str:
        """Serve an application below a random path, and return its URL."""
        token = secrets.token_urlsafe(16)
        self._apps[token] = app
        return f"{self._url}/{token}"

    def close(self, url: str) -> None:
        """Serve the application at this URL no longer."""
        self._apps.pop(url.rpartition("/")[2], None)

    async def open_port(self, port: int, path: str, trace: str, tools: ServedTools) -> FixedPort:
        """Serve tools at a port as soon as it is free, or beside the other cases of this process with a trace."""
        deadline, place = monotonic() + _MAX_SECONDS, (port, path)
        while (fixed := self._ports.get(place) if trace else None) is None:
            try:
                fixed = FixedPort(port, path, socket.create_server((_HOST, port)))
                break
            except OSError as error:
                if error.errno != errno.EADDRINUSE or monotonic() > deadline:
                    raise UsageError(f"port {port} (tools_port) cannot be used: {error.strerror}") from None
            await asyncio.sleep(_RETRY_SECONDS)
        if trace:
            self._ports[place] = fixed
        fixed.cases[trace] = tools
        return fixed

    async def close_port(self, fixed: FixedPort, trace: str) -> None:
        """End a case at a port. With the last one, free the port."""
        del fixed.cases[trace]
        if not fixed.cases:
            if self._ports.get(fixed.place) is fixed:
                del self._ports[fixed.place]
            await fixed.close()

    async def _start(self, listener: socket.socket) -> None:
        started = asyncio.Event()
        self._serving = asyncio.create_task(self._serve(listener, started))
        await started.wait()

    async def _serve(self, listener: socket.socket, started: asyncio.Event) -> None:
        app = Starlette(routes=[Route("/{token}/{rest:path}", self)])
        async with self.sessions.run():
            started.set()  # the system accepts connections to the port already
            await uvicorn.Server(uvicorn.Config(app, **_CONFIG)).serve([listener])


class FixedPort:
    """A port and a secret path that a service knows, for one case, or several that requests name by their trace IDs."""

    def __init__(self, port: int, path: str, listener: socket.socket) -> None:
        self.place = port, path
        self.cases: dict[str, ServedTools] = {}
        self._server = uvicorn.Server(uvicorn.Config(Starlette(routes=[Route(f"/{path}/mcp", self)]), **_CONFIG))
        self._serving = asyncio.create_task(self._server.serve([listener]))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as the case of the request."""
        trace = Request(scope).headers.get("traceparent", "").split("-")
        case = self.cases.get("") or self.cases.get(trace[1] if len(trace) == 4 else "")
        await (case or self._refuse_untraced())(scope, receive, send)

    async def close(self) -> None:
        """Free the port, and end all connections: a client that keeps one must not reach an earlier case."""
        self._server.should_exit = self._server.force_exit = True
        await self._serving

    def _refuse_untraced(self) -> Response:
        """Refuse a call, and say so in the records of all open cases, as it may belong to any of them."""
        message = (
            f"a call at port {self.place[0]} was refused because it had no traceparent header of an open case, so its "
            "case is unknown; make the service pass the header on, or remove passes_traceparent"
        )
        for case in self.cases.values():
            case.toolbox.trajectory.agent_warning = message
        return json_error(400, message)


@dataclass(frozen=True)
class PendingCall:
    """A call that is being answered. ``signs`` are what identifies it when its client gives up."""

    signs: tuple[Any, ...]
    tool: str
    result: concurrent.futures.Future[Any]
    started: float

    def error(self, event: str) -> InconclusiveError:
        """Return the error of a call whose answer the agent did not receive."""
        seconds = monotonic() - self.started
        return InconclusiveError(f"{event} {seconds:.1f} s after its call of {self.tool}, before the answer; {_REMEDY}")


class ServedTools:
    """The tools of one case as a stateless MCP server. It notices if a client does not wait for an answer.

    All methods but those of the context manager run on the loop of the server.
    """

    def __init__(self, toolbox: Toolbox, server: LocalServer) -> None:
        self.toolbox = toolbox
        self._server = server
        self._pending: list[PendingCall] = []
        self._error: InconclusiveError | None = None
        self._is_closed = False
        self._is_used = False

    def __enter__(self) -> str:
        self._home = self.toolbox.settle()
        self._url = self._server.open(self)
        return f"{self._url}/mcp"

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._server.close(self._url)
        inconclusive = self._server.loop.run(self._close())
        trajectory = self.toolbox.trajectory
        if not (self._is_used or trajectory.steps or trajectory.agent_warning or isinstance(error, Exception)):
            trajectory.agent_warning = UNUSED
        if error is None and inconclusive is not None and self.toolbox.turn_error is None:
            self.toolbox.stop(inconclusive)
            raise inconclusive

    async def __aenter__(self) -> str:
        return self.__enter__()

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.__exit__(kind, error, trace)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one message of a client."""
        request = Request(scope, receive)
        if request.method != "POST":  # the other methods belong to streams and sessions, which servers need not have
            await Response(status_code=405, headers={"Allow": "POST"})(scope, receive, send)
            return
        body = await body_of(request, MAX_MESSAGE)
        if body is None:
            message = (
                f"the MCP client of the agent sent a message of more than {MAX_MESSAGE:,} bytes, which cannot be read, "
                "so a tool call may be missing; let the agent send shorter arguments"
            )
            self.toolbox.stop(InconclusiveError(message))
            await json_error(413, message)(scope, receive, send)
            return
        sent: Any = None
        with contextlib.suppress(ValueError, RecursionError):  # the SDK refuses it
            sent = json.loads(body)
        if (
            isinstance(sent, dict)
            and sent.get("method") == "notifications/cancelled"
            and isinstance(sent.get("params"), dict)
        ):
            self._give_up(sent["params"].get("requestId"), "the MCP client of the agent canceled the request")
        await self._answer(scope, body, receive, send)

    async def _answer(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        begun = asyncio.Event()
        hung_up = asyncio.Event()  # which also identifies the call, as several clients may use the same IDs

        async def replay() -> Message:
            return messages.pop() if messages else await receive()

        async def watched(message: Message) -> None:
            begun.set()
            await send(message)

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            if not begun.is_set():
                hung_up.set()
                self._give_up(hung_up, _HUNG_UP)

        watching = asyncio.create_task(watch())
        try:
            await self._server.sessions.asgi_app({**scope, _TOOLS: self, _HANG_UP: hung_up}, replay, watched)
        finally:
            watching.cancel()

    def descriptions(self) -> list[dict[str, Any]]:
        """Return the tools as in the result of ``tools/list``.

        There are no hints about destructive tools: they would tell the agent what the case tests.
        """
        self._is_used = True
        return [
            {"name": tool.name, "description": tool.description, "inputSchema": tool.parameters}
            for tool in self.toolbox.tools
        ]

    async def call(self, signs: tuple[Any, ...], name: str, arguments: Any) -> dict[str, Any]:
        """Return the result of a call, which is executed on the loop and in the context of the case.

        ``signs`` are the ID of the request, and the event that its client has hung up, which only this request has.
        """
        self._is_used = True
        try:
            future = self._home.submit(self._execute, name, arguments)
        except RuntimeError:  # the loop of the case is closed, and a client continues
            return _ENDED
        call = PendingCall(signs, name, future, monotonic())
        self._pending.append(call)
        if signs[1].is_set():
            self._give_up(signs[1], _HUNG_UP)
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
        return content if failed or isinstance(result, list) else content | {"structuredContent": result}

    async def _execute(self, name: str, arguments: Any) -> Any:
        """Return the result of a call, on the loop of the case; None if the agent's turn has ended."""
        try:
            return await self.toolbox.call(name, arguments)
        except (AgentStopped, Exception):  # the toolbox keeps it, and an agent must not read the errors of the emulator
            return None

    def _give_up(self, sign: Any, event: str) -> None:
        """End the call with this sign, whose client does not wait for its answer any longer."""
        for call in self._pending:
            if sign in call.signs:
                if not (self._is_closed or self.toolbox.turn_error or self._error):
                    self._error = call.error(event)
                    asyncio.get_running_loop().call_later(HANG_UP_GRACE, self._stop, self._error)
                call.result.cancel()

    def _stop(self, error: InconclusiveError) -> None:
        if not self._is_closed:
            self.toolbox.stop(error)

    async def _close(self) -> InconclusiveError | None:
        """Cancel the calls that are being answered; return the error of one that the agent did not wait for."""
        self._is_closed = True
        if self._pending and self._error is None:
            self._error = self._pending[0].error("the agent ended its turn")
        for call in self._pending:
            call.result.cancel()
        return self._error


def _tool_sessions() -> StreamableHTTPSessionManager:
    """Return what answers the messages of MCP clients, for all cases: the scope of a request has the tools."""

    @contextlib.contextmanager
    def tools_of(scope: Scope) -> Iterator[ServedTools]:
        """Let a fault of this server end the turn: otherwise it would look like an agent that does not help."""
        tools: ServedTools = scope[_TOOLS]
        try:
            yield tools
        except Exception as error:
            tools.toolbox.stop(error)
            raise

    async def listed(context: Any, _: Any) -> Any:
        with tools_of(context.request.scope) as tools:
            return ListToolsResult.model_validate({"tools": tools.descriptions()})

    async def called(context: Any, params: Any) -> Any:
        scope = context.request.scope
        with tools_of(scope) as tools:
            signs = (context.request_id, scope[_HANG_UP])
            return CallToolResult.model_validate(await tools.call(signs, params.name, params.arguments or {}))

    # Clients show the name to their model.
    server = Server(
        SERVER[0], version=SERVER[1], on_list_tools=listed, on_call_tool=called, get_tool_input_schema=lambda _: None
    )
    return StreamableHTTPSessionManager(
        server, json_response=True, stateless=True, security_settings=_SECURITY, max_request_body_size=2 * MAX_MESSAGE
    )


async def body_of(request: Request, limit: int) -> bytes | None:
    """Return the body of a request; None if it has more bytes than the limit. Raise ClientDisconnect if it breaks."""
    body = bytearray()
    if int(request.headers.get("content-length", 0)) > limit:
        return None
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            return None
    return bytes(body)


def json_error(status: int, message: str, **fields: Any) -> JSONResponse:
    """Return an error that MCP clients and the clients of OpenAI and Anthropic understand."""
    error = {"code": -32600, "type": "api_error", "message": message, **fields}
    return JSONResponse({"jsonrpc": "2.0", "id": None, "type": "error", "error": error}, status)


_STARTING: Final = threading.Lock()


def local_server() -> LocalServer:
    """Return the server of this process, which starts on first use."""
    with _STARTING:
        return _started()


_started: Final = functools.cache(LocalServer)
