"""The results of a session: gates, metrics of agents, risks, scores, and how reliable they are."""

from __future__ import annotations

from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pytest_toolemu.ui.context import context_of, measured, page, runs_of, session_of
from pytest_toolemu.ui.session_folder import SessionFolder


def results(request: Request) -> Response:
    """Show the results; every number leads to its runs."""
    ui, session = context_of(request), measured(session_of(request))
    runs = runs_of(request, session)
    shown = ui.results.results(session, runs)
    return page(
        request,
        "results.html.j2",
        session=session,
        session_runs=runs,
        results=shown,
        runs_url=_url(session, "runs"),
        slices_url=_url(session, "slices"),
        **shown.sections,
    )


def slice_tables(request: Request) -> Response:
    """Show the metrics of every slice of one dimension: as a page, or as the part of a page that htmx requests."""
    ui, session = context_of(request), measured(session_of(request))
    sections = ui.results.metrics(session, runs_of(request, session)).sections
    grid = next((grid for grid in sections["grids"] if grid.dimension == request.path_params["dimension"]), None)
    if grid is None:
        raise HTTPException(404, f"there are no slices by {request.path_params['dimension']!r}")
    template = "slice_tables.html.j2" if "hx-request" in request.headers else "slice.html.j2"
    runs_url = _url(session, "runs")
    return page(request, template, session=session, grid=grid, agents=sections["agents"], runs_url=runs_url)


def _url(session: SessionFolder, name: str) -> str:
    return f"/sessions/{quote(session.id)}/{name}"


ROUTES = (
    Route("/sessions/{session}/results", results),
    Route("/sessions/{session}/slices/{dimension}", slice_tables),
)
