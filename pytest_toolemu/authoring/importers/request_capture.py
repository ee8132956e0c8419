"""The tools of any agent: a program is run until its first request to a model, which contains them.

The program's requests go to an endpoint of this process, in the formats of OpenAI and Anthropic. No model is reached.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final

from pytest_toolemu.agents.mcp import started_server
from pytest_toolemu.agents.programs.command import RunningProgram, inherited_variables, running
from pytest_toolemu.authoring.importers.function_tools import functions_in
from pytest_toolemu.authoring.importers.mcp_tools import command_name
from pytest_toolemu.authoring.importers.published_tools import PublishedTool, PublishedToolkit
from pytest_toolemu.authoring.importers.sources import Notes, load_json
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.text import counted, truncated
from pytest_toolemu.formats.yaml_document import too_deep

_KEY: Final = "recorded-by-toolemu"
_LOG: Final = 600
_MAX_BODY: Final = 64 * 1024 * 1024
_RECORDED: Final = "toolemu has recorded the tools of this request and sends no reply; the agent can exit now"
_NO_TOOLS: Final = "toolemu records requests with tools and sends no replies; this request has no tools"


def capture_tools(command: Sequence[str], seconds: float, inherited: Sequence[str]) -> PublishedToolkit:
    """Run a program and return the tools of its first request with tools. Raise UsageError if it sends none in time.

    ``inherited`` are further variables that it gets.
    """
    return asyncio.run(_capture(command, seconds, inherited_variables(inherited)))


async def _capture(command: Sequence[str], seconds: float, environ: Mapping[str, str]) -> PublishedToolkit:
    name = command_name(command)
    endpoint = RecordingEndpoint()
    server = started_server("toolemu import tools capture")
    url = server.open(endpoint)
    try:
        async with running(command, b"", folder=Path.cwd(), environ=environment(url, environ)) as program:
            ended = asyncio.ensure_future(program.wait())
            either: list[asyncio.Future[Any]] = [asyncio.wrap_future(endpoint.recorded), ended]
            await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            ended.cancel()
            status = program.status
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{name}: cannot be started: {reason}; write the command after '--', as in a shell") from None
    finally:
        server.close(url)
    if not endpoint.recorded.done() or endpoint.recorded.cancelled():
        raise UsageError(f"{name}: {_failure(endpoint.requests, status, seconds, program)}")
    return PublishedToolkit(
        _stem(command), f"the program {_stem(command)}", endpoint.recorded.result(), notes=endpoint.notes
    )


def _failure(requests: int, status: int | None, seconds: float, program: RunningProgram) -> str:
    ending = f"did not exit within {seconds:g} s" if status is None else f"exited with status {status}"
    if requests:
        problem = f"sent {counted(requests, 'request')} to a model, but none with tools that it executes itself"
        remedy = "give it a task for which it offers its tools"
    else:
        problem = "sent no request to a model"
        remedy = "it must read OPENAI_BASE_URL or ANTHROPIC_BASE_URL, and may need a task or more --timeout"
    log = " ".join(program.log.split())[-_LOG:]
    return f"{ending} and {problem}; {remedy}; stderr: {log or 'empty'}"


def _stem(command: Sequence[str]) -> str:
    """Return the name of the script that an interpreter runs, or of the program."""
    script = next((word for word in command[1:] if not word.startswith("-") and Path(word).is_file()), command[0])
    return truncated(Path(script).name.partition(".")[0] or "Agent", 40)


class RecordingEndpoint:
    """Records the tools of the first request with tools, and answers every request with an error.

    An ASGI application. Clients do not repeat a request after this error, as they do after others. ``requests`` counts
    those to a model.
    """

    def __init__(self) -> None:
        self.recorded: Future[tuple[PublishedTool, ...]] = Future()
        self.notes: Notes = {}
        self.requests = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Record the tools in a request, and answer with the error."""
        from starlette.requests import Request

        from pytest_toolemu.agents.local_server import body_of, json_error

        request = Request(scope, receive)
        status, message = 404, "only requests to models are recorded"
        if request.method == "POST":
            status, message = 400, self._record(await body_of(request, _MAX_BODY) or b"")
        error = json_error(status, message, type="invalid_request_error", code="toolemu_capture")
        await error(scope, receive, send)

    def _record(self, body: bytes) -> str:
        self.requests += 1
        notes: Notes = {}
        tools = tuple(_tools(body, notes))
        if tools and not self.recorded.done():
            self.notes = notes
            self.recorded.set_result(tools)
        return _RECORDED if tools else _NO_TOOLS


def environment(url: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a program, with which its clients send all requests to a URL of this process."""
    # Clients refuse to work without a key.
    keys = {name: environ.get(name) or _KEY for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY")}
    bypass = {name: ",".join(filter(None, [environ.get(name), "127.0.0.1"])) for name in ("NO_PROXY", "no_proxy")}
    urls = {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_BASE": f"{url}/v1", "ANTHROPIC_BASE_URL": url}
    return {**environ, **keys, **bypass, **urls}


def _tools(body: bytes, notes: Notes) -> list[PublishedTool]:
    try:
        value = load_json(body.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return []
    if not isinstance(value, dict) or too_deep(value):
        return []
    offered = {key: value[key] for key in ("tools", "functions") if isinstance(value.get(key), list)}
    return list(functions_in(offered, notes)) if offered else []
