"""Two sessions, or two agents, side by side: changes of metrics, changed verdicts, and where transcripts diverge."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pytest_toolemu.analysis.run_summary import RunSummary
from pytest_toolemu.core.run import Run
from pytest_toolemu.errors import UsageError
from pytest_toolemu.reporting.comparison import (
    CHANGES,
    CaseChange,
    changes_by_importance,
    compare_agents,
    compare_sessions,
    first_divergence,
)
from pytest_toolemu.reporting.transcript import transcript_html
from pytest_toolemu.ui.context import UiContext, context_of, measured, page, session_of_id
from pytest_toolemu.ui.run_filter import RunsPage
from pytest_toolemu.ui.session_index import SessionFolder

SIDES = ("before", "after")
_PARAMETERS = (*(f"{side}{part}" for side in SIDES for part in ("", "_agent")), "change", "q")


@dataclass(frozen=True)
class Side:
    """One side of a comparison: a session, and one of its agents; without an agent, all of them."""

    session: SessionFolder
    agent: str
    runs: tuple[RunSummary, ...]
    titles: dict[str, str]
    """The titles of cases by the names of runs."""


@dataclass(frozen=True)
class ComparedRun:
    """One side of two compared transcripts."""

    session: SessionFolder
    name: str
    run: Run

    def transcript(self, prefix: str) -> Markup:
        """Return the transcript; ``prefix`` makes the targets of its links unique."""
        return Markup(transcript_html(self.run, prefix=prefix))


def compare(request: Request) -> Response:
    """Show what changed between the sessions in the URL; without them, a form to choose them."""
    ui, query = context_of(request), request.query_params
    sessions = [session for session in ui.index.sessions() if session.records]
    sides = [_side(ui, query.get(name, ""), query.get(f"{name}_agent", "")) for name in SIDES]
    values: dict[str, Any] = {"sessions": sessions, "sides": sides, "names": SIDES, "comparisons": [], "problem": ""}
    before, after = sides
    if before is not None and after is not None:
        try:
            are_agents = bool(before.agent and after.agent)
            compared = (
                [compare_agents(before.runs, after.runs)] if are_agents else compare_sessions(before.runs, after.runs)
            )
            values["comparisons"] = compared
        except UsageError as error:
            values["problem"] = str(error)
    changes = _matching(
        changes_by_importance(values["comparisons"]), query.get("change", ""), query.get("q", ""), after
    )
    values["page"] = RunsPage.of(changes, query.get("page", "1"))
    values["parameters"] = {name: query[name] for name in _PARAMETERS if query.get(name)}
    return page(request, "compare_sessions.html.j2", kinds=CHANGES, name_of=_name, **values)


def compare_runs(request: Request) -> Response:
    """Show two runs beside each other, and where they first differ."""
    before, after = (_run(request, side) for side in SIDES)
    divergence = first_divergence(before.run, after.run)
    return page(
        request,
        "compare_runs.html.j2",
        sides=list(zip(SIDES, (before, after), strict=True)),
        divergence=divergence,
        # The end of the target of a link to the step at which runs diverge; empty for another place.
        target=divergence.place.replace(" ", "-") if divergence and divergence.place.startswith("step ") else "",
    )


def _side(ui: UiContext, session_id: str, agent: str) -> Side | None:
    """Return one side; None if no session is chosen. Raise HTTPException if it does not exist."""
    if not session_id:
        return None
    session = measured(session_of_id(ui, session_id))
    session_runs = ui.index.runs(session)
    session = replace(session, runs=session_runs)
    runs = [run for run in session_runs.runs if run.name]
    chosen = [run for run in runs if agent in ("", run.summary.agent)]
    return Side(session, agent, tuple(run.summary for run in chosen), {run.name: run.title for run in chosen})


def _matching(changes: list[CaseChange], kind: str, words: str, after: Side | None) -> list[CaseChange]:
    """Return the changes of a kind whose case, title, or agent contains all words; ``flipped`` is a changed outcome."""
    titles = after.titles if after is not None else {}

    def matches(change: CaseChange) -> bool:
        if kind and not (change.flipped if kind == "flipped" else change.kind == kind):
            return False
        text = "\n".join((change.after.case, titles.get(_name(change.after), ""), change.after.agent)).casefold()
        return all(word in text for word in words.casefold().split())

    return [change for change in changes if matches(change)]


def _name(summary: RunSummary) -> str:
    """Return the part of URLs that names the record of a run."""
    return Path(summary.path).stem


def _run(request: Request, side: str) -> ComparedRun:
    ui, query = context_of(request), request.query_params
    session, name = measured(session_of_id(ui, query.get(side, ""))), query.get(f"{side}_run", "")
    run = ui.index.load(session, name)
    if run is None:
        raise HTTPException(404, f"the session {session.id!r} has no run {name!r}")
    return ComparedRun(session, name, run)


ROUTES = (Route("/compare", compare), Route("/compare/runs", compare_runs))
