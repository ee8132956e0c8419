"""A server of the Model Context Protocol at a URL: requests by Streamable HTTP, replies as JSON or as events."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Mapping
from typing import Any, Final

from pytest_toolemu.authoring.importers.tool_sources.bounded_http import HttpReply, opened
from pytest_toolemu.authoring.importers.tool_sources.mcp_listing import PROTOCOL_VERSION, reply_to
from pytest_toolemu.authoring.importers.traces.json_values import load_json
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.truncation import truncated

Json = dict[str, Any]

_SESSION: Final = "Mcp-Session-Id"
_VERSION: Final = re.compile(r"[0-9A-Za-z.-]{1,40}")
_SECONDS_OF_NOTIFICATION: Final = 10.0
_REMEDIES: Final = {
    401: "; give a token with --header 'Authorization: Bearer TOKEN'",
    403: "; check the permissions of your token",
    404: "; check the path, which is often /mcp",
    405: "; check the path, which is often /mcp, and that the server speaks Streamable HTTP",
}


def _version(answer: Json) -> str:
    """Return the version of the protocol that the server chose."""
    result = answer.get("result")
    version = result.get("protocolVersion") if isinstance(result, dict) else None
    is_version = isinstance(version, str) and _VERSION.fullmatch(version)
    return str(version) if is_version else PROTOCOL_VERSION


class McpUrl:
    """The exchange of messages with a server at a URL. Close it, so that the server can forget the session."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self.name = truncated(url.partition("?")[0], 120)
        self._url, self._requests = url, 0
        self._headers = {**headers, "Content-Type": "application/json", "Accept": "application/json, text/event-stream"}

    def request(self, method: str, params: Json, seconds: float) -> Json:
        """Send a request and return the reply. Raise UsageError if there is none within the time."""
        self._requests += 1
        message = {"jsonrpc": "2.0", "id": self._requests, "method": method, "params": params}
        deadline = time.monotonic() + seconds
        with opened(self._url, self._headers, json.dumps(message).encode(), deadline, _REMEDIES) as reply:
            if session := reply.header(_SESSION):
                self._headers[_SESSION] = session
            answer = self._from_events(reply) if reply.is_event_stream else self._from_json(reply)
        if answer is None:
            raise UsageError(f"{self.name}: the reply to {method} has no answer; check that it is an MCP server")
        if method == "initialize":
            self._headers["MCP-Protocol-Version"] = _version(answer)
        return answer

    def notify(self, method: str) -> None:
        """Send a notification; a server that refuses it may still list its tools."""
        message = json.dumps({"jsonrpc": "2.0", "method": method}).encode()
        deadline = time.monotonic() + _SECONDS_OF_NOTIFICATION
        with contextlib.suppress(UsageError), opened(self._url, self._headers, message, deadline) as reply:
            del reply

    def close(self) -> None:
        """End the session, if the server keeps one."""
        if _SESSION in self._headers:
            deadline = time.monotonic() + 2.0
            with (
                contextlib.suppress(UsageError),
                opened(self._url, self._headers, None, deadline, method="DELETE") as reply,
            ):
                del reply

    def _from_json(self, reply: HttpReply) -> Json | None:
        return reply_to(self._parsed(reply.text()), self._requests)

    def _from_events(self, reply: HttpReply) -> Json | None:
        """Return the first answer in a stream, which may contain other messages, and may stay open after it."""
        data: list[str] = []
        for line in reply.lines():
            if line.startswith("data:"):
                data.append(line[5:].removeprefix(" "))
            elif not line and data:
                if (answer := reply_to(self._parsed("\n".join(data)), self._requests)) is not None:
                    return answer
                data = []
        return reply_to(self._parsed("\n".join(data)), self._requests) if data else None

    def _parsed(self, text: str) -> Any:
        try:
            return load_json(text)
        except (ValueError, RecursionError):
            shown = truncated(" ".join(text.split()), 80)
            raise UsageError(
                f"{self.name}: the reply is not JSON: {shown!r}; check that the URL is that of an MCP server"
            ) from None
