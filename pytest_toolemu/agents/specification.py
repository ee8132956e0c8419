"""Describe toolkits as text, for models that do not get tools as JSON Schemas.

Nothing of a schema is dropped: keywords that the text does not express are shown with their values. Errors are omitted,
as in the tools of native calls.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from pytest_toolemu.core.toolkit import Toolkit

# Keywords that the text or the layout expresses; all others are shown with their values.
_EXPRESSED: Final = {"type", "description", "title", "properties", "required", "items", "enum", "const"}


def specification(toolkits: tuple[Toolkit, ...]) -> str:
    """Describe each toolkit with its tools; each argument and result has a line with its type and description."""
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
    """Yield a line for each property of an object, or of the objects in an array."""
    while isinstance(schema, dict) and "properties" not in schema:
        schema = schema.get("items")
    if not isinstance(schema, dict):
        return
    required = schema.get("required", ())
    for name, part in schema["properties"].items():
        marks = [kind_text(part)] if name in required else [kind_text(part), "optional"]
        description = part.get("description", "") if isinstance(part, dict) else ""
        yield f"{indent}* {name} ({', '.join(marks)}){': ' if description else ''}{_line(description)}"
        yield from _fields(part, indent + "  ")


def kind_text(schema: Any) -> str:
    """Describe the allowed values: the type, the values themselves, and other limits."""
    if not isinstance(schema, dict):
        return "nothing" if schema is False else "any"
    kind = schema.get("type", "any")
    words = kind if isinstance(kind, str) else " or ".join(kind)
    if isinstance(schema.get("items"), dict):
        item = kind_text(schema["items"])
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
        if keyword not in _EXPRESSED and not closed:
            yield f"{keyword} {_json(value)}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _line(text: str) -> str:
    return " ".join(text.split())
