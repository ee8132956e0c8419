"""One play: what happened so far, and the form for what a person does next."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from pytest_toolemu.core.agent_access.tool_functions import describe
from pytest_toolemu.core.messages import ToolSpec
from pytest_toolemu.core.run_parts.dialogue import UserReply
from pytest_toolemu.reporting.transcript import MAX_TEXT, ShownStep, case_html, pretty_json
from pytest_toolemu.ui.context import context_of, page
from pytest_toolemu.ui.form_requests import FormError, answer_form
from pytest_toolemu.ui.pages.playground_page import refuse_read_only
from pytest_toolemu.ui.playground.filled_form import read_form
from pytest_toolemu.ui.playground.persons import result_problems
from pytest_toolemu.ui.playground.play import AnswerMove, CallMove, Play, SayMove
from pytest_toolemu.ui.playground.playground import Playground
from pytest_toolemu.ui.playground.saved_cases import KINDS, save_play
from pytest_toolemu.ui.playground.schema_form import FormField, form_fields

Form = dict[str, Any]
_REPLIES: Final = ("answer", "consent", "refuse", "unknown", "over")


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


async def events(request: Request) -> Response:
    """Stream an event whenever the play has changed."""
    return StreamingResponse(_events(play_of(request)), media_type="text/event-stream")


async def act(request: Request) -> Response:
    """Do what a form of the page asks for."""
    return await answer_form(request, _act)


def play_of(request: Request) -> Play:
    """Return the play that the path of a request names. Raise HTTPException if there is none."""
    refuse_read_only(request)
    play_id = request.path_params["play"]
    found = context_of(request).playground.play(play_id)
    if found is None:
        raise HTTPException(404, f"there is no play {play_id!r}; plays end with the application, their records remain")
    found.touch()
    return found


async def _events(shown: Play) -> AsyncIterator[str]:
    async for version in shown.changes():
        state = {"version": version, "status": shown.status, "state": _state(shown)}
        yield f"data: {json.dumps(state)}\n\n"


def _state(shown: Play) -> str:
    """Return a text that changes when a person has something else to do."""
    number = shown.turn.number if shown.turn is not None else 0
    work = "" if shown.turn is not None else "emulator" if shown.call is not None else "agent"
    return f"{number} {work} {shown.status} {shown.is_stepping}"


def _parts(request: Request, shown: Play) -> dict[str, Any]:
    """Return what the templates of a play need."""
    # First, so that a change after it is not taken for shown.
    version, state = shown.version, _state(shown)
    library, record = context_of(request).library, shown.record
    trajectory, current = shown.trajectory, shown.turn
    dialogue = list(trajectory.dialogue) if trajectory is not None else []
    steps = [
        ShownStep(
            number=index + 1,
            step=step,
            arguments=pretty_json(step.call.arguments),
            returned=pretty_json(step.observation.content),
            findings=(),
            stress=None,
            said=tuple(one for one in dialogue if one.step == index),
        )
        for index, step in enumerate(shown.steps)
    ]
    fields: tuple[FormField, ...] = ()
    if current is not None and current.kind == "emulate" and current.call is not None:
        suggestion = current.observation.content if current.observation is not None else None
        fields = form_fields(shown.resolved_case.tools[current.call.name].returns, suggestion)
    return {
        "play": shown,
        "version": version,
        "state": state,
        "record_url": f"/sessions/{library.id_of(record.parent)}/runs/{record.stem}" if record is not None else "",
        "case": shown.resolved_case.case,
        "steps": steps,
        "said_last": [one for one in dialogue if one.step == len(steps)],
        "turn": current,
        "tools": shown.resolved_case.tools,
        "fields": fields,
        "replies": _REPLIES,
        "kinds": KINDS,
        "pretty": pretty_json,
        "longest": MAX_TEXT,
    }


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
    if kind not in _REPLIES or not isinstance(facts, list) or any(fact not in known for fact in facts):
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
    Route("/playground/plays/{play}", play),
    Route("/playground/plays/{play}/log", log),
    Route("/playground/plays/{play}/turn", turn),
    Route("/playground/plays/{play}/tool", tool),
    Route("/playground/plays/{play}/events", events),
    Route("/playground/plays/{play}/{action}", act, methods=["POST"]),
)
