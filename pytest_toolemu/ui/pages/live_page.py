"""A session while it runs: its progress, the cases in flight, rate limits, and what has finished last."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from time import time
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pytest_toolemu.formats.counted import counted
from pytest_toolemu.sessions.live_session import LiveSession
from pytest_toolemu.sessions.store import item_mark, mark_of
from pytest_toolemu.ui.context import listed_session_of, page, session_of
from pytest_toolemu.ui.latest_runs import latest_runs
from pytest_toolemu.ui.run_index import record_names
from pytest_toolemu.ui.session_folder import SessionFolder

_LATEST: Final = 12
_SHOWN: Final = 100


def live(request: Request) -> Response:
    """Show a running session, one that died, or one that has ended; the first keeps itself up to date."""
    return _show(request, session_of(request), "live.html.j2")


def live_state(request: Request) -> Response:
    """Show the part of the page that changes. ``announced`` is the text that a screen reader read last.

    If the session was deleted, say so once: an error would leave the page as it was, and it would ask every second.
    """
    session = listed_session_of(request)
    if session is None:
        return page(request, "live_deleted.html.j2", session_id=request.path_params["session"])
    return _show(request, session, "live_state.html.j2")


def live_mark(request: Request) -> Response:
    """Show the mark of a running session in the list of sessions; when it has ended, its row is loaded again."""
    session = listed_session_of(request)
    if session is None:
        return Response(status_code=204)
    return page(request, "live_mark.html.j2", session=session, live=session.live)


def _show(request: Request, session: SessionFolder, template: str) -> Response:
    now = time()
    live = _without_stored(session.live, session.folder)
    finished = latest_runs(session.folder, _LATEST) if live is not None else []
    announced = _announcement(live)
    return page(
        request,
        template,
        session=session,
        live=live,
        now=now,
        shown=_SHOWN,
        finished=finished,
        announced=announced,
        is_news=announced != request.query_params.get("announced"),
    )


def _without_stored(live: LiveSession | None, folder: Path) -> LiveSession | None:
    """Leave out the cases of a session that died whose run was stored after the last live file."""
    if live is None or live.life != "died":
        return live
    stored = {mark_of(name) for name in record_names(folder)}
    return replace(
        live, cases=tuple(one for one in live.cases if item_mark(one.case.case, one.case.item) not in stored)
    )


def _announcement(live: LiveSession | None) -> str:
    """Return what a screen reader says. It changes with every tenth of the session, not with every case."""
    if live is None:
        return "The session has ended."
    if live.life == "died":
        return "The session's process has died."
    progress = live.progress
    tenths = 10 * progress.completed // progress.total if progress.total else 0
    failed = progress.outcomes.get("failed", 0)
    return f"{10 * tenths} % of {counted(progress.total, 'case')} done, {failed} failed."


ROUTES = (
    Route("/sessions/{session}/live", live),
    Route("/sessions/{session}/live/state", live_state),
    Route("/sessions/{session}/live/mark", live_mark),
)
