"""Call a model on the record, and get a value that conforms to a schema out of it, or a clear failure."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, TypeVar

from pytest_toolemu.core.identity import model_label
from pytest_toolemu.core.messages import (
    AskingStage,
    FallbackReason,
    FallbackUse,
    Ledger,
    Message,
    Model,
    ModelCall,
    ModelRequest,
    PassedOverModel,
    Reply,
    ReplySchema,
    Role,
    ToolSpec,
)
from pytest_toolemu.errors import InconclusiveError, NotRunError, ToolemuError
from pytest_toolemu.formats.json_schema import violations
from pytest_toolemu.formats.text import counted, refuse_constant, truncated
from pytest_toolemu.formats.yaml_document import too_deep
from pytest_toolemu.models.retrying import HarnessModel, models_in_turn

T = TypeVar("T")

_SHORT: Final = 600
_REFUSAL: Final = re.compile(
    r"(?i)\W*((i'm|im|i am) (very |really |so )?sorry\b|sorry\b|i apologi[sz]e\b|unfortunately, i\b|as an ai\b|"
    r"i (can't|can ?not|won't|will not|must decline|must refuse|refuse to|decline to)\b|"
    r"(i'm|i am) (unable|not able|not comfortable|not going)\b)"
)
_THOUGHT_END: Final = "</think>"
_MOST_ENDS: Final = 20
_FENCED: Final = re.compile(r"(?:json)?\s(.*)```\Z", re.DOTALL | re.IGNORECASE)
_CUT: Final = "the reply was cut off at the token limit before its JSON was complete"


@dataclass(frozen=True)
class StructuredReply(Generic[T]):
    """What a caller made of a conforming reply, and how it came about.

    ``model`` gave the reply. ``repairs`` are the problems of all replies before it, also those of other models.
    ``fallback`` is None if the first model gave the reply.
    """

    value: T
    model: Model
    repairs: tuple[str, ...] = ()
    fallback: FallbackUse | None = None


class _NoUsableReplyError(Exception):
    """One model refused, or its last reply was not valid."""

    def __init__(self, reason: FallbackReason, problem: str) -> None:
        super().__init__(problem)
        self.reason = reason


async def ask(
    model: Model,
    role: Role,
    ledger: Ledger,
    messages: Sequence[Message],
    *,
    tools: tuple[ToolSpec, ...] = (),
    schema: ReplySchema | None = None,
    instead_of: PassedOverModel | None = None,
    asked_by: AskingStage | None = None,
) -> Reply:
    """Send one request and record it in the ledger, whether it succeeds or fails.

    ``instead_of`` is the model of a fallback in whose place this one is asked, and ``asked_by`` the stage of a cascade.
    """
    request = ModelRequest(tuple(messages), tools, schema, ledger.seed)
    started, start = time.time(), time.perf_counter()
    reply: Reply | None = None
    replayed = ""
    problem: str | None = "the request was not finished"
    is_sent = True
    try:
        if ledger.recorder is None:
            reply = await model.complete(request)
        else:
            reply, replayed = await ledger.recorder.complete(role, model, request)
        problem = None
    except NotRunError:
        is_sent = False
        raise
    except ToolemuError as error:
        problem = str(error)
        raise
    finally:
        # Also if the request was canceled: it may have cost tokens.
        if is_sent:
            call = ModelCall(
                role=role,
                model=model.identity,
                messages=ledger.indices(request.messages),
                tools=tuple(tool.name for tool in tools),
                schema_name=schema.name if schema else None,
                reply=reply,
                error=problem,
                replayed=replayed,
                instead_of=instead_of,
                asked_by=asked_by,
                started=started,
                seconds=time.perf_counter() - start,
            )
            ledger.model_calls.append(call)
    return reply


async def ask_structured(
    model: HarnessModel,
    role: Role,
    ledger: Ledger,
    messages: Sequence[Message],
    schema: ReplySchema | Callable[[Model], ReplySchema],
    parse: Callable[[Any], T],
    *,
    repairs: int = 2,
    asked_by: AskingStage | None = None,
) -> StructuredReply[T]:
    """Return what ``parse`` makes of a conforming reply, with the problems of the replies before it.

    ``schema`` may be a function of the model that is asked. ``parse`` raises ValueError for problems that the schema
    cannot express. An invalid reply is sent back with its problems, at most ``repairs`` times. A model gives no usable
    reply if the last one is still invalid, if two are cut off, or if the model refuses. Then the next model of the
    fallback gets the same messages. InconclusiveError if there is none; its message begins with ``refused:`` if the
    first model refused. ``asked_by`` is the stage of a cascade.
    """
    passed_over: list[PassedOverModel] = []
    problems: list[str] = []
    for asked in models_in_turn(model):
        reply_schema = schema if isinstance(schema, ReplySchema) else schema(asked)
        send = partial(ask, asked, role, ledger, schema=reply_schema, asked_by=asked_by)
        instead_of = passed_over[-1] if passed_over else None
        name = f"the {role} ({asked.identity.get('name')})"
        label = model_label(asked.identity)
        try:
            value = await _usable(send, name, messages, reply_schema, parse, repairs, problems, instead_of=instead_of)
        except _NoUsableReplyError as error:
            passed_over.append(PassedOverModel(model=label, reason=error.reason, problem=str(error)))
            continue
        fallback = FallbackUse(model=label, passed_over=tuple(passed_over)) if passed_over else None
        return StructuredReply(value, asked, tuple(problems), fallback)
    first, *others = passed_over
    raise InconclusiveError("; ".join([first.problem, *(f"fallback {each.model}: {each.problem}" for each in others)]))


async def _usable(
    send: Callable[..., Awaitable[Reply]],
    name: str,
    messages: Sequence[Message],
    schema: ReplySchema,
    parse: Callable[[Any], T],
    repairs: int,
    all_problems: list[str],
    *,
    instead_of: PassedOverModel | None,
) -> T:
    """Return what ``parse`` makes of a conforming reply of one model, which messages call ``name``.

    The problems of the replies before it are added to ``all_problems``. Raise _NoUsableReplyError if there is none.
    """
    history = list(messages)
    cuts = 0
    for repairs_left in range(repairs, -1, -1):
        reply = await send(history, instead_of=instead_of if repairs_left == repairs else None)
        if reply.stop == "refusal":
            raise _refused(reply.stop_detail or reply.text)
        try:
            return parse(_value(reply, schema))
        except ValueError as error:
            problems = str(error).splitlines() or ["not acceptable"]
        answer = _answer(reply.text)
        if len(answer) <= _SHORT and not set("{[") & set(answer) and _REFUSAL.match(answer.replace("\u2019", "'")):
            raise _refused(answer)
        if reply.stop == "length":
            cuts += 1
            problems = [_CUT]
        all_problems += problems
        if repairs_left == 0 or cuts == 2:
            break
        history += [
            Message(role="assistant", content=reply.text, native=reply.native),
            _correction(problems, reply.stop),
        ]
    remedy = "; raise toolemu_max_output_tokens" if cuts else ""
    raise _NoUsableReplyError(
        "invalid",
        f"{name} gave no usable {schema.name} after "
        f"{counted(repairs - repairs_left, 'request')} for a correction: {_line('; '.join(problems))}{remedy}",
    )


def _refused(text: str) -> _NoUsableReplyError:
    return _NoUsableReplyError("refused", f"refused: {_line(text) or 'no reason was given'}")


def _correction(problems: list[str], stop: str) -> Message:
    listed = "\n".join(f"- {problem}" for problem in problems)
    shorter = " Make it much shorter this time." if stop == "length" else ""
    return Message(
        role="user",
        content=f"Your reply cannot be used:\n{listed}\n\nSend the complete reply again with these problems fixed: "
        f"one JSON value that conforms to the schema, and nothing else.{shorter}",
    )


def _value(reply: Reply, schema: ReplySchema) -> Any:
    """Return the JSON value in a reply; ValueError with a line for each problem."""
    problem: Exception | None = None
    for candidate in _candidates(reply):
        try:
            value = json.loads(candidate, parse_constant=refuse_constant)
            json.dumps(value, ensure_ascii=False).encode()  # fails for an escaped lone surrogate
            break
        except (ValueError, RecursionError) as error:
            problem = error
    else:
        raise ValueError(f"not JSON: {problem}" if _answer(reply.text) else "the reply is empty")
    if too_deep(value):
        raise ValueError("the JSON is nested deeper than 100 levels")
    if problems := violations(schema.schema_, value):
        raise ValueError("\n".join(problems))
    return value


def _answer(text: str) -> str:
    """Remove the reasoning that some models write first; the opening tag may be part of their prompt template."""
    return text.rpartition(_THOUGHT_END)[2].strip()


def _candidates(reply: Reply) -> Iterator[str]:
    """Yield what may be the JSON of a reply: all of it, and what follows the reasoning, with and without a fence.

    The reasoning and the strings of the JSON may quote the tag that ends the reasoning, so each one may be the end.
    """
    parts = reply.text.split(_THOUGHT_END, _MOST_ENDS)
    for answer in (*(_THOUGHT_END.join(parts[index:]).strip() for index in range(len(parts))), _answer(reply.text)):
        yield answer
        # The only fence, with nothing behind it. Models quote what they read: a verdict that an agent has put into a
        # fence must not become that of its judge. Fences within the strings of the JSON do not count. In a reply that
        # was cut off, the last fence may be one that the model only quotes.
        if reply.stop != "length" and (fenced := _FENCED.match(answer.partition("```")[2])):
            yield fenced[1]


def _line(text: str) -> str:
    return truncated(" ".join(text.split()), _SHORT)
