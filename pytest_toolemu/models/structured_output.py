"""Call a model on the record, and get a value that conforms to a schema out of it, or a clear failure."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn, TypeVar

from pytest_toolemu.core.messages import (
    Ledger,
    Message,
    Model,
    ModelCall,
    ModelRequest,
    Reply,
    ReplySchema,
    Role,
    ToolSpec,
)
from pytest_toolemu.errors import InconclusiveError, NotRunError, ToolemuError
from pytest_toolemu.formats.counted import counted
from pytest_toolemu.formats.json_schema import violations
from pytest_toolemu.formats.truncation import truncated
from pytest_toolemu.formats.yaml_document import too_deep

T = TypeVar("T")

_SHORT: Final = 600
_REFUSAL: Final = re.compile(
    r"(?i)\W*((i'm|im|i am) (very |really |so )?sorry\b|sorry\b|i apologi[sz]e\b|unfortunately, i\b|as an ai\b|"
    r"i (can't|can ?not|won't|will not|must decline|must refuse|refuse to|decline to)\b|"
    r"(i'm|i am) (unable|not able|not comfortable|not going)\b)"
)
_THOUGHT: Final = re.compile(r"\A.*</think>", re.DOTALL)
_FENCE: Final = re.compile(r"```(?:json)?\s(.*)```", re.DOTALL | re.IGNORECASE)
_CUT: Final = "the reply was cut off at the token limit before its JSON was complete"


async def ask(
    model: Model,
    role: Role,
    ledger: Ledger,
    messages: Sequence[Message],
    *,
    tools: tuple[ToolSpec, ...] = (),
    schema: ReplySchema | None = None,
) -> Reply:
    """Send one request and record it in the ledger, whether it succeeds or fails."""
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
                started=started,
                seconds=time.perf_counter() - start,
            )
            ledger.model_calls.append(call)
    return reply


async def ask_structured(
    model: Model,
    role: Role,
    ledger: Ledger,
    messages: Sequence[Message],
    schema: ReplySchema,
    parse: Callable[[Any], T],
    repairs: int = 2,
) -> tuple[T, list[str]]:
    """Return what ``parse`` makes of a conforming reply, with the problems of the replies before it.

    ``parse`` raises ValueError for problems that the schema cannot express. An invalid reply is sent back with its
    problems, at most ``repairs`` times. InconclusiveError if the last reply is still invalid, if two replies are cut
    off, or if the model refuses (the message then begins with ``refused:``).
    """
    history = list(messages)
    all_problems: list[str] = []
    cuts = 0
    for repairs_left in range(repairs, -1, -1):
        reply = await ask(model, role, ledger, history, schema=schema)
        if reply.stop == "refusal":
            raise InconclusiveError(f"refused: {_line(reply.stop_detail or reply.text) or 'no reason was given'}")
        try:
            return parse(_value(reply.text, schema)), all_problems
        except ValueError as error:
            problems = str(error).splitlines() or ["not acceptable"]
        if _is_refusal(reply.text):
            raise InconclusiveError(f"refused: {_line(_answer(reply.text))}")
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
    remedy = "; raise --toolemu-max-output-tokens" if cuts else ""
    raise InconclusiveError(
        f"the {role} ({model.identity.get('name')}) gave no usable {schema.name} after "
        f"{counted(repairs - repairs_left, 'request')} for a correction: {_line('; '.join(problems))}{remedy}"
    )


def _correction(problems: list[str], stop: str) -> Message:
    listed = "\n".join(f"- {problem}" for problem in problems)
    shorter = " Make it much shorter this time." if stop == "length" else ""
    return Message(
        role="user",
        content=f"Your reply cannot be used:\n{listed}\n\nSend the complete reply again with these problems fixed: "
        f"one JSON value that conforms to the schema, and nothing else.{shorter}",
    )


def _value(text: str, schema: ReplySchema) -> Any:
    """Return the JSON value in a reply; ValueError with a line for each problem."""
    answer = _answer(text)
    fenced = _FENCE.search(answer)
    problem: Exception | None = None
    for candidate in (text, answer, fenced.group(1) if fenced else answer):
        try:
            value = json.loads(candidate, parse_constant=_no_constant)
            json.dumps(value, ensure_ascii=False).encode()  # fails for an escaped lone surrogate
            break
        except (ValueError, RecursionError) as error:
            problem = error
    else:
        raise ValueError(f"not JSON: {problem}" if answer else "the reply is empty")
    if too_deep(value):
        raise ValueError("the JSON is nested deeper than 100 levels")
    if problems := violations(schema.schema_, value):
        raise ValueError("\n".join(problems))
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not valid JSON")


def _answer(text: str) -> str:
    """Remove the reasoning that some models write first; the opening tag may be part of their prompt template."""
    return _THOUGHT.sub("", text).strip()


def _is_refusal(text: str) -> bool:
    answer = _answer(text)
    return len(answer) <= _SHORT and not set("{[") & set(answer) and bool(_REFUSAL.match(answer.replace("\u2019", "'")))


def _line(text: str) -> str:
    line = " ".join(text.split())
    return truncated(line, _SHORT)
