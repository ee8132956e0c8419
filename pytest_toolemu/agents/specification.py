"""Toolkits as text, for models that are not given tools as JSON Schemas.

Nothing of a schema is dropped: keywords without words of their own are shown as they stand. Errors are not announced.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from pytest_toolemu.core.toolkit import Toolkit

# Said in words or by the layout; all other keywords are shown with their values.
_SPOKEN: Final = {"type", "description", "title", "properties", "required", "items", "enum", "const"}


def specification(toolkits: tuple[Toolkit, ...]) -> str:
    """Each toolkit with its tools; arguments and returns have one line each, with type and description."""
    return "\n\n".join("\n".join(_toolkit(toolkit)) for toolkit in toolkits)


def _toolkit(toolkit: Toolkit) -> Iterator[str]:
    yield f"## {toolkit.name}: {_line(toolkit.description)}"
    for tool in toolkit.tools:
        yield f"\n* {toolkit.callable_name(tool)}: {_line(tool.description)}"
        yield from _section("Arguments", tool.parameters)
        yield from _section("Returns", tool.returns)


def _section(title: str, schema: dict[str, Any]) -> Iterator[str]:
    more = ", ".join(_keywords(schema))
    yield f"  * {title}{f' ({more})' if more else ''}:{'' if schema.get('properties') else ' none'}"
    yield from _fields(schema, "    ")


def _fields(schema: Any, indent: str) -> Iterator[str]:
    """The properties of an object, or of the objects in an array, a line each."""
    while isinstance(schema, dict) and "properties" not in schema:
        schema = schema.get("items")
    if not isinstance(schema, dict):
        return
    required = schema.get("required", ())
    for name, part in schema["properties"].items():
        marks = [_kind(part)] if name in required else [_kind(part), "optional"]
        description = part.get("description", "") if isinstance(part, dict) else ""
        yield f"{indent}* {name} ({', '.join(marks)}){': ' if description else ''}{_line(description)}"
        yield from _fields(part, indent + "  ")


def _kind(schema: Any) -> str:
    """What a value may be: its type, its allowed values, and whatever else limits it."""
    if not isinstance(schema, dict):
        return "nothing" if schema is False else "any"
    kind = schema.get("type", "any")
    words = kind if isinstance(kind, str) else " or ".join(kind)
    if isinstance(schema.get("items"), dict):
        item = _kind(schema["items"])
        words += f" of ({item})" if "," in item else f" of {item}"
    limits = list(_keywords(schema))
    if "enum" in schema:
        limits.insert(0, f"one of {', '.join(map(_json, schema['enum']))}")
    if "const" in schema:
        limits.insert(0, f"always {_json(schema['const'])}")
    return ", ".join([words, *limits])


def _keywords(schema: dict[str, Any]) -> Iterator[str]:
    for keyword, value in schema.items():
        closed = keyword == "additionalProperties" and isinstance(value, bool)
        if keyword not in _SPOKEN and not closed:
            yield f"{keyword} {_json(value)}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _line(text: str) -> str:
    return " ".join(text.split())
