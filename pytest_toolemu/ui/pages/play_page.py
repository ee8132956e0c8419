"""One play: what happened so far, and the form for what a person does next."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pytest_toolemu.core.agent_access.tool_functions import describe
from pytest_toolemu.core.messages import ToolSpec
from pytest_toolemu.reporting.transcript import MAX_TEXT, case_html, pretty_json, said_before, unjudged_steps
from pytest_toolemu.ui.context import context_of, page
from pytest_toolemu.ui.pages.play_actions import REPLIES, act
from pytest_toolemu.ui.pages.playground_page import play_of
from pytest_toolemu.ui.playground.play import Play
from pytest_toolemu.ui.playground.play_costs import play_costs
from pytest_toolemu.ui.playground.saved_cases import KINDS
from pytest_toolemu.ui.playground.schema_form import FormField, form_fields


def play(request: Request) -> Response:
    """Show a play. Scripts of the page keep it current."""
    shown = play_of(request)
    description = Markup(case_html(shown.resolved_case.case))
    return page(request, "play.html.j2", description=description, **_parts(request, shown))


def log(request: Request) -> Response:
    """Return the calls so far, without the page around them."""
    return page(request, "play_log.html.j2", **_parts(request, play_of(request)))


def turn(request: Request) -> Response:
    """Return what a person has to do now, without the page around it."""
    return page(request, "play_turn.html.j2", **_parts(request, play_of(request)))


def tool(request: Request) -> Response:
    """Return the form of a tool, without the page around it."""
    shown, name = play_of(request), request.query_params.get("tool", "")
    chosen = shown.resolved_case.tools.get(name)
    if chosen is None:
        raise HTTPException(404, f"the case has no tool {name!r}")
    spec = ToolSpec(name=name, description=describe(chosen), parameters=chosen.parameters)
    return page(
        request, "play_tool.html.j2", play=shown, tool=spec, fields=form_fields(chosen.parameters), longest=MAX_TEXT
    )


def state(request: Request) -> Response:
    """Return what a page of the play asks for again and again, to update itself when it has changed.

    A connection for each open page, over which changes are sent, would soon use up those of a browser.
    """
    shown = play_of(request)
    # The version first, so that a change after it is not taken for shown.
    return JSONResponse({"version": shown.version, "status": shown.status, "state": _state(shown)})


def _state(shown: Play) -> str:
    """Return a text that changes when a person has something else to do."""
    number = shown.turn.number if shown.turn is not None else 0
    work = "" if shown.turn is not None else "emulator" if shown.call is not None else "agent"
    # The form that a person is filling must stay when the pace changes.
    pace = shown.is_stepping if shown.turn is None else ""
    return f"{number} {work} {shown.status} {pace}"


def _parts(request: Request, shown: Play) -> dict[str, Any]:
    """Return what the templates of a play need."""
    # First, so that a change after it is not taken for shown.
    version, state_now = shown.version, _state(shown)
    library, record = context_of(request).library, shown.record
    said = list(shown.trajectory.dialogue) if shown.trajectory is not None else []
    steps = unjudged_steps(shown.steps, said, shown.resolved_case.toolkits)
    return {
        "play": shown,
        "version": version,
        "state": state_now,
        "record_url": f"/sessions/{library.id_of(record.parent)}/runs/{record.stem}" if record is not None else "",
        "case": shown.resolved_case.case,
        "steps": steps,
        "said_last": said_before(said, len(steps)),
        "turn": shown.turn,
        "tools": shown.resolved_case.tools,
        "fields": _result_fields(shown),
        "costs": play_costs(shown),
        "replies": REPLIES,
        "kinds": KINDS,
        "pretty": pretty_json,
        "longest": MAX_TEXT,
    }


def _result_fields(shown: Play) -> tuple[FormField, ...]:
    """Return the fields of the result that a person has to give as the emulator, filled with the suggested one."""
    current = shown.turn
    if current is None or current.kind != "emulate" or current.call is None:
        return ()
    suggestion = current.observation.content if current.observation is not None else None
    return form_fields(shown.resolved_case.tools[current.call.name].returns, suggestion)


ROUTES = (
    Route("/playground/plays/{play}", play),
    Route("/playground/plays/{play}/log", log),
    Route("/playground/plays/{play}/turn", turn),
    Route("/playground/plays/{play}/tool", tool),
    Route("/playground/plays/{play}/state", state),
    Route("/playground/plays/{play}/{action}", act, methods=["POST"]),
)
