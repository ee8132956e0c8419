"""What agents, emulators and evaluators are shown of a case, said alike to all of them."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, TypeVar

from pytest_toolemu.core.toolkit import Tool, Toolkit
from pytest_toolemu.formats.json_schema_text import members_text

P = TypeVar("P", Tool, Toolkit)

_MOST: Final = 4096
# Not strftime's, which depend on the locale of the process.
_WEEKDAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def clock(now: datetime) -> str:
    """``Tuesday, 2022-02-22, 11:37 (UTC-05:00)``."""
    return f"{_WEEKDAYS[now.weekday()]}, {now:%Y-%m-%d, %H:%M} (UTC{now.isoformat()[-6:]})"


def _once(function: Callable[[P], str]) -> Callable[[P], str]:
    """The function, called once for each object, which are the same ones for hundreds of requests.

    By identity: equal toolkits may name their members in another order.
    """
    known: dict[int, tuple[P, str]] = {}

    @functools.wraps(function)
    def text(part: P) -> str:
        found = known.get(id(part))
        if found is None:
            if len(known) >= _MOST:
                known.clear()
            found = known[id(part)] = (part, function(part))
        return found[1]

    return text


@_once
def outline(toolkit: Toolkit) -> str:
    """A toolkit in short: what each tool is for, takes, returns, and which errors it may answer with."""
    return _lines(toolkit, toolkit.description, _tool)


@_once
def sketch(toolkit: Toolkit) -> str:
    """A toolkit in shorter: its first sentence, what each tool is for, and the names of what it takes and returns."""
    return _lines(toolkit, toolkit.description.partition(". ")[0], _sketched)


@_once
def tool_text(tool: Tool) -> str:
    """A tool in full, but for its description; what it returns as JSON Schema."""
    errors = "; ".join(f"{error} ({_line(condition)})" for error, condition in tool.errors.items())
    parts = [
        members_text(tool.parameters, "()", explain="all"),
        tool.effect,
        *([f"errors: {errors}"] if errors else []),
        f"returns {returns_text(tool)}",
    ]
    return "; ".join(parts)


@_once
def returns_text(tool: Tool) -> str:
    """Return the JSON Schema of what a tool returns, on one line."""
    return json.dumps(_open(tool.returns), ensure_ascii=False, separators=(",", ":"))


def _open(schema: Any) -> Any:
    """The schema without the word that closes its objects: a rule says so for all of them."""
    if isinstance(schema, list):
        return [_open(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    closed = schema.get("additionalProperties") is False
    return {key: _open(part) for key, part in schema.items() if not (closed and key == "additionalProperties")}


def _lines(toolkit: Toolkit, description: str, line: Callable[[str, Tool], str]) -> str:
    head = f"{toolkit.name}: {_line(description)}"
    return "\n".join([head, *(line(toolkit.callable_name(tool), tool) for tool in toolkit.tools)])


def _sketched(name: str, tool: Tool) -> str:
    taken, returned = members_text(tool.parameters, "()", types=False), members_text(tool.returns, types=False)
    return f"* {name}{taken} -> {returned}: {_line(tool.description)}"


def _tool(name: str, tool: Tool) -> str:
    errors = "; ".join(f"{error} ({_line(condition)})" for error, condition in tool.errors.items())
    signature = (
        f"* {name}{members_text(tool.parameters, '()')} -> {members_text(tool.returns)}: {_line(tool.description)}"
    )
    return f"{signature} Errors: {errors}" if errors else signature


def _line(text: str) -> str:
    return " ".join(text.split())
