"""The playground: choose or write a case, and who plays which part."""

from __future__ import annotations

from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.errors import DocumentError, ToolemuError, UsageError
from pytest_toolemu.settings import NOACT, REFERENCE
from pytest_toolemu.ui.context import context_of, page
from pytest_toolemu.ui.form_requests import answer_form
from pytest_toolemu.ui.playground.case_shelf import NEW_CASE
from pytest_toolemu.ui.playground.play import Play
from pytest_toolemu.ui.playground.play_costs import play_cost
from pytest_toolemu.ui.playground.play_setup import MAX_TURNS, PlaySetup


def playground(request: Request) -> Response:
    """Show the cases to choose from, and the plays so far."""
    ui = context_of(request)
    refuse_read_only(request)
    shelf = ui.playground.shelf
    return page(
        request,
        "playground.html.j2",
        project=shelf.of_project(),
        benchmark=shelf.of_benchmark,
        toolkits=shelf.toolkits(),
        plays=[(play, play_cost(play)) for play in ui.playground.plays()],
        sessions=ui.library.playground_sessions(),
    )


def setup(request: Request) -> Response:
    """Show the text of a case, and the form that starts a play."""
    refuse_read_only(request)
    shelf, query = context_of(request).playground.shelf, request.query_params
    name = query.get("case") or NEW_CASE
    try:
        text = shelf.text(name) if query.get("case") else shelf.template(query.get("toolkit", ""))
    except UsageError as error:
        raise HTTPException(404, str(error)) from None
    try:
        agents = _agents(shelf.case(name, text)) if query.get("case") else [NOACT]
        problems = []
    except DocumentError as error:  # it can be corrected here
        agents, problems = [NOACT], error.problems
    return page(
        request,
        "playground_setup.html.j2",
        case_id=name,
        text=text,
        agents=agents,
        problems=problems,
        max_turns=MAX_TURNS,
    )


async def check(request: Request) -> Response:
    """Answer with the problems of a case that is being written."""
    return await answer_form(request, _check)


async def start(request: Request) -> Response:
    """Start a play, and answer with its URL."""
    return await answer_form(request, _start)


def refuse_read_only(request: Request) -> None:
    """Raise HTTPException in an application that only shows."""
    if context_of(request).rules.read_only:
        raise HTTPException(403, "this application only shows; start toolemu ui without --read-only to play a case")


def play_of(request: Request) -> Play:
    """Return the play that the path of a request names. Raise HTTPException if there is none."""
    refuse_read_only(request)
    play_id = request.path_params["play"]
    found = context_of(request).playground.play(play_id)
    if found is None:
        raise HTTPException(404, f"there is no play {play_id!r}; plays end with the application, their records remain")
    found.touch()
    return found


def _check(request: Request, body: dict[str, Any]) -> dict[str, Any]:
    form = PlaySetup.of(body)
    case = context_of(request).playground.shelf.case(form.case_id, form.text)
    return {"title": case.case.title, "agents": _agents(case)}


def _start(request: Request, body: dict[str, Any]) -> dict[str, Any]:
    try:
        play = context_of(request).playground.start(PlaySetup.of(body))
    except OSError as error:
        raise ToolemuError(f"the play cannot start: {error}") from None
    return {"next": f"/playground/plays/{play.id}"}


def _agents(case: ResolvedCase) -> list[str]:
    """Return the agents that need no key: each reference of the case, and the one that does nothing."""
    return [*(f"{REFERENCE}{name}" for name in {**case.case.references, **case.case.unlabeled}), NOACT]


ROUTES = (
    Route("/playground", playground),
    Route("/playground/new", setup),
    Route("/playground/check", check, methods=["POST"]),
    Route("/playground/plays", start, methods=["POST"]),
)
