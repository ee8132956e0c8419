"""The part of HTTP/1.1 that SDKs use: requests with a Content-Length on connections that are kept alive."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import responses
from typing import Any
from urllib.parse import unquote


@dataclass(frozen=True)
class Incoming:
    """A parsed request: the path without its query, header names in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Response:
    """A response: JSON, or unchanged text. If ``whole`` is false, only half of the announced body is sent."""

    status: int
    body: Any
    headers: Mapping[str, str] = field(default_factory=dict)
    whole: bool = True

    def encode(self) -> bytes:
        """Return the bytes on the wire."""
        body = (self.body if isinstance(self.body, str) else json.dumps(self.body)).encode()
        phrase = responses.get(self.status, "Overloaded")  # Anthropic's status 529
        lines = [f"HTTP/1.1 {self.status} {phrase}", "content-type: application/json", f"content-length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        head = "\r\n".join([*lines, "", ""]).encode("latin-1")
        return head + (body if self.whole else body[: len(body) // 2])


async def read(reader: asyncio.StreamReader) -> Incoming | None:
    """Return the next request of a connection; None if the client has closed it, even in the middle of a request."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.rstrip("\r\n").split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
    except asyncio.IncompleteReadError:
        return None
    method, target, _ = first.split(" ")
    return Incoming(method, unquote(target.partition("?")[0]), headers, body)
