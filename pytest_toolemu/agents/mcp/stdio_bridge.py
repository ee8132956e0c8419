"""Connects an MCP client that only starts programs (stdio) with the address of a case."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterable
from http.client import HTTPConnection, HTTPException
from typing import Any, BinaryIO, Final
from urllib.parse import urlsplit

from pytest_toolemu.errors import UsageError

_CHECK_TIMEOUT: Final = 10.0
_UNREACHABLE: Final = -32000
_PING: Final = {"jsonrpc": "2.0", "id": 0, "method": "ping"}
_VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"


class StdioBridge:
    """Passes each message on, and writes the reply. Messages are answered at the same time, so replies may overtake."""

    def __init__(self, url: str, output: BinaryIO) -> None:
        address = urlsplit(url)
        if address.scheme != "http" or not address.hostname or not address.path.strip("/"):
            raise UsageError(
                f"{url!r} is not the URL of a case; copy it from the output of 'toolemu serve', such as "
                "http://127.0.0.1:40000/TOKEN/mcp"
            )
        self._url = url
        self._address = address
        self._output = output
        self._lock = threading.Lock()

    def check(self) -> None:
        """Raise UsageError if no case is served at the URL."""
        try:
            status, content = self._post(json.dumps(_PING).encode(), {}, timeout=_CHECK_TIMEOUT)
        except (OSError, HTTPException) as error:
            raise UsageError(f"{self._url} does not answer: {_reason(error)}; start 'toolemu serve' again") from None
        if status != 200:
            raise UsageError(f"{self._url}: {_message(content) or f'the server answers with status {status}'}")

    def run(self, lines: Iterable[bytes]) -> None:
        """Pass on the messages until the client closes its side, and wait for the replies that are missing."""
        threads = []
        for line in lines:
            if line.strip():
                thread = threading.Thread(target=self._pass_on, args=(line,), daemon=True)
                thread.start()
                threads.append(thread)
                threads = [each for each in threads if each.is_alive()]
        for thread in threads:
            thread.join()

    def _pass_on(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except ValueError:
            message = None
        try:
            status, content = self._post(line, _headers(message))
            problem = _message(content) if status != 200 else ""
        except (OSError, HTTPException) as error:
            content, problem = None, f"the tools no longer answer: {_reason(error)}"
        if isinstance(message, dict) and "id" not in message:
            return
        request_id = message["id"] if isinstance(message, dict) else None
        if isinstance(content, dict) and content.get("jsonrpc") == "2.0":
            # A message that the server refuses as a whole has no ID in its answer.
            self._write(content if request_id is None else content | {"id": request_id})
        elif isinstance(content, list):
            self._write(content)
        elif problem:
            self._write({"jsonrpc": "2.0", "id": request_id, "error": {"code": _UNREACHABLE, "message": problem}})

    def _post(self, body: bytes, headers: dict[str, str], timeout: float | None = None) -> tuple[int, Any]:
        """Return status and JSON of the response. A connection of its own lets the server notice a client that ends."""
        connection = HTTPConnection(self._address.netloc, timeout=timeout)
        try:
            connection.request("POST", self._address.path, body, {"Content-Type": "application/json"} | headers)
            response = connection.getresponse()
            content = response.read()
        finally:
            connection.close()
        try:
            return response.status, json.loads(content) if content else None
        except ValueError:
            raise HTTPException("the answer is not JSON") from None

    def _write(self, content: Any) -> None:
        with self._lock:
            self._output.write(json.dumps(content, ensure_ascii=False).encode() + b"\n")
            self._output.flush()


def _headers(message: Any) -> dict[str, str]:
    """Return the headers that repeat parts of a request since protocol version 2026-07-28; stdio has no headers."""
    params = message.get("params") if isinstance(message, dict) else None
    if not isinstance(params, dict) or not isinstance(params.get("_meta"), dict):
        return {}
    version = params["_meta"].get(_VERSION_KEY)
    if not isinstance(version, str):
        return {}
    headers = {"MCP-Protocol-Version": version, "Mcp-Method": str(message.get("method"))}
    if isinstance(name := params.get("name"), str):
        headers["Mcp-Name"] = f"=?base64?{base64.b64encode(name.encode('utf-8', 'replace')).decode()}?="
    return headers


def _message(content: Any) -> str:
    """Return the message of an error; empty if there is none."""
    error = content.get("error") if isinstance(content, dict) else None
    return str(error.get("message", "") if isinstance(error, dict) else error or "")


def _reason(error: OSError | HTTPException) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
