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


# Keywords that constrain values of one type only; all others hold whatever the type is.
_KEYWORDS: Final[dict[str, frozenset[str]]] = {
    "object": frozenset(
        {"properties", "required", "additionalProperties", "patternProperties", "propertyNames"}
        | {"minProperties", "maxProperties", "dependentRequired", "dependentSchemas"}
    ),
    "array": frozenset({"items", "prefixItems", "contains", "minItems", "maxItems", "uniqueItems"}),
    "string": frozenset({"minLength", "maxLength", "pattern", "format"}),
    "number": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}),
}


def without_type_lists(schema: Any) -> Any:
    """Rewrite each list of types as an ``anyOf`` of single types, the form that every provider accepts.

    Where ``enum``, ``const`` or a combination of schemas narrows the value as well, the list is dropped instead, which
    only widens the schema.
    """
    if isinstance(schema, list):
        return [without_type_lists(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    result = {key: _inner(key, value) for key, value in schema.items()}
    if not isinstance(result.get("type"), list):
        return result
    types = result.pop("type")
    if len(types) == 1:
        return {"type": types[0], **result}
    if result.keys() & {"enum", "const", "anyOf", "oneOf", "allOf", "$ref"}:
        return result
    special = frozenset().union(*_KEYWORDS.values())
    common = {key: value for key, value in result.items() if key not in special}
    return {**common, "anyOf": [_of_type(name, result) for name in types]}


def _inner(key: str, value: Any) -> Any:
    """A keyword's value, rewritten where it holds schemas."""
    if key in ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas"):
        return {name: without_type_lists(part) for name, part in value.items()}
    holds_schemas = ("items", "prefixItems", "contains", "additionalProperties", "propertyNames", "anyOf", "oneOf")
    return without_type_lists(value) if key in (*holds_schemas, "allOf", "not", "if", "then", "else") else value


def _of_type(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    keywords = _KEYWORDS.get("number" if name == "integer" else name, frozenset())
    return {"type": name, **{key: value for key, value in schema.items() if key in keywords}}


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
