"""The web application as an ASGI app."""

from __future__ import annotations

from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from pytest_toolemu.errors import ToolemuError
from pytest_toolemu.ui.context import StillReadingError, UiContext, page
from pytest_toolemu.ui.pages import (
    agreement_page,
    compare_page,
    label_page,
    live_page,
    live_start_page,
    play_page,
    playground_page,
    results_page,
    review_page,
    run_page,
    runs_page,
    sessions_page,
)
from pytest_toolemu.ui.security import SecurityMiddleware
from pytest_toolemu.ui.static_files import static_file

_PAGES = (
    sessions_page,
    live_page,
    live_start_page,
    results_page,
    runs_page,
    run_page,
    compare_page,
    label_page,
    agreement_page,
    playground_page,
    play_page,
    review_page,
)
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
