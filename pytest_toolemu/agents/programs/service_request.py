"""Send a request to the service that is the agent, and repeat it only if it was certainly not processed."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from pytest_toolemu.agents.programs.answers import parsed, shown
from pytest_toolemu.errors import AgentProgramError, UsageError
from pytest_toolemu.formats.truncation import truncated

MAX_ANSWER: Final = 1_000_000
"""Bytes of a service's answer."""

_CONNECT_SECONDS: Final = 10.0
_FIRST_DELAY: Final = 0.5
_LONGEST_DELAY: Final = 30.0
_SHOWN: Final = 200
_HEADER: Final = re.compile(r"[\t -~\x80-\xff]*")
# Too many requests, and service unavailable: statuses of a request that was turned away.
_TURNED_AWAY: Final = (429, 503)


class ServiceUnreachableError(AgentProgramError):
    """The service that is the agent cannot be reached, so all further cases would fail as well."""


@dataclass(frozen=True)
class ServiceRequest:
    """A POST request with a JSON body, which is sent at most ``1 + retries`` times.

    ``may_repeat`` returns whether the agent has done nothing yet, so that a request that was turned away can be sent
    again.
    """

    url: str
    headers: Mapping[str, str]
    body: Any
    retries: int
    may_repeat: Callable[[], bool]

    async def send(self) -> Any:
        """Return the JSON value of the answer. AgentProgramError for any other answer, and for none.

        UsageError, before anything is sent, for a header that HTTP cannot express.
        """
        check_headers(self.headers, self.url)
        delay = _FIRST_DELAY
        for left in range(self.retries, -1, -1):
            exchange = _Exchange(self.url)
            try:
                status, headers, content = await exchange.run(json.dumps(self.body).encode(), self.headers)
            except _NotConnectedError as error:
                if not left:
                    raise self._unreachable(str(error)) from None
            else:
                if not (left and status in _TURNED_AWAY and self.may_repeat()):
                    return self._value(status, headers, content)
                delay = max(delay, _seconds(headers.get("retry-after", "")))
            await asyncio.sleep(min(delay, _LONGEST_DELAY))
            delay *= 2
        raise AssertionError

    def _value(self, status: int, headers: Mapping[str, str], content: bytes) -> Any:
        if len(content) > MAX_ANSWER:
            raise AgentProgramError(f"{self.url} answered with more than {MAX_ANSWER:,} bytes; return the answer only")
        text = content.decode(errors="replace")
        if 300 <= status < 400:
            raise AgentProgramError(
                f"{self.url} redirects ({status}) to {shown(headers.get('location', ''))}; put that URL into the file"
            )
        if status != 200:
            raise AgentProgramError(f"{self.url} answered {status}: {shown(text)}")
        return parsed(text, f"the answer of {self.url}")

    def _unreachable(self, reason: str) -> AgentProgramError:
        return ServiceUnreachableError(
            f"{self.url} cannot be reached ({reason}); start the service, or correct the URL in the file of the agent"
        )


def check_headers(headers: Mapping[str, str], source: str) -> None:
    """Raise UsageError for the first header whose value HTTP cannot express. ``source`` is what it belongs to."""
    for name, value in headers.items():
        if not _HEADER.fullmatch(value):
            shown_value = truncated(value, _SHOWN)
            raise UsageError(
                f"{source}: the header {name!r} cannot be {shown_value!r}, because a header is one line of Latin-1 "
                "text; correct the value, or send it in the body"
            )


async def check_reachable(url: str) -> str:
    """Return why no connection to a URL is possible; empty if one is. Nothing is sent."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(parts.hostname, port)
    except OSError as error:
        return os.strerror(error.errno) if error.errno else str(error) or type(error).__name__
    writer.close()
    return ""


class _NotConnectedError(Exception):
    """No connection could be made, so nothing was sent."""


class _Exchange:
    """One request and its response, in a thread other than the loop's. Canceling closes the connection."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._url = url
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._connection = kind(parts.hostname or "", parts.port, timeout=_CONNECT_SECONDS)

    async def run(self, body: bytes, headers: Mapping[str, str]) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers with names in lower case, and content."""
        try:
            return await asyncio.to_thread(self._run, body, dict(headers))
        except asyncio.CancelledError:
            with contextlib.suppress(OSError, AttributeError):  # it may not be connected yet
                self._connection.sock.shutdown(socket.SHUT_RDWR)
            raise

    def _run(self, body: bytes, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        try:
            self._connection.connect()
        except OSError as error:
            raise _NotConnectedError(error.strerror or str(error)) from None
        try:
            self._connection.sock.settimeout(None)  # the case has a time limit
            self._connection.request("POST", self._target, body, headers)
            response = self._connection.getresponse()
            content = response.read(MAX_ANSWER + 1)
            return response.status, {name.lower(): value for name, value in response.getheaders()}, content
        except (OSError, http.client.HTTPException) as error:
            why = str(error) or type(error).__name__
            raise AgentProgramError(f"{self._url} closed the connection before it answered: {why}") from None
        finally:
            self._connection.close()


def _seconds(text: str) -> float:
    return float(text) if text.isascii() and text.isdigit() else 0.0
