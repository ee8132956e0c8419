"""What a person does in a play: each form of its page is one action."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from pytest_toolemu.core.run_parts.dialogue import UserReply
from pytest_toolemu.ui.context import context_of
from pytest_toolemu.ui.form_requests import FormError, answer_form
from pytest_toolemu.ui.pages.playground_page import play_of
from pytest_toolemu.ui.playground.filled_form import read_form
from pytest_toolemu.ui.playground.persons import result_problems
from pytest_toolemu.ui.playground.play import AnswerMove, CallMove, Play, SayMove
from pytest_toolemu.ui.playground.playground import Playground
from pytest_toolemu.ui.playground.saved_cases import KINDS, save_play

Form = dict[str, Any]
REPLIES: Final = ("answer", "consent", "refuse", "unknown", "over")
"""What the user can do, as in records."""


async def act(request: Request) -> Response:
    """Do what a form of the page asks for."""
    return await answer_form(request, _act)


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
