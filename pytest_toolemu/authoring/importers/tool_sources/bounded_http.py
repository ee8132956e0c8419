"""Requests by HTTP with limits on time and size, as the other side may be anything."""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import os
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, Final
from urllib.parse import urlsplit

from pytest_toolemu.agents.programs.variables import expanded
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.credentials import REGISTRY
from pytest_toolemu.formats.truncation import truncated

MAX_BYTES: Final = 50_000_000
"""The largest reply that is read, in bytes."""

_BLOCK: Final = 65_536
_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


def require_allowed(url: str, *, offline: bool) -> None:
    """Raise UsageError if the URL is not valid, or if it leads away from this machine although ``offline`` is set."""
    try:
        parts = urlsplit(url)
        host, port_is_valid = parts.hostname, parts.port is None or parts.port > 0
    except ValueError:
        host, port_is_valid = None, False
    if not host or not port_is_valid or parts.scheme not in ("http", "https"):
        raise UsageError(f"{truncated(url, 120)}: is not a URL; write a URL such as https://HOST/PATH")
    if "@" in parts.netloc:
        raise UsageError(
            f"{host}: the URL contains a name or a password; give them with --header 'Authorization: Basic ...'"
        )
    if offline and not _is_loopback(host):
        raise UsageError(
            f"{host}: needs the network, but TOOLEMU_OFFLINE is set; unset it, or import from a file or a command"
        )


def parsed_headers(lines: Iterable[str]) -> dict[str, str]:
    """Return the headers in lines such as ``Name: value``, in which ``${NAME}`` is a variable of the environment.

    The values are redacted from now on. Raise UsageError for another form, or for a variable that is not set.
    """
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not _TOKEN.fullmatch(name.strip()) or not value.strip().isprintable():
            raise UsageError(
                f"--header {truncated(name, 40)!r}: is not a header; write it as 'NAME: VALUE', on one line"
            )
        headers[name.strip()] = str(expanded(value.strip(), os.environ, f"--header {name.strip()}", secret=True))
        REGISTRY.register(headers[name.strip()].rpartition(" ")[2], name.strip())
    return headers


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: it could lead to another host, which would receive the headers with credentials."""

    def redirect_request(self, *_arguments: Any) -> None:
        """Return None, so that the redirect is reported as an error."""


def _refusal(error: urllib.error.HTTPError, remedies: Mapping[int, str]) -> str:
    """Return the status, the beginning of the content, and the remedy."""
    with error:
        excerpt = " ".join(error.read(300).decode("utf-8", "replace").split())
    if location := error.headers.get("Location"):
        return f"redirects to {truncated(location, 200)}; use this URL if you trust it"
    return f"HTTP status {error.code}: {excerpt or error.reason}{remedies.get(error.code, '; check the URL')}"


class HttpReply:
    """The reply to one request, which is read until a deadline."""

    def __init__(self, response: http.client.HTTPResponse, name: str, deadline: float) -> None:
        self._response, self._name, self._deadline = response, name, deadline

    @property
    def is_event_stream(self) -> bool:
        """Whether the content is a stream of events."""
        return (self.header("Content-Type") or "").lower().startswith("text/event-stream")

    def header(self, name: str) -> str | None:
        """Return the value of a header; None if it is absent."""
        value: str | None = self._response.headers.get(name)
        return value

    def text(self) -> str:
        """Return the whole content."""
        return b"".join(self._blocks()).decode("utf-8-sig", "replace")

    def lines(self) -> Iterator[str]:
        """Yield the lines as they arrive, without their ends."""
        parts: list[bytes] = []
        for block in self._blocks():
            first, *others = block.split(b"\n")
            parts.append(first)
            for other in others:
                yield _line(parts)
                parts = [other]
        if any(parts):
            yield _line(parts)

    def _blocks(self) -> Iterator[bytes]:
        size = 0
        while block := self._response.read1(_BLOCK):
            size += len(block)
            if size > MAX_BYTES:
                raise UsageError(f"{self._name}: the reply has more than {MAX_BYTES:,} bytes, the maximum that is read")
            yield block
            if time.monotonic() > self._deadline:
                raise UsageError(f"{self._name}: the reply did not end in time; raise --timeout")


def _line(parts: list[bytes]) -> str:
    return b"".join(parts).decode("utf-8", "replace").rstrip("\r")


def _response(opener: urllib.request.OpenerDirector, request: urllib.request.Request, seconds: float) -> Any:
    """Return the response once its headers are complete. Raise TimeoutError after this time.

    The limit of a socket is not enough: it begins anew with each byte of the headers.
    """
    response: Future[Any] = Future()

    def wait() -> None:
        try:
            response.set_result(opener.open(request, timeout=seconds))
        except Exception as error:
            response.set_exception(error)

    threading.Thread(target=wait, daemon=True).start()
    return response.result(seconds)


@contextlib.contextmanager
def opened(
    url: str,
    headers: Mapping[str, str],
    body: bytes | None,
    deadline: float,
    remedies: Mapping[int, str] | None = None,
    method: str | None = None,
) -> Iterator[HttpReply]:
    """Send a request and yield the reply. Raise UsageError for any failure, with the remedy of its HTTP status."""
    name = truncated(url.partition("?")[0], 120)
    request = urllib.request.Request(url, body, dict(headers), method=method)
    # A proxy cannot reach this machine.
    proxies = urllib.request.ProxyHandler({} if _is_loopback(urlsplit(url).hostname or "") else None)
    try:
        opener = urllib.request.build_opener(proxies, _NoRedirects)
        with _response(opener, request, max(0.1, deadline - time.monotonic())) as response:
            yield HttpReply(response, name, deadline)
    except urllib.error.HTTPError as error:
        raise UsageError(f"{name}: {_refusal(error, remedies or {})}") from None
    except TimeoutError:
        raise UsageError(f"{name}: did not answer in time; raise --timeout") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        cause = getattr(error, "reason", None) or error
        reason = getattr(cause, "strerror", None) or cause
        raise UsageError(f"{name}: cannot be reached: {reason}; check the URL and the network") from None
