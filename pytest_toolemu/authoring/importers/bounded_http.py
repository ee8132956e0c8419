"""URLs and headers that a user names, and documents at URLs, with limits on time and size."""

from __future__ import annotations

import http.client
import ipaddress
import os
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any, Final
from urllib.parse import urlsplit

from pytest_toolemu.agents.programs.agent_file import expanded
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.redaction import REGISTRY
from pytest_toolemu.formats.text import truncated

MAX_BYTES: Final = 50_000_000
"""The largest document that is read, in bytes."""

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
    """Follows no redirect: it could lead to another host, which the user may not trust."""

    def redirect_request(self, *_arguments: Any) -> None:
        """Return None, so that the redirect is reported as an error."""


def read_url(url: str, seconds: float) -> str:
    """Return the document at a URL. Raise UsageError for any failure, also if it takes longer or is too long."""
    name = truncated(url.partition("?")[0], 120)
    request = urllib.request.Request(url, headers={"Accept": "application/json, */*"})
    # A proxy cannot reach this machine.
    proxies = urllib.request.ProxyHandler({} if _is_loopback(urlsplit(url).hostname or "") else None)
    opener = urllib.request.build_opener(proxies, _NoRedirects)
    content: Future[bytes] = Future()

    def read() -> None:
        try:
            with opener.open(request, timeout=seconds) as response:
                content.set_result(response.read(MAX_BYTES + 1))
        except Exception as error:
            content.set_exception(error)

    # The limit of a socket is not enough: it begins anew with each byte.
    threading.Thread(target=read, daemon=True).start()
    try:
        document = content.result(seconds)
    except urllib.error.HTTPError as error:
        location = error.headers.get("Location")
        target = f" to {truncated(location, 200)}" if location else ""
        raise UsageError(f"{name}: HTTP status {error.code} {error.reason}{target}; check the URL") from None
    except TimeoutError:
        raise UsageError(f"{name}: did not answer in time; raise --timeout") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise UsageError(f"{name}: cannot be reached: {reason}; check the URL and the network") from None
    if len(document) > MAX_BYTES:
        raise UsageError(f"{name}: the reply has more than {MAX_BYTES:,} bytes, the maximum that is read")
    return document.decode("utf-8-sig", "replace")
