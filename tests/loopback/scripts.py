"""Ready-made scripts. The server calls its script once per request, on its own thread, one request at a time."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from tests.loopback.instances import smallest
from tests.loopback.records import Answer, Call, Fault, Reply, Request, Script

# The form in which the project shows a call to an emulator; the first call of a tool includes the specification.
_CALL: Final = re.compile(
    r"Call \d+: (?P<tool>\S+)\nCurrent time: .*(\nSpecification: .*; returns (?P<returns>\{.*\})$)?", re.MULTILINE
)


def replies(answers: Iterable[Answer | str | dict[str, Any]]) -> Script:
    """Return these answers, one per request; a string is a reply's text, a dictionary its JSON. Too few are an error."""
    remaining = iter(answers)

    def script(request: Request) -> Answer:
        answer = next(remaining, None)
        if answer is None:
            raise LookupError(f"the script ran out of replies at request {request.number}; give it one more")
        if isinstance(answer, str):
            return Reply(answer)
        return Reply.of(answer) if isinstance(answer, dict) else answer

    return script


def conforming(calls: int = 1) -> Script:
    """Return conforming answers. For a schema: its smallest instance; for an emulator, with the smallest result of the
    tool. With tools: call each once with the smallest arguments, in order, ``calls`` in all; then answer with text.
    """

    def script(request: Request) -> Answer:
        if request.schema is not None:
            return Reply.of(_conforming_value(request.schema, request))
        called = [call.name for message in request.messages for call in message.calls]
        fresh = [tool for tool in request.tools if tool.name not in called]
        if fresh and len(called) < calls:
            return Reply(calls=(Call(fresh[0].name, smallest(fresh[0].parameters)),))
        return Reply("Done.")

    return script


def _conforming_value(schema: dict[str, Any], request: Request) -> Any:
    reply = smallest(schema)
    if request.role == "emulator" and reply.get("outcome") == {"observation": {}}:
        reply["outcome"] = {"observation": smallest(returns(request))}
    return reply


def returns(request: Request) -> dict[str, Any]:
    """Return the JSON Schema of the return value that an emulator is asked for, as shown with the tool's first call."""
    matches = [_CALL.match(message.text) for message in request.messages if message.role == "user"]
    calls = [call for call in matches if call]
    if not calls:
        return {}
    first = next(call for call in calls if call["tool"] == calls[-1]["tool"])
    schema: dict[str, Any] = json.loads(first["returns"] or "{}")
    return schema


def by_role(*, agent: Script | None = None, emulator: Script | None = None, evaluator: Script | None = None) -> Script:
    """Answer each role by its own script, or by ``conforming()``. The schema's name tells the role (Request.role)."""
    scripts = {"agent": agent, "emulator": emulator, "evaluator": evaluator}
    chosen = {role: script or conforming() for role, script in scripts.items()}

    def script(request: Request) -> Any:
        if request.role not in chosen:
            raise LookupError(
                "the schema has no name, which tells the role; for Anthropic, and in words, give the schema a title"
            )
        return chosen[request.role](request)

    return script


def faulty(script: Script, faults: Mapping[int, Fault]) -> Script:
    """Replace some answers of a script by faults, by the number of the request from 1. A fault uses no answer of
    the script, so a retry gets the answer that the fault replaced.
    """
    numbers = itertools.count(1)

    def broken(request: Request) -> Any:
        return faults.get(next(numbers)) or script(request)

    return broken


def together(count: int, script: Script) -> Script:
    """Delay the first ``count`` requests until all of them have arrived: they are answered only if all are in flight."""
    arrived = 0
    complete = asyncio.Event()

    async def wait_for_all(request: Request) -> Answer:
        nonlocal arrived
        arrived += 1
        if arrived >= count:
            complete.set()
        await complete.wait()
        answer = script(request)
        return answer if isinstance(answer, Reply | Fault) else await answer

    return wait_for_all
