"""JSON Schemas for constrained decoding: build them, adapt those of tools, and check what a provider accepts.

Providers accept only a subset of JSON Schema and reject the whole request for a keyword outside of it. The strictest
subset is OpenAI's strict mode: objects are closed, every property is required, and many keywords are unknown. So
schemas of replies are built in this subset, and schemas of tools are adapted to it as far as possible. An adapted
schema may only be wider than the original, never narrower: a reply that it lets through is validated against the
original afterwards, but a reply that it rules out can never be generated.
"""

from __future__ import annotations

from typing import Any, Final

from pytest_toolemu.formats.json_schema import subschemas, violations

# Keywords of OpenAI's strict mode, from its guide to structured outputs; minLength, allOf, and oneOf are not supported.
_VALUE_KEYWORDS: Final = frozenset(
    {"type", "description", "enum", "const", "pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
    | {"multipleOf", "minItems", "maxItems"}
)
_STRICT_KEYWORDS: Final = _VALUE_KEYWORDS | {
    "title", "properties", "required", "additionalProperties", "items", "anyOf", "$ref", "$defs", "format",
}  # fmt: skip
_FORMATS: Final = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})

# Next to these keywords, closing an object would rule out members that another part of the schema declares.
_OPAQUE: Final = frozenset({"allOf", "if", "patternProperties", "propertyNames", "dependentSchemas"})
_COMPOSED: Final = _OPAQUE | {"anyOf", "oneOf"}

# Keywords that constrain values of one type only; all others apply to every type.
_KEYWORDS_BY_TYPE: Final[dict[str, frozenset[str]]] = {
    "object": frozenset(
        {"properties", "required", "additionalProperties", "patternProperties", "propertyNames"}
        | {"minProperties", "maxProperties", "dependentRequired", "dependentSchemas"}
    ),
    "array": frozenset({"items", "prefixItems", "contains", "minItems", "maxItems", "uniqueItems"}),
    "string": frozenset({"minLength", "maxLength", "pattern", "format"}),
    "number": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}),
}
_TYPED_KEYWORDS: Final = frozenset().union(*_KEYWORDS_BY_TYPE.values())
_SCHEMAS_BY_NAME: Final = frozenset({"properties", "$defs", "definitions", "patternProperties", "dependentSchemas"})
_SCHEMA_OR_LIST: Final = frozenset(
    {"items", "prefixItems", "contains", "additionalProperties", "propertyNames", "anyOf", "oneOf", "allOf", "not"}
    | {"if", "then", "else"}
)

TEXT: Final = {"type": "string"}
FLAG: Final = {"type": "boolean"}


def closed_object(properties: dict[str, Any]) -> dict[str, Any]:
    """Build the schema of an object with exactly these properties; models generate them in this order."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def array_of(items: Any) -> dict[str, Any]:
    """Build the schema of an array."""
    return {"type": "array", "items": items}


def choice_of(*values: str) -> dict[str, Any]:
    """Build the schema of a text that is one of these."""
    return {"type": "string", "enum": list(values)}


def nullable(schema: Any) -> dict[str, Any]:
    """Build the schema of a value that conforms to ``schema`` or is null."""
    return {"anyOf": [schema, {"type": "null"}]}


def to_strict(schema: Any) -> Any:
    """Adapt a schema without references to strict mode, as far as strict mode can express it.

    Objects are closed, and every member is required; an optional member may be null, which stands for absent (see
    ``without_nulls``). Unknown keywords are dropped, which only widens the schema.
    """
    if not isinstance(schema, dict):
        return schema
    schema = without_type_lists(schema)
    if "properties" in schema and not schema.keys() & _COMPOSED:
        required = schema.get("required", ())
        # A member with the schema False can never be present, and strict mode would require it.
        members = {name: to_strict(part) for name, part in schema["properties"].items() if part is not False}
        members = {name: part if name in required else nullable(part) for name, part in members.items()}
        return {**_value_keywords(schema), **closed_object(members)}
    # Such a schema is sent as it is, without strict mode: a wrong adaptation could rule out correct replies.
    if schema.keys() & (_COMPOSED if "properties" in schema else _OPAQUE):
        return schema
    result = _value_keywords(schema)
    if variants := schema.get("anyOf") or schema.get("oneOf"):
        result["anyOf"] = [to_strict(variant) for variant in variants if variant is not False]
    for keyword in ("items", "additionalProperties"):
        if keyword in schema:
            result[keyword] = to_strict(schema[keyword])
    return result


def without_nulls(schema: Any, value: Any) -> Any:
    """Drop the optional members that are null, as ``to_strict`` allows; ``schema`` is the original, without references.

    A null that the original schema allows is kept.
    """
    if not isinstance(schema, dict):
        return value
    if isinstance(value, list):
        return [without_nulls(schema.get("items"), item) for item in value]
    if not isinstance(value, dict):
        return value
    # A null may be absence in one variant and a value in another, so the first variant that then conforms decides.
    for variant in schema.get("anyOf") or schema.get("oneOf") or ():
        if isinstance(variant, dict) and not violations(variant, trimmed := without_nulls(variant, value)):
            return trimmed
    parts, required = schema.get("properties", {}), schema.get("required", ())
    return {
        name: without_nulls(parts.get(name), member)
        for name, member in value.items()
        if member is not None or name in required or name not in parts or not violations({"allOf": [parts[name]]}, None)
    }


def without_type_lists(schema: Any) -> Any:
    """Rewrite each list of types as an ``anyOf`` of single types, the only form that every provider accepts.

    If ``enum``, ``const``, or a combination of schemas narrows the value as well, the list is dropped instead, which
    only widens the schema.
    """
    if isinstance(schema, list):
        return [without_type_lists(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    result = {keyword: _rewritten(keyword, value) for keyword, value in schema.items()}
    if not isinstance(result.get("type"), list):
        return result
    types = result.pop("type")
    # A list of one type is what some generators write for every type.
    if len(types) == 1:
        return {"type": types[0], **result}
    if result.keys() & {"enum", "const", "anyOf", "oneOf", "allOf", "$ref"}:
        return result
    # Each variant gets the keywords of its own type: 'minimum' means nothing for a string.
    common = {keyword: value for keyword, value in result.items() if keyword not in _TYPED_KEYWORDS}
    return {**common, "anyOf": [_of_type(name, result) for name in types]}


def satisfies_strict(schema: Any) -> bool:
    """Return whether OpenAI's strict mode accepts a schema: an object, every object closed, every property required."""
    return isinstance(schema, dict) and schema.get("type") == "object" and _is_strict(schema)


def is_closed(schema: Any) -> bool:
    """Return whether every object in a schema forbids additional properties."""
    objects = (part for _, part in subschemas(schema, ()) if "object" in _types(part))
    return all(part.get("additionalProperties") is False for part in objects)


def _value_keywords(schema: dict[str, Any]) -> dict[str, Any]:
    value_keywords = {keyword: value for keyword, value in schema.items() if keyword in _VALUE_KEYWORDS}
    return value_keywords | ({"format": schema["format"]} if schema.get("format") in _FORMATS else {})


def _rewritten(keyword: str, value: Any) -> Any:
    """Rewrite the value of a keyword that holds schemas; return other values unchanged."""
    if keyword in _SCHEMAS_BY_NAME:
        return {name: without_type_lists(part) for name, part in value.items()}
    return without_type_lists(value) if keyword in _SCHEMA_OR_LIST else value


def _of_type(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    keywords = _KEYWORDS_BY_TYPE.get("number" if name == "integer" else name, frozenset())
    return {"type": name, **{keyword: value for keyword, value in schema.items() if keyword in keywords}}


def _is_strict(schema: Any) -> bool:
    if not isinstance(schema, dict) or not schema.keys() <= _STRICT_KEYWORDS:
        return False
    if schema.get("format") not in (None, *_FORMATS):
        return False
    types, properties = _types(schema), schema.get("properties", {})
    # A schema that allows any value is valid JSON Schema, but constrained decoding needs a grammar for it.
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
    types = schema.get("type", [])
    return [types] if isinstance(types, str) else list(types)
