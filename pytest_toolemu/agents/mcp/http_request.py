"""The part of HTTP/1.1 that MCP clients use, for a server on the loopback interface."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

MAX_HEAD: Final = 64 * 1024
"""Bytes of a request line with its headers."""
MAX_BODY: Final = 4 * 1024 * 1024
"""Bytes of the body of a request, as in the official SDKs."""
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
"""The interim response before the real one."""
_SINGLE: Final = ("content-length", "host", "origin", "transfer-encoding")


@dataclass(frozen=True)
class HttpRequest:
    """A request. The names of headers are in lower case; the values of a repeated header are joined by commas."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    keeps_connection: bool


@dataclass(frozen=True)
class HttpResponse:
    """A response with a JSON body, or without a body if ``content`` is None."""

    status: HTTPStatus
    content: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = field(init=False)

    def __post_init__(self) -> None:
        text = "" if self.content is None else json.dumps(self.content, ensure_ascii=False)
        object.__setattr__(self, "body", text.encode("utf-8", "replace"))

    def encode(self, *, keeps_connection: bool) -> bytes:
        """Return the bytes on the wire."""
        headers = {"Content-Length": str(len(self.body)), "Connection": "keep-alive" if keeps_connection else "close"}
        if self.body:
            headers |= {"Content-Type": "application/json", "Cache-Control": "no-store"}
        lines = [f"HTTP/1.1 {self.status.value} {self.status.phrase}"]
        lines += [f"{name}: {value}" for name, value in (headers | self.headers).items()]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + self.body


class BadRequestError(Exception):
    """A request that is refused. Its connection is closed, because the rest of its bytes cannot be interpreted.

    ``head`` is the request without its body if only the body is refused, because it is too long.
    """

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.head: HttpRequest | None = None


class RequestReader:
    """Assembles requests from the bytes of one connection.

    ``send`` writes the interim response that a client may request before it sends the body.
    """

    def __init__(self, send: Callable[[bytes], object]) -> None:
        self._send = send
        self._buffer = bytearray()
        self._steps = self._read()

    @property
    def unread(self) -> int:
        """Number of bytes that belong to no complete request yet."""
        return len(self._buffer)

    def feed(self, data: bytes) -> None:
        """Add bytes that the client has sent."""
        self._buffer += data

    def next_request(self) -> HttpRequest | None:
        """Return the next complete request; None if bytes are missing. Raise BadRequestError to refuse it."""
        try:
            next(self._steps)
        except StopIteration as finished:
            self._steps = self._read()
            request: HttpRequest = finished.value
            return request
        return None

    def _read(self) -> Generator[None, None, HttpRequest]:
        head = (yield from self._until(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.lstrip("\r\n").split("\r\n")
        words = first.split(" ")
        if len(words) != 3 or words[2] not in ("HTTP/1.1", "HTTP/1.0"):
            raise BadRequestError(HTTPStatus.BAD_REQUEST, "the request line is not 'METHOD PATH HTTP/1.1'")
        headers = _headers(lines)
        if "100-continue" in headers.get("expect", "").lower():
            self._send(CONTINUE)
        try:
            if headers.get("transfer-encoding", "").lower() == "chunked":
                body = yield from self._chunks()
            else:
                body = yield from self._exactly(_body_length(headers))
        except BadRequestError as problem:
            if problem.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
                problem.head = HttpRequest(words[0], words[1], headers, b"", keeps_connection=False)
            raise
        connection = headers.get("connection", "").lower()
        keeps = "close" not in connection if words[2] == "HTTP/1.1" else "keep-alive" in connection
        return HttpRequest(words[0], words[1], headers, body, keeps)

    def _chunks(self) -> Generator[None, None, bytes]:
        body = bytearray()
        while True:
            line = (yield from self._until(b"\r\n")).split(b";")[0].strip()
            try:
                size = int(line, 16)
            except ValueError:
                raise BadRequestError(
                    HTTPStatus.BAD_REQUEST, "the size of a chunk is not a hexadecimal number"
                ) from None
            _check_size(len(body) + size)
            if size == 0:
                break
            body += yield from self._exactly(size)
            yield from self._until(b"\r\n")
        while (yield from self._until(b"\r\n")):
            pass  # trailers
        return bytes(body)

    def _until(self, separator: bytes) -> Generator[None, None, bytes]:
        searched = 0
        while (end := self._buffer.find(separator, searched)) < 0:
            if len(self._buffer) > MAX_HEAD:
                raise BadRequestError(
                    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"the headers have more than {MAX_HEAD} bytes"
                )
            searched = max(0, len(self._buffer) - len(separator) + 1)
            yield
        return self._take(end, len(separator))

    def _exactly(self, size: int) -> Generator[None, None, bytes]:
        while len(self._buffer) < size:
            yield
        return self._take(size)

    def _take(self, size: int, skipped: int = 0) -> bytes:
        part = bytes(self._buffer[:size])
        del self._buffer[: size + skipped]
        return part


def _headers(lines: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        key = name.lower()
        if not colon or not key or key != key.strip():
            raise BadRequestError(HTTPStatus.BAD_REQUEST, "a header is not 'Name: value'")
        if key in headers and key in _SINGLE:
            raise BadRequestError(HTTPStatus.BAD_REQUEST, f"the header {key!r} is given twice")
        headers[key] = f"{headers[key]}, {value.strip()}" if key in headers else value.strip()
    return headers


def _body_length(headers: dict[str, str]) -> int:
    if "transfer-encoding" in headers:
        raise BadRequestError(HTTPStatus.NOT_IMPLEMENTED, "the only supported transfer encoding is 'chunked'")
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit() and len(length) < 20):
        raise BadRequestError(HTTPStatus.BAD_REQUEST, "Content-Length is not a number of bytes")
    _check_size(int(length))
    return int(length)


def _check_size(size: int) -> None:
    if not 0 <= size <= MAX_BODY:
        raise BadRequestError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body has more than {MAX_BODY} bytes; send shorter arguments"
        )
