"""The playground: choose a case and who plays which part; then what happens, and the forms for what a person does."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from markupsafe import Markup
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.messages import ToolSpec
from pytest_toolemu.core.run import UserReply
from pytest_toolemu.core.tool_functions import describe
from pytest_toolemu.errors import DocumentError, ToolemuError, UsageError
from pytest_toolemu.formats.json_schema import inlined, violations
from pytest_toolemu.reporting.transcript import MAX_TEXT, case_html, pretty_json, said_before, unjudged_steps
from pytest_toolemu.settings.model_names import NOACT, REFERENCE
from pytest_toolemu.ui.context import context_of, json_object, page
from pytest_toolemu.ui.play import (
    MAX_TURNS,
    AnswerMove,
    CallMove,
    FormError,
    Play,
    PlaySetup,
    SayMove,
    play_cost,
    play_costs,
    result_problems,
)
from pytest_toolemu.ui.playground import KINDS, NEW_CASE, Playground, save_play

Form = dict[str, Any]
REPLIES: Final = ("answer", "consent", "refuse", "unknown", "over")
"""What the user can do, as in records."""


def playground(request: Request) -> Response:
    """Show the cases to choose from, and the plays so far."""
    ui = context_of(request)
    refuse_read_only(request)
    cases = ui.playground.cases
    return page(
        request,
        "playground.html.j2",
        project=cases.of_project(),
        benchmark=cases.of_benchmark,
        toolkits=cases.toolkits(),
        plays=[(play, play_cost(play)) for play in ui.playground.plays()],
        sessions=ui.index.sessions(of_playground=True),
    )


def setup(request: Request) -> Response:
    """Show the text of a case, and the form that starts a play."""
    refuse_read_only(request)
    cases, query = context_of(request).playground.cases, request.query_params
    name = query.get("case") or NEW_CASE
    try:
        text = cases.text(name) if query.get("case") else cases.template(query.get("toolkit", ""))
    except UsageError as error:
        raise HTTPException(404, str(error)) from None
    try:
        agents = _agents(cases.case(name, text)) if query.get("case") else [NOACT]
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
    return await _answer_form(request, _check)


async def start(request: Request) -> Response:
    """Start a play, and answer with its URL."""
    return await _answer_form(request, _start)


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
    return found


def _check(request: Request, body: dict[str, Any]) -> dict[str, Any]:
    form = PlaySetup.of(body)
    case = context_of(request).playground.cases.case(form.case_id, form.text)
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
    text = _lines(required_value(inlined(chosen.parameters)))
    return page(request, "play_tool.html.j2", play=shown, tool=spec, text=text, longest=MAX_TEXT)


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
    index, record = context_of(request).index, shown.record
    said = list(shown.trajectory.dialogue) if shown.trajectory is not None else []
    steps = unjudged_steps(shown.steps, said, shown.resolved_case.toolkits)
    return {
        "play": shown,
        "version": version,
        "state": state_now,
        "record_url": f"/sessions/{index.id_of(record.parent)}/runs/{record.stem}" if record is not None else "",
        "case": shown.resolved_case.case,
        "steps": steps,
        "said_last": said_before(said, len(steps)),
        "turn": shown.turn,
        "tools": shown.resolved_case.tools,
        "suggested": _suggested(shown),
        "costs": play_costs(shown),
        "replies": REPLIES,
        "kinds": KINDS,
        "pretty": pretty_json,
        "longest": MAX_TEXT,
    }


def required_value(schema: Any) -> Any:
    """Return a value with the required keys of a schema, which a person completes."""
    part: dict[str, Any] = schema if isinstance(schema, dict) else {}
    if "default" in part or "const" in part:
        return part.get("default", part.get("const"))
    if part.get("enum"):
        return part["enum"][0]
    if part.get("type") == "object":
        properties = part.get("properties", {})
        return {name: required_value(properties.get(name)) for name in part.get("required", ())}
    return {"string": "", "array": [], "boolean": False, "integer": 0, "number": 0}.get(str(part.get("type")))


def _suggested(shown: Play) -> str:
    """Return the text of the result that a person has to give as the emulator: the suggested one, or a template."""
    current = shown.turn
    if current is None or current.kind != "emulate" or current.call is None:
        return ""
    if current.observation is not None and not current.observation.is_error:
        return _lines(current.observation.content)
    return _lines(required_value(inlined(shown.resolved_case.tools[current.call.name].returns)))


def _lines(value: Any) -> str:
    """Return JSON with an entry on each line, as the completion of the editor needs it."""
    return json.dumps(value, ensure_ascii=False, indent=2)


async def _answer_form(request: Request, function: Callable[[Request, Form], dict[str, Any]]) -> Response:
    """Call a function in a thread with the form of a request, and return what it returns as JSON.

    If it raises a ToolemuError, the answer has ``refused`` instead, with what the person has to correct. It is not an
    error of HTTP: browsers would report one in their console whenever a person has mistyped something.
    """
    form = await json_object(request)
    try:
        return JSONResponse(await run_in_threadpool(function, request, form))
    except DocumentError as error:
        lines = [{"line": line, "column": column, "message": text} for line, column, text in error.problems]
        refused: dict[str, Any] = {"message": "the case is not valid", "lines": lines}
    except FormError as error:
        refused = {"message": "correct the marked fields", "problems": {error.field: str(error)}}
    except ToolemuError as error:
        refused = {"message": str(error)}
    return JSONResponse({"refused": refused})


async def act(request: Request) -> Response:
    """Do what a form of the page asks for."""
    return await _answer_form(request, _act)


def _act(request: Request, form: Form) -> dict[str, Any]:
    shown, name = play_of(request), request.path_params["action"]
    if action := _ACTIONS.get(name):
        return action(context_of(request).playground, shown, form) or {}
    if (move := _MOVES.get(name)) is None:
        raise HTTPException(404, f"a play has no action {name!r}")
    number = form.get("turn")
    turn = number if isinstance(number, int) else 0
    context_of(request).playground.resolve(shown, turn, move(shown, form))
    return {}


def _call(shown: Play, form: Form) -> CallMove:
    name = _text(form, "tool")
    chosen = shown.resolved_case.tools.get(name)
    if chosen is None:
        raise FormError("tool", "choose a tool")
    arguments = _json(form)
    completed = arguments
    if isinstance(arguments, dict):  # the form begins with empty required arguments
        required = chosen.parameters.get("required", ())
        completed = {key: value for key, value in arguments.items() if value != "" or key not in required}
    if form.get("unchecked") is not True and (problems := violations(chosen.parameters, completed)):
        raise FormError("content", "\n".join(problems))
    return CallMove(name, arguments)


def _result(shown: Play, form: Form) -> Any:
    current = shown.turn
    if current is None or current.call is None:
        return None  # the turn is over, which resolving it reports
    answered = shown.resolved_case.tools[current.call.name]
    if error := _text(form, "error"):
        content: Any = {"error": f"{error}: {_required(form, 'message', 'write the message of the error')}"}
    else:
        content = _json(form)
    if problems := result_problems(answered, content):
        raise FormError("content", "\n".join(problems))
    return content


def _reply(shown: Play, form: Form) -> UserReply:
    kind, facts = _text(form, "kind"), form.get("facts", [])
    conversation = shown.resolved_case.case.conversation
    known = [fact.id for fact in conversation.facts] if conversation is not None else []
    if kind not in REPLIES or not isinstance(facts, list) or any(fact not in known for fact in facts):
        raise FormError("kind", "choose one, and only facts of the case")
    text = "" if kind == "over" else _required(form, "text", "write what the user replies")
    return UserReply.model_validate({"kind": kind, "text": text, "facts": () if kind == "over" else tuple(facts)})


def _fork(playground: Playground, shown: Play, form: Form) -> dict[str, Any]:
    index = form.get("index")
    fork = playground.fork(shown, index if isinstance(index, int) else -1, _json(form))
    return {"next": f"/playground/plays/{fork.id}"}


def _save(playground: Playground, shown: Play, form: Form) -> dict[str, Any]:
    kind = next((each for each in KINDS if each == form.get("kind")), None)
    if kind is None:
        raise FormError("kind", f"choose one of {', '.join(KINDS)}")
    saved = save_play(playground.cases, shown, kind, _required(form, "case_id", "write an ID for the case"))
    return {"message": "\n".join([f"Saved as {saved.path}", *saved.notes])}


# What a person does when it is their turn.
_MOVES: Final[Mapping[str, Callable[[Play, Form], Any]]] = {
    "call": _call,
    "say": lambda _, form: SayMove(_required(form, "text", "write what you say to the user")),
    "answer": lambda _, form: AnswerMove(_required(form, "text", "write the answer")),
    "quit": lambda _, form: AnswerMove(_text(form, "text"), is_quit=True),
    "result": _result,
    "reply": _reply,
    "deliver": lambda _shown, _form: None,
}
_ACTIONS: Final[Mapping[str, Callable[[Playground, Play, Form], dict[str, Any] | None]]] = {
    "pace": lambda playground, shown, form: playground.set_stepping(shown, form.get("stepping") is True),
    "stop": lambda playground, shown, _: playground.stop(shown),
    "fork": _fork,
    "save": _save,
}


def _json(form: Form) -> Any:
    try:
        return json.loads(_text(form, "content"))
    except (ValueError, RecursionError) as error:
        raise FormError("content", f"this is not JSON: {error}") from None


def _text(form: Form, name: str) -> str:
    value = form.get(name, "")
    return value if isinstance(value, str) else ""


def _required(form: Form, name: str, message: str) -> str:
    text = _text(form, name).strip()
    if not text:
        raise FormError(name, message)
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
