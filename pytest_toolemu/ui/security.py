"""Who may use the web application: the browser that opened the printed URL, and no page of another origin."""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address
from secrets import token_urlsafe
from socket import gethostname
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pytest_toolemu.formats.redaction import redact

CSRF_HEADER: Final = "x-csrf-token"
"""Header of every request that changes something. Only pages of the application know its value."""

TOKEN: Final = "token"
"""Query parameter of the URL that opens the application."""

LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_READING: Final = ("GET", "HEAD")
_HEADERS: Final = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}


@dataclass(frozen=True)
class AccessRules:
    """The secrets of one start of the application, and what it accepts.

    ``hosts`` are the names in ``Host`` that a request may have; others may be names of an attacker that resolve to
    this computer. With ``any_address``, the server listens on all addresses, and ``Host`` may be any IP address,
    because no name of an attacker looks like one. The cookie has the port in its name, because browsers send cookies
    to all ports of a host.
    """

    port: int
    hosts: frozenset[str] = frozenset(LOOPBACK)
    read_only: bool = False
    any_address: bool = False
    tokens: set[str] = field(default_factory=set, repr=False)
    cookie: str = field(default_factory=lambda: token_urlsafe(32), repr=False)
    csrf: str = field(default_factory=lambda: token_urlsafe(32), repr=False)

    def new_token(self) -> str:
        """Return a token that opens the application in one browser, once."""
        token = token_urlsafe(32)
        self.tokens.add(token)
        return token

    @property
    def cookie_name(self) -> str:
        """The name of the cookie that replaces a token."""
        return f"toolemu_ui_{self.port}"


def access_rules(host: str, port: int, *, read_only: bool) -> AccessRules:
    """Return rules with new secrets for a server that listens on ``host``."""
    if not is_every_address(host):
        return AccessRules(port, frozenset((*LOOPBACK, host.lower())), read_only)
    return AccessRules(port, frozenset((*LOOPBACK, gethostname().lower())), read_only, any_address=True)


def is_every_address(host: str) -> bool:
    """Return whether a server at ``host`` listens on every address of the computer, as at 0.0.0.0."""
    address = _address(host)
    return address is not None and address.is_unspecified


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


class SecurityMiddleware:
    """Refuses requests that the rules do not allow, and adds security headers to every response."""

    def __init__(self, app: ASGIApp, rules: AccessRules) -> None:
        self._app = app
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it with the reason why it is refused."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            answer = _refusal(scope, self._rules) or _entrance(scope, self._rules) or _no_access(scope, self._rules)
            await (answer or self._app)(scope, receive, _sanitized(send))


def _sanitized(send: Send) -> Send:
    """Return a ``send`` that adds the security headers and removes secrets; every response has one body."""
    start: Message = {}

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            start.update(message)
            return
        headers = MutableHeaders(scope=start)
        for name, value in _HEADERS.items():
            headers[name] = value
        headers.setdefault("cache-control", "no-store")
        if not message.get("more_body") and "content-length" in headers:
            body = redact(message.get("body", b"").decode("utf-8", "surrogateescape"))
            message = {**message, "body": body.encode("utf-8", "surrogateescape")}
            headers["content-length"] = str(len(message["body"]))
        await send(start)
        await send(message)

    return sending


def _refusal(scope: Scope, rules: AccessRules) -> Response | None:
    """Refuse another host or origin."""
    headers = Headers(scope=scope)
    host = headers.get("host", "")
    name = _hostname(host)
    if name not in rules.hosts and not (rules.any_address and _address(name)):
        return _denied(f"the host {host!r} is not served; open the URL that toolemu ui printed")
    origin = headers.get("origin")
    if origin is not None and origin.lower() != f"http://{host}".lower():
        return _denied(f"requests from {origin!r} are not accepted; use the pages of this application")
    site = headers.get("sec-fetch-site", "none")
    if site not in ("none", "same-origin") and headers.get("sec-fetch-mode") != "navigate":
        return _denied(f"{site} requests are not accepted; use the pages of this application")
    return None


def _entrance(scope: Scope, rules: AccessRules) -> Response | None:
    """Exchange the token in the URL for a cookie, and remove it from the address bar and the history."""
    query = QueryParams(scope["query_string"])
    if scope["method"] != "GET" or TOKEN not in query:
        return None
    token = next((token for token in rules.tokens if _equal([query[TOKEN]], token)), "")
    if not token and not _has_cookie(scope, rules):
        return _denied(
            "the token in the URL is not valid, or was used before: it opens the application once; start toolemu ui "
            "again, and open the new URL",
            401,
        )
    rules.tokens.discard(token)
    rest = QueryParams([(name, value) for name, value in query.multi_items() if name != TOKEN])
    # A path that begins with two slashes would be another host.
    path = "/" + scope["path"].lstrip("/\\")
    response = RedirectResponse(f"{path}?{rest}" if rest else path, status_code=303)
    # Not "strict": browsers do not send such a cookie after a redirect from the file that opens the application.
    response.set_cookie(rules.cookie_name, rules.cookie, httponly=True, samesite="lax")
    return response


def _no_access(scope: Scope, rules: AccessRules) -> Response | None:
    """Refuse a request without the cookie, and one that changes something without the CSRF token."""
    headers = Headers(scope=scope)
    if not _has_cookie(scope, rules):
        return _denied("open the URL that toolemu ui printed: it contains a token", 401)
    if scope["method"] in _READING:
        return None
    if rules.read_only:
        return _denied("this application only shows; start toolemu ui without --read-only to change something")
    if not _equal(headers.getlist(CSRF_HEADER), rules.csrf):
        return _denied("the CSRF token is missing or not valid; reload the page and repeat the action")
    return None


def _has_cookie(scope: Scope, rules: AccessRules) -> bool:
    lines = Headers(scope=scope).getlist("cookie")
    return _equal([cookie_parser(line).get(rules.cookie_name, "") for line in lines], rules.cookie)


def _equal(values: Iterable[str], secret: str) -> bool:
    return any(hmac.compare_digest(value.encode(), secret.encode()) for value in values)


def _hostname(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _denied(reason: str, status: int = 403) -> Response:
    return PlainTextResponse(f"{reason}\n", status_code=status)
