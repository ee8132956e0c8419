"""A service in a thread, whose answers a test scripts."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[str, Any], Any]
"""Answers a request, given its path and JSON body: with JSON, or with a status and a text, and perhaps its type and other headers."""


class Service:
    """A service in a thread. ``answer`` may be replaced; ``requests`` are all requests with their headers."""

    def __init__(self) -> None:
        self.answer: Answer = lambda _path, _body: (500, "not scripted")
        self.requests: list[tuple[dict[str, str], Any]] = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or "null")
                service.requests.append((dict(self.headers), body))
                reply = service.answer(self.path, body)
                if reply is None:  # hang up
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                status, text, *rest = reply if isinstance(reply, tuple) else (200, json.dumps(reply))
                kind = rest[0] if rest else "application/json"
                more = rest[1] if len(rest) > 1 else {}
                headers = {"Content-Type": kind, "Content-Length": str(len(text.encode())), **more}
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text.encode())

            do_GET = do_POST  # noqa: N815 - named as the base class expects

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
