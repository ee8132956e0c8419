"""The pages of sessions: their list, live state, results, runs, and each run with its model calls and times."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from time import time
from typing import Any, Final
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from pytest_toolemu.core.messages import Message, ModelCall
from pytest_toolemu.core.run import Run, sha256
from pytest_toolemu.formats.text import counted
from pytest_toolemu.reporting.transcript import MAX_TEXT, final_tables, transcript_values
from pytest_toolemu.sessions.live_session import LiveSession
from pytest_toolemu.sessions.store import item_mark, mark_of, prices_of, record_text, summarize_run
from pytest_toolemu.ui.context import context_of, listed_session_of, measured, page, runs_of, session_of
from pytest_toolemu.ui.run_filter import RunFilter, RunsPage
from pytest_toolemu.ui.session_index import IndexedRun, SessionFolder, latest_runs, record_names


def sessions(request: Request) -> Response:
    """Show all sessions. Outcomes of sessions whose records were not read yet are loaded one after another."""
    listed = context_of(request).index.sessions()
    return page(request, "sessions.html.j2", sessions=listed, listed=_hash(listed), is_news=False)


def session_list(request: Request) -> Response:
    """Show the list alone. ``known`` is the hash of the one that the browser has: nothing is sent if it is current."""
    listed = context_of(request).index.sessions()
    current = _hash(listed)
    if request.query_params.get("known") == current:
        return Response(status_code=204)
    return page(request, "session_list.html.j2", sessions=listed, listed=current, is_news=True)


def session_row(request: Request) -> Response:
    """Show one session with its outcomes, as a row of the table."""
    session = listed_session_of(request)
    if session is None:
        return Response(status_code=204)
    runs = None if session.problem else context_of(request).index.runs(session)
    return page(request, "session_row.html.j2", session=replace(session, runs=runs))


def _hash(listed: Iterable[SessionFolder]) -> str:
    """Return a hash of what the list shows, without what the rows of running sessions update themselves."""
    return sha256(
        [
            (one.id, "" if one.is_running else one.records, one.live.life if one.live else "", one.resumed_by)
            for one in listed
        ]
    )[:16]


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
    return page(request, "runs.html.j2", session=session, session_runs=session_runs, filter=run_filter, page=shown)


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


def live_start(request: Request) -> Response:
    """Lead to the newest session that runs. Without one, the page that says so asks again every second."""
    is_poll = "hx-request" in request.headers
    session = next((each for each in context_of(request).index.sessions() if each.is_running), None)
    if session is not None:
        target = f"/sessions/{session.id}/live"
        return Response(headers={"hx-redirect": target}) if is_poll else RedirectResponse(target, 303)
    return Response(status_code=204) if is_poll else page(request, "live_start.html.j2")


def run(request: Request) -> Response:
    """Show a run."""
    session, record = session_of(request), _record(request)
    name = request.path_params["run"]
    runs, run_filter = runs_of(request, session), RunFilter.of_query(request.query_params)
    current = next((each.summary for each in runs.runs if each.name == name), None)
    return page(
        request,
        "run.html.j2",
        **transcript_values(record),
        longest=MAX_TEXT,
        session=session,
        filter=run_filter,
        neighbors=neighbors_of(name, run_filter.matching(runs.runs)),
        # An older evaluation is not among those of the session.
        summary=current or summarize_run(record, "", prices_of(session.folder)),
        tables_at_end=final_tables(record),
        timeline=run_timeline(record),
        run_url=f"/sessions/{quote(session.id)}/runs/{quote(name)}",
    )


def model_call(request: Request) -> Response:
    """Show the messages and the reply of a request: as a page, or as the part of a page that htmx requests."""
    session, record = session_of(request), _record(request)
    number = request.path_params["number"]
    if not 1 <= number <= len(record.model_calls):
        raise HTTPException(404, f"the run has no model call {number}")
    call = record.model_calls[number - 1]
    template = "model_call.html.j2" if "hx-request" in request.headers else "model_call_page.html.j2"
    name = request.path_params["run"]
    return page(
        request,
        template,
        longest=MAX_TEXT,
        session=session,
        run=record,
        number=number,
        call=call,
        messages=request_messages(record, call),
        run_url=f"/sessions/{quote(session.id)}/runs/{quote(name)}",
    )


def stored_record(request: Request) -> Response:
    """Answer with the run as one self-contained JSON record, as ``toolemu show --json`` prints it."""
    text = record_text(_record(request))
    name = quote(f"{request.path_params['run']}.json")
    headers = {"content-disposition": f"attachment; filename*=UTF-8''{name}"}
    return Response(text, media_type="application/json", headers=headers)


def neighbors_of(name: str, runs: list[IndexedRun]) -> dict[str, Any]:
    """Return the place of a run among those of a filter, from 1 (0 if it is none), the runs beside it, and failures."""
    stored = [run for run in runs if run.name]
    index = next((index for index, run in enumerate(stored) if run.name == name), None)
    before, after = ([], stored) if index is None else (stored[:index][::-1], stored[index + 1 :])
    return {
        "position": 0 if index is None else index + 1,
        "total": len(stored),
        "previous": next(iter(before), None),
        "next": next(iter(after), None),
        "previous_failure": next((run for run in before if run.outcome == "failed"), None),
        "next_failure": next((run for run in after if run.outcome == "failed"), None),
    }


def _record(request: Request) -> Run:
    session, name = session_of(request), request.path_params["run"]
    record = context_of(request).index.load(session, name)
    if record is None:
        raise HTTPException(404, f"the session {session.id!r} has no run {name!r}")
    return record


@dataclass(frozen=True)
class TimelineEntry:
    """A request to a model, or a tool call; ``number`` counts from 1.

    ``at`` is the start in seconds since that of the first entry; None if the record does not have it.
    """

    number: int
    label: str
    at: float | None
    seconds: float
    call: ModelCall | None = None
    """The request; None for a tool call."""


@dataclass(frozen=True)
class RunTimeline:
    """The entries of a run, the earliest first; ``total`` is the time in seconds until the last one ended."""

    entries: tuple[TimelineEntry, ...]
    total: float

    def left(self, entry: TimelineEntry) -> float:
        """Return where the bar of an entry begins, in percent of the whole time."""
        return round(100 * (entry.at or 0) / self.total, 2) if self.total else 0

    def width(self, entry: TimelineEntry) -> float:
        """Return the length of the bar of an entry, in percent of the whole time; at least half a percent."""
        return round(max(0.5, 100 * entry.seconds / self.total), 2) if self.total else 0.5


def run_timeline(run: Run) -> RunTimeline:
    """Return the timeline of a run."""
    starts = [call.started for call in run.model_calls] + [step.started for step in run.steps]
    first = min(filter(None, starts), default=0.0)

    def since(started: float) -> float | None:
        return started - first if started else None

    calls = [
        TimelineEntry(number, call.role, since(call.started), call.seconds, call)
        for number, call in enumerate(run.model_calls, 1)
    ]
    steps = [
        TimelineEntry(number, step.call.name, since(step.started), step.seconds)
        for number, step in enumerate(run.steps, 1)
    ]
    entries = tuple(sorted((*calls, *steps), key=lambda entry: (entry.at is None, entry.at or 0.0)))
    return RunTimeline(entries, max((entry.at + entry.seconds for entry in entries if entry.at is not None), default=0))


def request_messages(run: Run, call: ModelCall) -> list[Message]:
    """Return the messages of a request; those that a damaged record lacks are left out."""
    return [run.messages[index] for index in call.messages if 0 <= index < len(run.messages)]


ROUTES = (
    Route("/", sessions),
    Route("/sessions", session_list),
    Route("/sessions/{session}/row", session_row),
    Route("/sessions/{session}/results", results),
    Route("/sessions/{session}/slices/{dimension}", slice_tables),
    Route("/sessions/{session}", session_start),
    Route("/sessions/{session}/runs", runs),
    Route("/sessions/{session}/live", live),
    Route("/sessions/{session}/live/state", live_state),
    Route("/sessions/{session}/live/mark", live_mark),
    Route("/live", live_start),
    Route("/sessions/{session}/runs/{run}", run),
    Route("/sessions/{session}/runs/{run}/calls/{number:int}", model_call),
    Route("/sessions/{session}/runs/{run}/record", stored_record),
)
