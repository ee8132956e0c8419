"""JSON Schemas without references, so that their parts can be read one by one."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import unquote

# A schema may refer to itself in more ways than anybody wants written out.
_MOST: Final = 1000


def inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with each local ``$ref`` replaced by what it refers to.

    Where a schema contains itself the inner one becomes ``False``, which nothing satisfies: what conforms to the result
    conforms to the original, and is finite.
    """
    left = _MOST

    def expand(part: Any, within: tuple[str, ...]) -> Any:
        nonlocal left
        if isinstance(part, list):
            return [expand(item, within) for item in part]
        if not isinstance(part, dict):
            return part
        pointer = part.get("$ref")
        if not isinstance(pointer, str):
            return {key: expand(value, within) for key, value in part.items() if key != "$defs"}
        left -= 1
        if pointer in within or left < 0:
            return False
        found = expand(_target(schema, pointer), (*within, pointer))
        beside = {key: expand(value, within) for key, value in part.items() if key not in ("$ref", "$defs")}
        return {**found, **beside} if isinstance(found, dict) else found

    expanded: dict[str, Any] = expand(schema, ("#",))
    return expanded


def _target(schema: dict[str, Any], pointer: str) -> Any:
    """What a JSON pointer leads to; a schema that takes everything for other references, such as anchors."""
    first, *rest = unquote(pointer).split("/")
    target: Any = schema
    try:
        for part in rest:
            key = part.replace("~1", "/").replace("~0", "~")
            target = target[int(key)] if isinstance(target, list) else target[key]
    except (LookupError, TypeError, ValueError):
        return True
    return target if first == "#" else True
