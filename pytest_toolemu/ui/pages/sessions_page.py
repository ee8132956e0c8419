"""The sessions of the run directory, with their agents, dates, and outcomes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pytest_toolemu.core.run import sha256
from pytest_toolemu.ui.context import context_of, listed_session_of, page
from pytest_toolemu.ui.session_folder import SessionFolder


def sessions(request: Request) -> Response:
    """Show all sessions. Outcomes of sessions whose records were not read yet are loaded one after another."""
    listed = context_of(request).library.sessions()
    return page(request, "sessions.html.j2", sessions=listed, listed=_hash(listed), is_news=False)


def session_list(request: Request) -> Response:
    """Show the list alone. ``known`` is the hash of the one that the browser has: nothing is sent if it is current."""
    listed = context_of(request).library.sessions()
    current = _hash(listed)
    if request.query_params.get("known") == current:
        return Response(status_code=204)
    return page(request, "session_list.html.j2", sessions=listed, listed=current, is_news=True)


def session_row(request: Request) -> Response:
    """Show one session with its outcomes, as a row of the table."""
    session = listed_session_of(request)
    if session is None:
        return Response(status_code=204)
    runs = None if session.problem else context_of(request).library.reader.runs(session)
    return page(request, "session_row.html.j2", session=replace(session, runs=runs))


def _hash(listed: Iterable[SessionFolder]) -> str:
    """Return a hash of what the list shows, without what the rows of running sessions update themselves."""
    return sha256(
        [
            (one.id, "" if one.is_running else one.records, one.live.life if one.live else "", one.resumed_by)
            for one in listed
        ]
    )[:16]


ROUTES = (
    Route("/", sessions),
    Route("/sessions", session_list),
    Route("/sessions/{session}/row", session_row),
)
