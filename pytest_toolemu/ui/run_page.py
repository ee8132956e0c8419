"""One run: its transcript, model calls, cost, and times, and the runs before and after it in the table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pytest_toolemu.analysis.run_summary import RunSummary
from pytest_toolemu.core.messages import Message, ModelCall
from pytest_toolemu.core.run import Run
from pytest_toolemu.reporting.transcript import MAX_TEXT, transcript_values
from pytest_toolemu.reporting.world_view import final_tables
from pytest_toolemu.sessions.reader import prices_of, summarize_run
from pytest_toolemu.sessions.store import record_text
from pytest_toolemu.ui.context import context_of, page, runs_of, session_of
from pytest_toolemu.ui.run_filter import RunFilter
from pytest_toolemu.ui.session_index import IndexedRun, SessionFolder, SessionRuns


def run(request: Request) -> Response:
    """Show a run."""
    session, record = session_of(request), _record(request)
    name = request.path_params["run"]
    runs, run_filter = runs_of(request, session), RunFilter.of_query(request.query_params)
    return page(
        request,
        "run.html.j2",
        **transcript_values(record),
        longest=MAX_TEXT,
        session=session,
        filter=run_filter,
        neighbors=neighbors_of(name, run_filter.matching(runs.runs)),
        summary=_summary(session, runs, name, record),
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


def _summary(session: SessionFolder, runs: SessionRuns, name: str, record: Run) -> RunSummary:
    """Return the summary of a run; an older evaluation is not among those of the session."""
    current = next((run.summary for run in runs.runs if run.name == name), None)
    return current or summarize_run(record, "", prices_of(session.folder))


ROUTES = (
    Route("/sessions/{session}/runs/{run}", run),
    Route("/sessions/{session}/runs/{run}/calls/{number:int}", model_call),
    Route("/sessions/{session}/runs/{run}/record", stored_record),
)


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
