"""Calls that mean the same, although an agent wrote their arguments in another way."""

from __future__ import annotations

from typing import Any

from pytest_toolemu.core.toolkit import Tool
from pytest_toolemu.core.trajectory import json_text


def meaning(tool: Tool, arguments: Any) -> str:
    """Return the arguments of a call as text that is equal for calls of the tool with the same meaning.

    An argument that is absent, null, or its default means the same, and so do 30 and 30.0.
    """
    if not isinstance(arguments, dict):
        return json_text(arguments)
    parameters = tool.parameters.get("properties", {})
    defaults = {name: schema.get("default") for name, schema in parameters.items() if isinstance(schema, dict)}
    given = {name: value for name, value in {**defaults, **_present(arguments)}.items() if value is not None}
    return json_text(_with_plain_numbers(given))


def _present(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if value is not None}


def _with_plain_numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_plain_numbers(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_with_plain_numbers(part) for part in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
