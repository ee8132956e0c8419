"""The playground: choose or write a case, and who plays which part."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.messages import ToolSpec
from pytest_toolemu.core.tool_functions import describe
from pytest_toolemu.core.trajectory import UserReply
from pytest_toolemu.errors import DocumentError, ToolemuError, UsageError
from pytest_toolemu.reporting.transcript import MAX_TEXT, case_html, pretty_json, said_before, unjudged_steps
from pytest_toolemu.settings import NOACT, REFERENCE
from pytest_toolemu.ui.context import context_of, page
from pytest_toolemu.ui.filled_form import read_form
from pytest_toolemu.ui.play import MAX_TURNS, AnswerMove, CallMove, Play, PlaySetup, SayMove, play_cost, play_costs
from pytest_toolemu.ui.players import result_problems
from pytest_toolemu.ui.playground import Playground
from pytest_toolemu.ui.playground_cases import KINDS, NEW_CASE, save_play
from pytest_toolemu.ui.requests import FormError, answer_form
from pytest_toolemu.ui.schema_form import FormField, form_fields


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


async def act(request: Request) -> Response:
    """Do what a form of the page asks for."""
    return await answer_form(request, _act)


Form = dict[str, Any]
REPLIES: Final = ("answer", "consent", "refuse", "unknown", "over")
"""What the user can do, as in records."""


def _act(request: Request, form: Form) -> dict[str, Any]:
    shown = play_of(request)
    action = _ACTIONS.get(request.path_params["action"])
    if action is None:
        raise HTTPException(404, f"a play has no action {request.path_params['action']!r}")
    return action(context_of(request).playground, shown, form) or {}


def _call(playground: Playground, shown: Play, form: Form) -> None:
    chosen = shown.resolved_case.tools.get(_text(form, "tool"))
    if chosen is None:
        raise FormError("choose a tool", {"tool": "choose a tool"})
    arguments = _filled(chosen.parameters, form)
    playground.resolve(shown, _turn(form), CallMove(_text(form, "tool"), arguments))


def _say(playground: Playground, shown: Play, form: Form) -> None:
    playground.resolve(shown, _turn(form), SayMove(_required(form, "text", "write what you say to the user")))


def _answer(playground: Playground, shown: Play, form: Form) -> None:
    playground.resolve(shown, _turn(form), AnswerMove(_required(form, "text", "write the answer")))


def _quit(playground: Playground, shown: Play, form: Form) -> None:
    playground.resolve(shown, _turn(form), AnswerMove(_text(form, "text"), is_quit=True))


def _result(playground: Playground, shown: Play, form: Form) -> None:
    current = shown.turn
    if current is None or current.call is None:
        playground.resolve(shown, _turn(form))  # raises: the turn is over
        return
    answered = shown.resolved_case.tools[current.call.name]
    if error := _text(form, "error"):
        content: Any = {"error": f"{error}: {_required(form, 'message', 'write the message of the error')}"}
    else:
        content = _filled(answered.returns, form)
    if problems := result_problems(answered, content):
        raise FormError("\n".join(problems))
    playground.resolve(shown, _turn(form), content)


def _reply(playground: Playground, shown: Play, form: Form) -> None:
    kind, facts = _text(form, "kind"), form.get("facts", [])
    conversation = shown.resolved_case.case.conversation
    known = [fact.id for fact in conversation.facts] if conversation is not None else []
    if kind not in REPLIES or not isinstance(facts, list) or any(fact not in known for fact in facts):
        raise FormError("choose what the user does, and only facts of the case", {"kind": "choose one"})
    text = "" if kind == "over" else _required(form, "text", "write what the user replies")
    reply = UserReply.model_validate({"kind": kind, "text": text, "facts": () if kind == "over" else tuple(facts)})
    playground.resolve(shown, _turn(form), reply)


def _deliver(playground: Playground, shown: Play, form: Form) -> None:
    playground.resolve(shown, _turn(form))


def _pace(playground: Playground, shown: Play, form: Form) -> None:
    playground.set_stepping(shown, form.get("stepping") is True)


def _stop(playground: Playground, shown: Play, _: Form) -> None:
    playground.stop(shown)


def _fork(playground: Playground, shown: Play, form: Form) -> dict[str, Any]:
    index = form.get("index")
    fork = playground.fork(shown, index if isinstance(index, int) else -1, _json(form, "content"))
    return {"next": f"/playground/plays/{fork.id}"}


def _save(playground: Playground, shown: Play, form: Form) -> dict[str, Any]:
    kind = next((each for each in KINDS if each == form.get("kind")), None)
    if kind is None:
        raise FormError("choose what to save", {"kind": f"choose one of {', '.join(KINDS)}"})
    saved = save_play(playground.shelf, shown, kind, _required(form, "case_id", "write an ID for the case"))
    return {"message": "\n".join([f"Saved as {saved.path}", *saved.notes])}


_ACTIONS: Final[Mapping[str, Callable[[Playground, Play, Form], dict[str, Any] | None]]] = {
    "call": _call,
    "say": _say,
    "answer": _answer,
    "quit": _quit,
    "result": _result,
    "reply": _reply,
    "deliver": _deliver,
    "pace": _pace,
    "stop": _stop,
    "fork": _fork,
    "save": _save,
}


def _filled(schema: dict[str, Any], form: Form) -> Any:
    """Return the value of the form of a schema; the JSON text instead of it, if there is any, is not checked."""
    if _text(form, "raw").strip():
        return _json(form, "raw")
    texts = form.get("fields", {})
    if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
        raise FormError("the fields of a form are text")
    filled = read_form(schema, texts)
    if filled.problems:
        rest = {name: text for name, text in filled.problems.items() if name}
        raise FormError(filled.problems.get("", "correct the marked fields"), rest)
    return filled.value


def _json(form: Form, name: str) -> Any:
    try:
        return json.loads(_text(form, name))
    except (ValueError, RecursionError) as error:
        raise FormError("this is not JSON", {name: f"this is not JSON: {error}"}) from None


def _turn(form: Form) -> int:
    number = form.get("turn")
    return number if isinstance(number, int) else 0


def _text(form: Form, name: str) -> str:
    value = form.get(name, "")
    return value if isinstance(value, str) else ""


def _required(form: Form, name: str, message: str) -> str:
    text = _text(form, name).strip()
    if not text:
        raise FormError(message, {name: message})
    return text


ROUTES = (
    Route("/playground", playground),
    Route("/playground/new", setup),
    Route("/playground/check", check, methods=["POST"]),
    Route("/playground/plays", start, methods=["POST"]),
    Route("/playground/plays/{play}", play),
    Route("/playground/plays/{play}/log", log),
    Route("/playground/plays/{play}/turn", turn),
    Route("/playground/plays/{play}/tool", tool),
    Route("/playground/plays/{play}/state", state),
    Route("/playground/plays/{play}/{action}", act, methods=["POST"]),
)
