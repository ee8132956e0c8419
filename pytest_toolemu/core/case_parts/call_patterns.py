"""Which calls a pin or a check matches: plain values that arguments must equal, or a JSON Schema they must satisfy."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal

from pytest_toolemu.formats.json_schema import schema_problem, violations
from pytest_toolemu.formats.json_schema_keywords import ASSERTIONS, KEYWORDS, unknown_keywords
from pytest_toolemu.formats.truncation import truncated
from pytest_toolemu.formats.yaml_document import KEY, Loc, closest, show

Json = dict[str, Any]
Form = Literal["plain", "schema", "bare schema", "ambiguous"]
"""How ``arguments`` are written: as values, ``{schema: ...}``, a schema alone (earlier versions), or ambiguously."""

SCHEMA: Final = "schema"
_BRANCHES: Final = ("allOf", "anyOf", "oneOf")
_DEFINITIONS: Final = ("$defs", "definitions")
_MAX_SUGGESTION: Final = 300


def form_of(arguments: Json, parameters: Json) -> Form:
    """Return how the ``arguments`` of a pin or check are written, for a tool with these parameters."""
    if arguments.keys() == {SCHEMA} and isinstance(arguments[SCHEMA], dict):
        return "schema"
    if not _is_schema(arguments):
        return "plain"
    return "ambiguous" if arguments.keys() <= _members(parameters, parameters).keys() else "bare schema"


def call_schema(arguments: Json, parameters: Json) -> Json:
    """Return the JSON Schema of the calls that ``arguments`` match, for a tool with these parameters.

    Plain values require equality of the given members, also in nested objects; a list must be equal as a whole.
    Ambiguous arguments count as a schema: files with such arguments are rejected, so they come from records of earlier
    versions, in which they were schemas.
    """
    form = form_of(arguments, parameters)
    if form == "plain":
        return _equality(arguments) if arguments else {}
    return dict(arguments[SCHEMA]) if form == "schema" else arguments


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
    form = form_of(arguments, parameters)
    if form == "schema":
        return [((SCHEMA, *loc), message) for loc, message in _schema_problems(arguments[SCHEMA])]
    if form == "ambiguous":
        names = " and ".join(map(repr, arguments))
        reason = f"{tool} takes {names}, so this could be values or a JSON Schema"
        as_schema, as_values = {SCHEMA: arguments}, {SCHEMA: _equality(arguments)}
        return [((), f"{reason}; write {_suggestion(as_schema)} or {_suggestion(as_values)}")]
    if form == "bare schema":
        return unknown_keywords(arguments)
    return list(_plain_problems(arguments, parameters, parameters, tool))


def explicit(arguments: Json, tools: Sequence[Json]) -> Json:
    """Return ``arguments`` that are a bare schema in the current form: as plain values if these mean the same.

    ``tools`` are the parameters of all tools that the pattern names.
    """
    always = set.intersection(*(set(parameters.get("required", ())) for parameters in tools))
    plain = _as_values(arguments, always)
    if plain is None or any(form_of(plain, parameters) != "plain" for parameters in tools):
        return {SCHEMA: arguments}
    return plain


def _is_schema(arguments: Json) -> bool:
    """Return whether this is a valid schema that contains only keywords, at least one of which restricts values."""
    keys = arguments.keys()
    return keys <= KEYWORDS and not keys.isdisjoint(ASSERTIONS) and schema_problem(arguments) is None


def _equality(values: Json) -> Json:
    members = {
        name: _equality(value) if isinstance(value, dict) else {"const": value} for name, value in values.items()
    }
    return {"type": "object", "properties": members, "required": list(members)}


def _as_values(schema: Json, required: set[str]) -> Json | None:
    """Return plain values that mean the same as a schema; None if it requires more than equality of members."""
    members = schema.get("properties", {})
    required_arguments = {*schema.get("required", ()), *required}
    if not schema.keys() <= {"type", "properties", "required"} or schema.get("type", "object") != "object":
        return None
    if not members or not members.keys() <= required_arguments or not set(schema.get("required", ())) <= members.keys():
        return None
    values: Json = {}
    for name, part in members.items():
        if isinstance(part, dict) and part.keys() == {"const"} and not isinstance(part["const"], dict):
            values[name] = part["const"]
        elif isinstance(part, dict) and part.get("type") == "object" and (inner := _as_values(part, set())):
            values[name] = inner
        else:
            return None
    return values


def _schema_problems(schema: Json) -> Iterator[tuple[Loc, str]]:
    if problem := schema_problem(schema):
        yield (), f"not a valid JSON Schema: {problem}"
    yield from unknown_keywords(schema)


def _plain_problems(values: Json, schema: Json, root: Json, tool: str, loc: Loc = ()) -> Iterator[tuple[Loc, str]]:
    """Yield the names that the tool does not take, and the values that it never accepts."""
    members = _members(schema, root)
    for name, value in values.items():
        if name in members:
            yield from _value_problems(value, members[name], root, tool, (*loc, name))
        elif not _is_open(schema):
            hint = closest(name, members)
            if name in KEYWORDS and not loc:
                hint = f"; if this is a JSON Schema, write {_suggestion({SCHEMA: values})}"
            yield (*loc, name, KEY), f"{tool} takes no argument {name!r}{hint}"


def _value_problems(value: Any, schema: Any, root: Json, tool: str, loc: Loc) -> Iterator[tuple[Loc, str]]:
    schema = _resolved(schema, root)
    if isinstance(value, dict) and _members(schema, root):
        yield from _plain_problems(value, schema, root, tool, loc)
    elif isinstance(value, dict):
        # An object in a pattern is partial, so only its type is checked.
        if not _takes_objects(schema, root):
            hint = f"; if this is a JSON Schema, write {_suggestion(_nested(value, loc))}" if _is_schema(value) else ""
            reason = f"{show(value)} is an object, which can never occur here"
            yield loc, f"{reason}, so no call of {tool} matches{hint}"
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


def _nested(schema: Json, names: Loc) -> Json:
    """Return ``arguments`` that are a JSON Schema, in which the member at a location must satisfy ``schema``."""
    for name in reversed(names):
        schema = {"properties": {name: schema}, "required": [name]}
    return {SCHEMA: schema}


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


def _suggestion(arguments: Json) -> str:
    """Return the line to write in the file, in flow style, shortened if it is long."""
    text = json.dumps(arguments, ensure_ascii=False)
    return f"'arguments: {truncated(text, _MAX_SUGGESTION)}'"
