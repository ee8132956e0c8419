"""The way to a session that starts or runs: from the URL that pytest prints, and from ``/live``."""

from __future__ import annotations

from time import time
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from pytest_toolemu.sessions.store import MANIFEST
from pytest_toolemu.ui.context import context_of, page, session_of_id
from pytest_toolemu.ui.session_folder import SessionFolder, modified

# A session writes its first live file soon after its manifest. One that has none by then has ended.
_SECONDS_TO_BEGIN: Final = 3.0


def live_start(request: Request) -> Response:
    """Lead to a session: the one that the URL names once it has begun; without a name, the newest that runs.

    As long as there is none, the page that says so asks again every second.
    """
    name, is_poll = request.query_params.get("session", ""), "hx-request" in request.headers
    session = _named(request, name) if name else context_of(request).library.newest_running()
    if session is not None:
        target = f"/sessions/{session.id}/live"
        return Response(headers={"hx-redirect": target}) if is_poll else RedirectResponse(target, 303)
    return Response(status_code=204) if is_poll else page(request, "live_start.html.j2", name=name)


def _named(request: Request, name: str) -> SessionFolder | None:
    """Return the session with this ID; None if it is about to begin. Raise HTTPException if there is none."""
    ui = context_of(request)
    if name == ui.starting and ui.library.session(name) is None:
        return None
    session = session_of_id(ui, name)
    return session if session.live is not None or _is_older(session) else None


def _is_older(session: SessionFolder) -> bool:
    """Return whether a session without a live file has ended."""
    return time() - modified(session.folder / MANIFEST) / 1e9 > _SECONDS_TO_BEGIN


ROUTES = (Route("/live", live_start),)
