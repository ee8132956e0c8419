"""Which calls a pin or a check matches: plain values that arguments must equal, or a JSON Schema they must satisfy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from pytest_toolemu.formats.json_schema import schema_problem, violations
from pytest_toolemu.formats.json_schema_keywords import KEYWORDS, unknown_keywords
from pytest_toolemu.formats.truncation import truncated
from pytest_toolemu.formats.yaml_document import KEY, Loc, closest, show

Json = dict[str, Any]

SCHEMA: Final = "schema"
_BRANCHES: Final = ("allOf", "anyOf", "oneOf")
_DEFINITIONS: Final = ("$defs", "definitions")
_MAX_SUGGESTION: Final = 300


def is_schema(arguments: Json) -> bool:
    """Return whether the ``arguments`` of a pin or check are a JSON Schema, ``{schema: ...}``, and not plain values."""
    return arguments.keys() == {SCHEMA} and isinstance(arguments[SCHEMA], dict)


def call_schema(arguments: Json) -> Json:
    """Return the JSON Schema of the calls that ``arguments`` match.

    Plain values require equality of the given members, also in nested objects; a list must be equal as a whole.
    """
    if is_schema(arguments):
        return dict(arguments[SCHEMA])
    return _equality(arguments) if arguments else {}


def with_defaults(call: Json, parameters: Json) -> Json:
    """Return the arguments of a call in which each one that is absent or null has its default, if it has one."""
    members = parameters.get("properties", {})
    schemas = {name: _resolved(schema, parameters) for name, schema in members.items() if call.get(name) is None}
    defaults = {
        name: schema["default"] for name, schema in schemas.items() if isinstance(schema, dict) and "default" in schema
    }
    return {**call, **defaults}


def argument_problems(arguments: Json, parameters: Json, tool: str) -> list[tuple[Loc, str]]:
    """Return the problems of ``arguments``, each as a location in them and a message; messages name the ``tool``."""
    if not is_schema(arguments):
        return list(_plain_problems(arguments, parameters, parameters, tool))
    schema = arguments[SCHEMA]
    if problem := schema_problem(schema):
        return [((SCHEMA,), f"not a valid JSON Schema: {problem}")]
    return [((SCHEMA, *loc), message) for loc, message in unknown_keywords(schema)]


def _equality(values: Json) -> Json:
    members = {
        name: _equality(value) if isinstance(value, dict) else {"const": value} for name, value in values.items()
    }
    return {"type": "object", "properties": members, "required": list(members)}


def _plain_problems(values: Json, schema: Json, root: Json, tool: str, loc: Loc = ()) -> Iterator[tuple[Loc, str]]:
    """Yield the names that the tool does not take, and the values that it never accepts."""
    members = _members(schema, root)
    for name, value in values.items():
        if name in members:
            yield from _value_problems(value, members[name], root, tool, (*loc, name))
        elif not _is_open(schema):
            hint = closest(name, members)
            if name in KEYWORDS and not loc:
                text = json.dumps({SCHEMA: values}, ensure_ascii=False)
                hint = f"; if this is a JSON Schema, write 'arguments: {truncated(text, _MAX_SUGGESTION)}'"
            yield (*loc, name, KEY), f"{tool} takes no argument {name!r}{hint}"


def _value_problems(value: Any, schema: Any, root: Json, tool: str, loc: Loc) -> Iterator[tuple[Loc, str]]:
    schema = _resolved(schema, root)
    if isinstance(value, dict) and _members(schema, root):
        yield from _plain_problems(value, schema, root, tool, loc)
    elif isinstance(value, dict):
        # An object in a pattern is partial, so only its type is checked.
        if not _takes_objects(schema, root):
            yield loc, f"{show(value)} is an object, which can never occur here, so no call of {tool} matches"
    elif isinstance(schema, dict):
        definitions: Json = {word: root[word] for word in _DEFINITIONS if word in root}
        if invalid := violations({**definitions, **schema}, value):
            yield loc, f"{show(value)} can never occur here, so no call of {tool} matches: {invalid[0]}"


def _takes_objects(schema: Any, root: Json) -> bool:
    """Return whether some object can conform to a schema, judged by its types, values, and branches."""
    schema = _resolved(schema, root)
    if not isinstance(schema, dict):
        return bool(schema)
    kinds = schema.get("type", "object")
    values = [schema["const"]] if "const" in schema else schema.get("enum", [{}])
    return (
        "object" in ([kinds] if isinstance(kinds, str) else kinds)
        and any(isinstance(value, dict) for value in values)
        and all(_takes_objects(part, root) for part in schema.get("allOf", ()))
        and all(
            any(_takes_objects(part, root) for part in schema[word]) for word in ("anyOf", "oneOf") if word in schema
        )
    )


def _members(schema: Any, root: Json) -> Json:
    """Return the schemas of an object's members by name. Members of branches (``anyOf`` etc.) get the empty schema."""
    schema = _resolved(schema, root)
    if not isinstance(schema, dict):
        return {}
    own = schema.get("properties", {})
    branches = [part for word in _BRANCHES for part in schema.get(word, ()) if isinstance(part, dict)]
    others: Json = {name: {} for part in branches for name in part.get("properties", {})}
    return {**own, **others}


def _resolved(schema: Any, root: Json) -> Any:
    """Return the definition that a schema refers to; the empty schema if the tool has no such definition."""
    reference = schema.get("$ref") if isinstance(schema, dict) else None
    if reference is None:
        return schema
    _, _, rest = str(reference).partition("#/")
    word, _, name = rest.partition("/")
    definition = root.get(word, {}).get(name, {}) if word in _DEFINITIONS else {}
    return {} if isinstance(definition, dict) and "$ref" in definition else definition


def _is_open(schema: Json) -> bool:
    """Return whether the tool takes names that it does not list."""
    return bool(schema.get("additionalProperties")) or "patternProperties" in schema
