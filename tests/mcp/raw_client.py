"""Messages to an MCP server over plain HTTP, for what official clients would never send."""

from __future__ import annotations

import asyncio
import json
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

HEADERS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"


def request(method: str, params: Any = None, request_id: Any = 1) -> dict[str, Any]:
    message = {"jsonrpc": "2.0", "id": request_id, "method": method}
    return message if params is None else message | {"params": params}


def tool_call(locker: str = "7", request_id: Any = 1, name: str = "Lockers_Open") -> dict[str, Any]:
    return request("tools/call", {"name": name, "arguments": {"locker": locker}}, request_id)


def stateless(method: str, **params: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the message and the headers of a request of protocol version 2026-07-28."""
    meta = {VERSION: "2026-07-28", CAPABILITIES: {}}
    headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method}
    if "name" in params:
        headers["Mcp-Name"] = params["name"]
    return request(method, params | {"_meta": meta}), headers


def exchange(
    url: str, body: Any, headers: dict[str, str] | None = None, method: str = "POST", path: str = ""
) -> tuple[int, Any]:
    """Return status and JSON of the response. A body that is bytes is sent as it is."""
    address = urlsplit(url)
    connection = HTTPConnection(address.netloc, timeout=20)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection.request(method, path or address.path, data, HEADERS | (headers or {}))
    response = connection.getresponse()
    content = response.read()
    connection.close()
    is_json = response.headers.get("Content-Type", "").startswith("application/json")
    return response.status, json.loads(content) if is_json and content else content.decode() or None


async def post(url: str, body: Any, headers: dict[str, str] | None = None, **options: Any) -> tuple[int, Any]:
    return await asyncio.to_thread(exchange, url, body, headers, **options)


async def result_of(url: str, message: dict[str, Any]) -> Any:
    """Return the result of a request that succeeds."""
    status, content = await post(url, message)
    assert (status, content["id"]) == (200, message["id"])
    return content["result"]


async def hang_up_on(url: str, message: Any, reached: asyncio.Event) -> None:
    """Send a message, and close the connection as soon as the case has begun to answer it."""
    address = urlsplit(url)
    _, writer = await asyncio.open_connection(address.hostname, address.port)
    data = json.dumps(message).encode()
    headers = HEADERS | {"Host": address.netloc, "Content-Length": str(len(data))}
    head = "\r\n".join([f"POST {address.path} HTTP/1.1", *(f"{k}: {v}" for k, v in headers.items()), "", ""])
    writer.write(head.encode() + data)
    await reached.wait()
    writer.close()
    await writer.wait_closed()
