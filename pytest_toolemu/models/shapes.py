"""Which JSON Schemas the providers' constrained decoding takes as they are."""

from __future__ import annotations

from typing import Any, Final

# OpenAI's strict mode, from its guide to structured outputs. minLength, allOf, oneOf, default and others are not in it.
_WORDS: Final = frozenset(
    {"type", "description", "title", "enum", "const", "properties", "required", "additionalProperties", "items"}
    | {"anyOf", "$ref", "$defs", "pattern", "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
    | {"multipleOf", "minItems", "maxItems"}
)
_FORMATS: Final = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", None}
)


def satisfies_strict(schema: Any) -> bool:
    """Whether OpenAI's strict mode takes the schema: an object, closed all through, every property required."""
    return isinstance(schema, dict) and schema.get("type") == "object" and _is_strict(schema)


def is_closed(part: Any) -> bool:
    """Whether every object in the schema says that it has no other properties."""
    if isinstance(part, list):
        return all(is_closed(item) for item in part)
    if not isinstance(part, dict):
        return True
    if "object" in _types(part) and part.get("additionalProperties") is not False:
        return False
    return all(is_closed(item) for item in part.values())


def _is_strict(schema: Any) -> bool:
    if not isinstance(schema, dict) or not schema.keys() <= _WORDS or schema.get("format") not in _FORMATS:
        return False
    types, properties = _types(schema), schema.get("properties", {})
    if not types and not schema.keys() & {"enum", "const", "anyOf", "$ref"}:
        return False
    if "object" in types and (
        schema.get("additionalProperties") is not False or set(schema.get("required", ())) != set(properties)
    ):
        return False
    if "array" in types and "items" not in schema:
        return False
    parts = [*properties.values(), *schema.get("$defs", {}).values(), *schema.get("anyOf", ())]
    parts += [schema["items"]] if "items" in schema else []
    return all(_is_strict(part) for part in parts)


def _types(schema: dict[str, Any]) -> list[str]:
    declared = schema.get("type", [])
    return [declared] if isinstance(declared, str) else list(declared)
