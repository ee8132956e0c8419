"""The web application as an ASGI app."""

from __future__ import annotations

import errno
import socket
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from pytest_toolemu.errors import ToolemuError, UsageError
from pytest_toolemu.ui import compare_page, label_page, playground_page, review_page, sessions_page
from pytest_toolemu.ui.context import ProjectFolders, StillReadingError, UiContext, page, static_file
from pytest_toolemu.ui.security import TOKEN, SecurityMiddleware, access_rules, is_every_address

_PAGES = (sessions_page, compare_page, label_page, playground_page, review_page)
_MAX_BODY = 2_000_000


def create_app(ui: UiContext) -> Starlette:
    """Return the application for a run directory."""
    routes = [route for module in _PAGES for route in module.ROUTES]
    app = Starlette(
        routes=[*routes, Route("/static/{name:path}", static_file)],
        middleware=[Middleware(SecurityMiddleware, rules=ui.rules)],
        exception_handlers={
            HTTPException: _http_error,
            StillReadingError: _still_reading,
            ToolemuError: _toolemu_error,
        },
        max_body_size=_MAX_BODY,
    )
    app.state.ui = ui
    return app


def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    missing = error.status_code == HTTPStatus.NOT_FOUND and error.detail == HTTPStatus.NOT_FOUND.phrase
    message = f"there is no page {request.url.path}" if missing else error.detail
    return _problem(request, error.status_code, message)


def _still_reading(request: Request, error: Exception) -> Response:
    """Show how many records have been read; the browser asks again after a second."""
    assert isinstance(error, StillReadingError)
    response = page(request, "reading.html.j2", 202, progress=error.progress)
    response.headers["refresh"] = "1"
    return response


def _toolemu_error(request: Request, error: Exception) -> Response:
    """Show an error that the user can fix, such as a damaged file."""
    return _problem(request, HTTPStatus.INTERNAL_SERVER_ERROR, str(error))


def _problem(request: Request, status: int, message: str) -> Response:
    """Answer with a page, or with the text alone if a script asked, which shows it beside what the person did."""
    if request.method == "POST":
        return PlainTextResponse(message, status)
    return page(request, "error.html.j2", status, message=message)


DEFAULT_PORT: Final = 8731
_SECONDS_TO_FINISH: Final = 1
_NO_ADDRESS: Final = "--host: {!r} is no address of this computer; leave it out, or name one such as 127.0.0.1"


class UiServer:
    """A server for a run directory. Browsers can connect once it is created; ``run`` answers them."""

    def __init__(
        self,
        directory: Path,
        host: str = "127.0.0.1",
        port: int | None = None,
        read_only: bool = False,
        folders: ProjectFolders | None = None,
    ) -> None:
        self._socket = _listening(host, port)
        self.port: int = self._socket.getsockname()[1]
        rules = access_rules(host, self.port, read_only=read_only)
        self.ui = UiContext(directory, rules, folders or ProjectFolders())
        config = uvicorn.Config(
            create_app(self.ui),
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_SECONDS_TO_FINISH,
        )
        self.server = uvicorn.Server(config)
        self.origin = f"http://{_url_host(host)}:{self.port}"

    def new_url(self) -> str:
        """Return a URL that opens the application in one browser, once."""
        return f"{self.origin}/?{urlencode({TOKEN: self.ui.rules.new_token()})}"

    def run(self) -> None:
        """Answer requests until the process gets SIGINT or SIGTERM, or ``server.should_exit`` is set."""
        try:
            self.server.run(sockets=[self._socket])
        finally:
            self._socket.close()
            self.ui.playground.close()


def _url_host(host: str) -> str:
    """Return the host of URLs for a browser on this computer, which cannot open 0.0.0.0 everywhere."""
    if is_every_address(host):
        return "[::1]" if ":" in host else "127.0.0.1"
    return f"[{host}]" if ":" in host else host


def _listening(host: str, port: int | None) -> socket.socket:
    """Return a listening socket. Without a port, it is the default one, or any free one if that is in use."""
    if not host:  # the socket module would take it for every address
        raise UsageError(_NO_ADDRESS.format(host))
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, DEFAULT_PORT if port is None else port))
        listening.listen(128)
    except OSError as error:
        listening.close()
        if port is None and error.errno == errno.EADDRINUSE:
            return _listening(host, 0)
        if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
            raise UsageError(_NO_ADDRESS.format(host)) from None
        problem = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be used ({error})"
        remedy = "name another one, or leave it out to get a free one"
        raise UsageError(f"--port: port {port or DEFAULT_PORT} of {host} {problem}; {remedy}") from None
    return listening
