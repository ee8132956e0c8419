"""The HTTP server of this process that passes requests on, with an unguessable address for each case."""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Protocol

from pytest_toolemu.agents.model_gateway.exchange import Client
from pytest_toolemu.agents.model_gateway.passed_request import PassedRequest, Provider
from pytest_toolemu.agents.once_per_process import OncePerProcess

_MAX_BODY: Final = 64 * 1024 * 1024
_MAX_LINE: Final = 64 * 1024
_DIGITS: Final = re.compile(r"[0-9]{1,18}")
_HEXADECIMAL: Final = re.compile(rb"[0-9A-Fa-f]+")
# The paths of the providers behind a token. OpenAI's SDKs expect a base URL that ends with /v1.
_PATHS: Final[dict[Provider, str]] = {"openai": "/openai/v1", "anthropic": "/anthropic"}


class Gateway(Protocol):
    """Answers the requests of a case."""

    base_urls: Mapping[Provider, str]

    def serve(self, request: PassedRequest, client: Client) -> None:
        """Answer a request, in the thread of its connection."""
        ...


class GatewayServer(ThreadingHTTPServer):
    """Serves many cases on a port of the loopback interface, with a daemon thread for each connection."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.cases: dict[str, Gateway] = {}
        threading.Thread(target=self.serve_forever, args=(0.1,), name="toolemu-models", daemon=True).start()

    def open(self, gateway: Gateway) -> str:
        """Serve a case, and return its token."""
        token = secrets.token_urlsafe(16)
        self.cases[token] = gateway
        return token

    def close(self, token: str) -> None:
        """Serve the case no longer."""
        self.cases.pop(token, None)

    def url(self, token: str, provider: Provider) -> str:
        """Return the base URL of a provider for the program of a case."""
        return f"http://127.0.0.1:{self.server_port}/{token}{_PATHS[provider]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing: programs hang up when they end."""
        del request, client_address


gateway_server: Final = OncePerProcess(GatewayServer)
"""Returns the server of this process. It starts on first use, and ends with the process."""


class _UnreadableBodyError(Exception):
    """The body of a request cannot be read; ``status`` says why."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: GatewayServer

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - named as in the base class
        """Print nothing."""

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()

    def send(self, chunk: bytes) -> None:
        self.wfile.write(chunk)
        self.wfile.flush()

    def _serve(self) -> None:
        self.close_connection = True  # the end of the connection is the end of the body
        _, _, rest = self.path.partition("/")
        token, slash, path = rest.partition("/")
        gateway = self.server.cases.get(token)
        provider = next((each for each, prefix in _PATHS.items() if f"{slash}{path}".startswith(prefix)), None)
        if gateway is None or provider is None:
            self.send_error(404, "no case is served at this address")
            return
        try:
            body = self._body()
        except _UnreadableBodyError as problem:
            self.send_error(problem.status, str(problem))
            return
        target = f"{slash}{path}".removeprefix(_PATHS[provider])
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = PassedRequest(self.command, provider, gateway.base_urls[provider], target, headers, body)
        gateway.serve(request, self)

    def _body(self) -> bytes:
        encoding = self.headers.get("Transfer-Encoding", "").strip().lower()
        if encoding == "chunked":
            return self._chunks()
        length = self.headers.get("Content-Length", "0")
        if encoding or not _DIGITS.fullmatch(length):
            raise _UnreadableBodyError(411, "send a body with a Content-Length, or in chunks")
        return self._exactly(int(length), 0)

    def _chunks(self) -> bytes:
        body = bytearray()
        while size := self._chunk_size():
            body += self._exactly(size, len(body))
            self.rfile.readline(_MAX_LINE)
        while self.rfile.readline(_MAX_LINE).strip():
            pass  # trailers
        return bytes(body)

    def _chunk_size(self) -> int:
        text = self.rfile.readline(_MAX_LINE).partition(b";")[0].strip()
        if not _HEXADECIMAL.fullmatch(text):
            raise _UnreadableBodyError(400, "the size of a chunk is not a hexadecimal number")
        return int(text, 16)

    def _exactly(self, size: int, earlier: int) -> bytes:
        """Return the next bytes of a body, which follow ``earlier`` ones."""
        if earlier + size > _MAX_BODY:
            raise _UnreadableBodyError(413, f"the body has more than {_MAX_BODY:,} bytes")
        part = self.rfile.read(size)
        if len(part) < size:
            raise _UnreadableBodyError(400, "the body is not complete")
        return part

    do_GET = do_POST = do_DELETE = do_HEAD = _serve  # noqa: N815 - named as the base class expects
