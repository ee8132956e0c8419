"""The messages of the Model Context Protocol, as a server with nothing but tools answers them.

Revisions up to 2025-11-25 begin with a handshake; since 2026-07-28, every request carries what the handshake contained.
Both are served without sessions: the address of a case identifies it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from http import HTTPStatus
from typing import Any, Final, Protocol

from pytest_toolemu.agents.mcp.http_request import MAX_BODY, HttpRequest, HttpResponse
from pytest_toolemu.errors import InconclusiveError

HANDSHAKE_VERSIONS: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
STATELESS_VERSION: Final = "2026-07-28"
VERSIONS: Final = (STATELESS_VERSION, *HANDSHAKE_VERSIONS)

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602
INTERNAL_ERROR, HEADER_MISMATCH, UNSUPPORTED_VERSION = -32603, -32020, -32022
_VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"
_CAPABILITIES_KEY: Final = "io.modelcontextprotocol/clientCapabilities"
_STATELESS_STATUS: Final = {METHOD_NOT_FOUND: HTTPStatus.NOT_FOUND}
# A name that does not tell the agent that its tools are emulated: clients show it to their model.
_SERVER: Final = {"capabilities": {"tools": {}}, "serverInfo": {"name": "tools", "version": "1"}}
_NOT_CACHED: Final = {"ttlMs": 0, "cacheScope": "private"}


class CaseTools(Protocol):
    """The tools of one case, as the server offers them."""

    def descriptions(self) -> list[dict[str, Any]]:
        """Return the tools as in the result of ``tools/list``."""
        ...

    async def call(self, request_id: str | int, name: str, arguments: Any) -> dict[str, Any]:
        """Return the result of ``tools/call``. If the task is canceled, the client has hung up."""
        ...

    def cancel(self, request_id: Any) -> None:
        """End the call of a client that has announced that it does not wait any longer."""
        ...

    def fail(self, error: Exception) -> None:
        """End the turn of the agent because of an error of the server."""
        ...


class RpcError(Exception):
    """A request that is answered with an error of JSON-RPC."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


async def reply_to(request: HttpRequest, tools: CaseTools) -> HttpResponse:
    """Return the response to a POST: JSON-RPC messages, or status 202 if nothing has to be answered.

    An error in this code ends the turn: otherwise it would look like an agent that does not help.
    """
    try:
        return await _response(request, tools)
    except Exception as error:
        tools.fail(error)
        message = error_message(None, INTERNAL_ERROR, "the server has failed, and the session has ended")
        return HttpResponse(HTTPStatus.INTERNAL_SERVER_ERROR, message)


def report_lost(tools: CaseTools) -> None:
    """End the turn of an agent whose message is too long to be read: a tool call that is not recorded is lost."""
    tools.fail(
        InconclusiveError(
            f"the MCP client of the agent sent a message of more than {MAX_BODY:,} bytes, which cannot be read, so a "
            "tool call may be missing; let the agent send shorter arguments"
        )
    )


async def _response(request: HttpRequest, tools: CaseTools) -> HttpResponse:
    try:
        body = json.loads(request.body)
    except (ValueError, RecursionError):
        return _refused(RpcError(PARSE_ERROR, "the body is not JSON; send one JSON-RPC message"))
    version = request.headers.get("mcp-protocol-version")
    if version is not None and version not in VERSIONS:
        return _refused(_unsupported(version))
    if isinstance(body, list) and body and version != STATELESS_VERSION:
        replies = await asyncio.gather(*(_reply(message, request, tools) for message in body))
        messages = [reply.content for reply in replies if reply.content is not None]
        return HttpResponse(HTTPStatus.OK, messages) if messages else HttpResponse(HTTPStatus.ACCEPTED)
    return await _reply(body, request, tools)


def error_message(request_id: str | int | None, code: int, message: str, data: Any = None) -> dict[str, Any]:
    """Return the JSON-RPC message of an error; the ID is None if the request has no valid one."""
    error = {"code": code, "message": message} | ({} if data is None else {"data": data})
    return {"jsonrpc": "2.0", "id": request_id, "error": error}


async def _reply(message: Any, request: HttpRequest, tools: CaseTools) -> HttpResponse:
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        return _refused(RpcError(INVALID_REQUEST, "the body is not a JSON-RPC 2.0 message"))
    method, params = message.get("method"), message.get("params", {})
    if "id" not in message or ("result" in message or "error" in message):
        if method == "notifications/cancelled" and isinstance(params, dict):
            tools.cancel(params.get("requestId"))
        return HttpResponse(HTTPStatus.ACCEPTED)
    request_id = message["id"]
    if not isinstance(method, str) or not isinstance(request_id, str | int) or isinstance(request_id, bool):
        return _refused(RpcError(INVALID_REQUEST, "a request needs a method, and an ID that is a string or an integer"))
    is_stateless = False
    try:
        if not isinstance(params, dict):
            raise RpcError(INVALID_PARAMS, "params is not an object")
        is_stateless = _is_stateless(request, params)
        if is_stateless:
            _check_envelope(request, method, params)
            result = {"resultType": "complete"} | await _stateless_result(request_id, method, params, tools)
        else:
            result = await _result(request_id, method, params, tools)
    except RpcError as error:
        # Older clients take any status but 200 for a broken connection, and never read the error.
        status = _STATELESS_STATUS.get(error.code, HTTPStatus.BAD_REQUEST) if is_stateless else HTTPStatus.OK
        return HttpResponse(status, error_message(request_id, error.code, str(error), error.data))
    return HttpResponse(HTTPStatus.OK, {"jsonrpc": "2.0", "id": request_id, "result": result})


async def _result(request_id: str | int, method: str, params: dict[str, Any], tools: CaseTools) -> dict[str, Any]:
    match method:
        case "initialize":
            requested = params.get("protocolVersion")
            version = requested if requested in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[0]
            return {"protocolVersion": version, **_SERVER}
        case "ping":
            return {}
        case "tools/list":
            return {"tools": tools.descriptions()}
        case "tools/call":
            return await _called(request_id, params, tools)
        case _:
            raise RpcError(METHOD_NOT_FOUND, f"there is no method {method!r}; this server only has tools")


async def _stateless_result(
    request_id: str | int, method: str, params: dict[str, Any], tools: CaseTools
) -> dict[str, Any]:
    match method:
        case "server/discover":
            return {"supportedVersions": list(VERSIONS), **_SERVER, **_NOT_CACHED}
        case "tools/list":
            return {"tools": tools.descriptions(), **_NOT_CACHED}
        case "tools/call":
            return await _called(request_id, params, tools)
        case _:
            raise RpcError(METHOD_NOT_FOUND, f"there is no method {method!r}; this server only has tools")


async def _called(request_id: str | int, params: dict[str, Any], tools: CaseTools) -> dict[str, Any]:
    name, arguments = params.get("name"), params.get("arguments")
    if not isinstance(name, str):
        raise RpcError(INVALID_PARAMS, "params.name is not the name of a tool")
    return await tools.call(request_id, name, {} if arguments is None else arguments)


def _is_stateless(request: HttpRequest, params: dict[str, Any]) -> bool:
    meta = params.get("_meta")
    declares_version = isinstance(meta, dict) and _VERSION_KEY in meta
    return declares_version or request.headers.get("mcp-protocol-version") == STATELESS_VERSION


def _check_envelope(request: HttpRequest, method: str, params: dict[str, Any]) -> None:
    """Raise RpcError unless a request since 2026-07-28 says in headers and body the same, and what it must."""
    meta = params.get("_meta")
    keys = (_VERSION_KEY, _CAPABILITIES_KEY)
    if missing := [key for key in keys if not isinstance(meta, dict) or key not in meta]:
        raise RpcError(INVALID_PARAMS, f"params._meta does not have the required {', '.join(missing)}")
    assert isinstance(meta, dict)
    expected = {"mcp-protocol-version": meta[_VERSION_KEY], "mcp-method": method}
    if method == "tools/call":
        expected["mcp-name"] = params.get("name")
    for header, value in expected.items():
        if _decoded(request.headers.get(header)) != value:
            raise RpcError(HEADER_MISMATCH, f"the header {header} differs from the body, which has {value!r}")
    if meta[_VERSION_KEY] != STATELESS_VERSION:
        raise _unsupported(meta[_VERSION_KEY])


def _decoded(header: str | None) -> str | None:
    """Return the value of a header; text that is not ASCII is sent as ``=?base64?...?=``."""
    if header is None or not (header.startswith("=?base64?") and header.endswith("?=")):
        return header
    try:
        return base64.b64decode(header[9:-2], validate=True).decode()
    except (binascii.Error, ValueError):
        return None


def _unsupported(version: Any) -> RpcError:
    return RpcError(
        UNSUPPORTED_VERSION,
        f"the protocol version {version!r} is not supported; use one of {', '.join(VERSIONS)}",
        {"supported": list(VERSIONS), "requested": version},
    )


def _refused(error: RpcError) -> HttpResponse:
    return HttpResponse(HTTPStatus.BAD_REQUEST, error_message(None, error.code, str(error), error.data))
