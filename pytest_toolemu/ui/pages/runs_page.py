"""The runs of a session in a table with filters and pages."""

from __future__ import annotations

from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from pytest_toolemu.ui.context import page, runs_of, session_of
from pytest_toolemu.ui.filter_notices import filter_notices
from pytest_toolemu.ui.run_filter import RunFilter, RunsPage


def session_start(request: Request) -> Response:
    """Lead to the first page of a session."""
    session = session_of(request)
    return RedirectResponse(f"/sessions/{quote(session.id)}/results", 303)


def runs(request: Request) -> Response:
    """Show the runs that match the filter in the URL, 100 on a page."""
    session = session_of(request)
    session_runs = runs_of(request, session)
    run_filter = RunFilter.of_query(request.query_params)
    shown = RunsPage.of(run_filter.matching(session_runs.runs), request.query_params.get("page", "1"))
    return page(
        request,
        "runs.html.j2",
        session=session,
        session_runs=session_runs,
        filter=run_filter,
        unknown=filter_notices(request.query_params, session_runs),
        page=shown,
    )


ROUTES = (Route("/sessions/{session}", session_start), Route("/sessions/{session}/runs", runs))
