"""Replaces the references in JSON Schemas, so that every part can be read by itself."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import unquote

# References of references multiply: a schema of a few lines could expand to gigabytes.
_MAX_REFERENCES: Final = 1000


def inlined(schema: dict[str, Any], *, end: bool = False) -> dict[str, Any]:
    """Return the schema with each local ``$ref`` replaced by its target.

    If a schema contains itself, the inner one becomes ``end``. So the result is finite. With ``False``, which no value
    satisfies, every value that conforms to it conforms to the original. With ``True``, every value that conforms to the
    original conforms to it. A schema without references is returned as it is.
    """
    if not _mentions_references(schema):
        return schema
    references_left = _MAX_REFERENCES

    def expand(part: Any, within: tuple[str, ...]) -> Any:
        nonlocal references_left
        if isinstance(part, list):
            return [expand(item, within) for item in part]
        if not isinstance(part, dict):
            return part
        pointer = part.get("$ref")
        if not isinstance(pointer, str):
            return {key: expand(value, within) for key, value in part.items() if key != "$defs"}
        references_left -= 1
        if pointer in within or references_left < 0:
            return end
        target = expand(_target(schema, pointer), (*within, pointer))
        siblings = {key: expand(value, within) for key, value in part.items() if key not in ("$ref", "$defs")}
        return {**target, **siblings} if isinstance(target, dict) else target

    expanded: dict[str, Any] = expand(schema, ("#",))
    return expanded


def _mentions_references(part: Any) -> bool:
    if isinstance(part, dict):
        return "$ref" in part or "$defs" in part or any(map(_mentions_references, part.values()))
    return isinstance(part, list) and any(map(_mentions_references, part))


def _target(schema: dict[str, Any], pointer: str) -> Any:
    """Return the target of a JSON pointer; for other references, such as anchors, a schema that accepts everything."""
    first, *rest = unquote(pointer).split("/")
    target: Any = schema
    try:
        for part in rest:
            key = part.replace("~1", "/").replace("~0", "~")
            target = target[int(key)] if isinstance(target, list) else target[key]
    except (LookupError, TypeError, ValueError):
        return True
    return target if first == "#" else True
