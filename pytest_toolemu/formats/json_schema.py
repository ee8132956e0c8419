"""Validation by JSON Schema (draft 2020-12), in which tools declare their arguments and results."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, Final, Literal, TypeVar
from urllib.parse import unquote

import jsonschema_rs

from pytest_toolemu.formats.regular_expressions import SlowExpressionError, is_expression, occurs
from pytest_toolemu.formats.text import quoted
from pytest_toolemu.formats.yaml_document import KEY, Loc, closest, format_location

_MAX_PROBLEMS: Final = 20
TYPE_NAMES: Final[dict[type, str]] = {
    bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object", type(None): "null",
}  # fmt: skip
"""The JSON Schema types of Python's JSON values."""


def schema_problem(schema: Any) -> str | None:
    """Return why a schema is not valid; None if it is."""
    return _problem(json.dumps(schema))


# Cached by text: the records of a session contain the same few hundred schemas thousands of times.
@functools.lru_cache(maxsize=4096)
def _problem(text: str) -> str | None:
    try:
        jsonschema_rs.meta.validate(json.loads(text))
    except jsonschema_rs.ValidationError as error:
        return f"{_location(tuple(error.instance_path))}{_fault(error)}"
    except ValueError as error:
        return str(error)
    try:
        _compiled(text)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        # The validator prepends what it was doing to the message of ``_Pattern``.
        return str(error).splitlines()[0].rpartition(" ValueError: ")[2]
    # Few schemas have the keyword, and the walk through all parts of a schema takes long.
    for _, part in subschemas(json.loads(text), ()) if "patternProperties" in text else ():
        for name in part.get("patternProperties", ()):
            if _linear(name) is None:
                return (
                    f"patternProperties: write {name!r} without lookarounds and backreferences, which can take "
                    "unlimited time"
                )
    return None


def _fault(error: jsonschema_rs.ValidationError) -> str:
    """Return the problem with a part of a schema.

    For an unknown type, the meta-schema's message names no valid type.
    """
    if not (list(error.instance_path)[-1:] == ["type"] and "anyOf" in error.message):
        return error.message
    name = error.instance if isinstance(error.instance, str) else ""
    return f"{json.dumps(error.instance)} is not a type{closest(name, TYPE_NAMES.values())}"


class ValueSchema:
    """A schema that many values are checked against.

    Formats (date, email, uri, ...) are enforced. Methods raise SlowExpressionError if a regular expression exceeds its
    time limit.
    """

    def __init__(self, schema: dict[str, Any]) -> None:
        self._text = json.dumps(schema)

    def violations(self, value: Any) -> list[str]:
        """Return at most 20 violations as ``location: message``; empty if the value conforms."""
        return [f"{_location(path)}{text}" for path, text in self.located_violations(value)]

    def located_violations(self, value: Any) -> list[tuple[Loc, str]]:
        """Return at most 20 violations, each with its location in the value; empty if the value conforms."""
        # Most values conform, and listing violations takes up to a hundred times as long as finding none.
        if self.conforms(value):
            return []
        try:
            with _time_limits():
                errors = itertools.islice(_compiled(self._text).iter_errors(value), _MAX_PROBLEMS)
                return [located for error in errors for located in _messages(error)]
        except (ValueError, RecursionError):  # the validator's limit is about 255 levels
            return [((), "the value is nested too deeply")]

    def conforms(self, value: Any) -> bool:
        """Return whether a value has no violations."""
        try:
            with _time_limits():
                return _compiled(self._text).is_valid(value)
        except (ValueError, RecursionError):
            return False


def once_per_object(size: int) -> Callable[[Callable[[P], R]], Callable[[P], R]]:
    """Return a decorator that caches a function by the identity of its argument, which must not change.

    Not by equality, because equal dictionaries may have their members in a different order. With more than ``size``
    objects, the cache starts again.
    """

    def decorate(function: Callable[[P], R]) -> Callable[[P], R]:
        # The object is kept, so that its id stays its own.
        cache: dict[int, tuple[P, R]] = {}

        @functools.wraps(function)
        def cached(argument: P) -> R:
            entry = cache.get(id(argument))
            if entry is None:
                if len(cache) >= size:
                    cache.clear()
                entry = cache[id(argument)] = (argument, function(argument))
            return entry[1]

        return cached

    return decorate


lasting_schema: Final = once_per_object(4096)(ValueSchema)
"""Return the object for a dictionary that never changes; it is created once for each dictionary."""


def violations(schema: dict[str, Any], value: Any) -> list[str]:
    """Return the violations of a schema by one value, as ``ValueSchema.violations`` does."""
    return ValueSchema(schema).violations(value)


def conforms(schema: dict[str, Any], value: Any) -> bool:
    """Return whether one value has no violations of a schema. Raise SlowExpressionError, as ``ValueSchema`` does."""
    return ValueSchema(schema).conforms(value)


@contextlib.contextmanager
def _time_limits() -> Iterator[None]:
    """Raise SlowExpressionError at the end if a regular expression exceeded its time limit inside this block."""
    exceeded: list[SlowExpressionError] = []
    token = _EXCEEDED.set(exceeded)
    try:
        yield
    finally:
        _EXCEEDED.reset(token)
        if exceeded:
            raise exceeded[0]


_EXCEEDED: ContextVar[list[SlowExpressionError]] = ContextVar("exceeded")


class _Pattern:
    """The keyword ``pattern`` with a time limit.

    The validator treats exceptions as violations, so it notes a timeout.
    """

    def __init__(self, _parent: dict[str, Any], pattern: str, _path: list[str | int]) -> None:
        self._pattern = pattern
        self._linear = _linear(pattern)
        if self._linear is None and not is_expression(pattern):
            raise ValueError(f'{json.dumps(pattern)} is not a "regex"')

    def validate(self, instance: Any) -> None:
        """Raise ValueError for text that does not match the expression."""
        if not isinstance(instance, str):
            return
        try:
            valid = self._linear.is_valid(instance) if self._linear else occurs(self._pattern, instance)
        except SlowExpressionError as error:
            _EXCEEDED.get().append(error)
            valid = False
        if not valid:
            raise ValueError(f"{json.dumps(instance)} does not match {json.dumps(self._pattern)}")


def _linear(pattern: str) -> jsonschema_rs.Validator | None:
    """Return a validator that needs linear time; None if the expression has lookarounds or backreferences."""
    try:
        return jsonschema_rs.Draft202012Validator({"pattern": pattern}, pattern_options=jsonschema_rs.RegexOptions())
    except (jsonschema_rs.ValidationError, ValueError):
        return None


@functools.lru_cache(maxsize=4096)
def _bounded(schema: str) -> jsonschema_rs.Validator:
    return jsonschema_rs.Draft202012Validator(
        json.loads(schema), validate_formats=True, retriever=_no_reference, keywords={"pattern": _Pattern}
    )


@functools.lru_cache(maxsize=4096)
def _compiled(schema: str) -> jsonschema_rs.Validator:
    # The retriever refuses every reference, so a schema never causes access to the network or the disk.
    try:
        return jsonschema_rs.Draft202012Validator(
            json.loads(schema),
            validate_formats=True,
            retriever=_no_reference,
            pattern_options=jsonschema_rs.RegexOptions(),
        )
    except (jsonschema_rs.ValidationError, ValueError):  # a lookaround or a backreference, or an error in the schema
        return _bounded(schema)


def _no_reference(uri: str) -> Any:
    raise ValueError(f"the reference {uri!r} points outside the schema; include the definition")


def _messages(error: jsonschema_rs.ValidationError) -> list[tuple[Loc, str]]:
    """Return the error; for a choice of schemas, also the violations of the closest one, which the author can fix."""
    branches: list[list[jsonschema_rs.ValidationError]] = getattr(error.kind, "context", None) or []
    message = tuple(error.instance_path), _text(error)
    if not any(branches):
        return [message]
    # The schema that matches the value to the deepest level is most likely the intended one.
    nearest = max(branches, key=lambda branch: (max(len(e.instance_path) for e in branch), -len(branch)))
    return [message, *((tuple(part.instance_path), _text(part)) for part in nearest)]


_MAX_CHOICES: Final = 30


def _text(error: jsonschema_rs.ValidationError) -> str:
    """Return the message of a violation, with all values of an enumeration that is not long."""
    choices: list[Any] = getattr(error.kind, "options", [])
    value, is_choice, _ = error.message.partition(" is not one of ")
    if not is_choice or not 3 < len(choices) <= _MAX_CHOICES:
        return error.message
    *others, last = map(json.dumps, choices)
    return f"{value} is not one of {', '.join(others)} or {last}"


def _location(path: Loc) -> str:
    return f"{format_location(path)}: " if path else ""


_ONE: Final = (
    "items", "contains", "additionalProperties", "propertyNames", "unevaluatedItems", "unevaluatedProperties", "not",
    "if", "then", "else", "contentSchema",
)  # fmt: skip
_LISTS: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
_MAPPINGS: Final = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")

ASSERTIONS: Final = frozenset({
    "type", "const", "enum", "multipleOf", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum", "maxLength",
    "minLength", "pattern", "maxItems", "minItems", "uniqueItems", "maxContains", "minContains", "maxProperties",
    "minProperties", "required", "dependentRequired", "format", "$ref", "$dynamicRef",
    *_ONE, *_LISTS, *_MAPPINGS,
})  # fmt: skip
"""The keywords that can change which values a schema accepts."""

KEYWORDS: Final = ASSERTIONS | {
    "$schema", "$id", "$anchor", "$dynamicAnchor", "$vocabulary", "$comment", "title", "description", "default",
    "deprecated", "readOnly", "writeOnly", "examples", "contentEncoding", "contentMediaType",
}  # fmt: skip
"""All keywords. Other keys of a schema must begin with ``x-``."""


def unknown_keywords(schema: Any) -> list[tuple[Loc, str]]:
    """Return a message for each key that is not a keyword, with its location in the schema.

    Validators ignore such keys, so a misspelled keyword would accept everything.
    """
    return [
        ((*loc, name, KEY), _unknown(name))
        for loc, part in subschemas(schema, ())
        for name in part
        if name not in KEYWORDS and not name.startswith("x-")
    ]


def _unknown(name: str) -> str:
    near = closest(name, KEYWORDS)
    hint = near if near.startswith("; did") else "; correct or remove it, or begin its name with 'x-'"
    return f"unknown JSON Schema keyword {name!r}{hint}"


def subschemas(schema: Any, loc: Loc) -> Iterator[tuple[Loc, dict[str, Any]]]:
    """Yield a schema and all its subschemas, with their locations.

    Values of keys such as ``default`` are not schemas.
    """
    if not isinstance(schema, dict):
        return
    yield loc, schema
    # Parts of another kind are not schemas, or not valid, which is checked elsewhere.
    for word in _ONE:
        if isinstance(part := schema.get(word), dict):
            yield from subschemas(part, (*loc, word))
    for word in _LISTS:
        if isinstance(parts := schema.get(word), list):
            for index, part in enumerate(parts):
                yield from subschemas(part, (*loc, word, index))
    for word in _MAPPINGS:
        if isinstance(members := schema.get(word), dict):
            for name, part in members.items():
                yield from subschemas(part, (*loc, word, name))


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
        target = expand(target_of(schema, pointer, True), (*within, pointer))
        siblings = {key: expand(value, within) for key, value in part.items() if key not in ("$ref", "$defs")}
        return {**target, **siblings} if isinstance(target, dict) else target

    expanded: dict[str, Any] = expand(schema, ("#",))
    return expanded


def _mentions_references(part: Any) -> bool:
    if isinstance(part, dict):
        return "$ref" in part or "$defs" in part or any(map(_mentions_references, part.values()))
    return isinstance(part, list) and any(map(_mentions_references, part))


def target_of(schema: Any, pointer: str, otherwise: Any) -> Any:
    """Return the target of a JSON pointer; ``otherwise`` if there is none, as for references such as anchors."""
    first, *rest = unquote(pointer).split("/")
    target: Any = schema
    try:
        for part in rest:
            key = part.replace("~1", "/").replace("~0", "~")
            target = target[int(key)] if isinstance(target, list) else target[key]
    except (LookupError, TypeError, ValueError):
        return otherwise
    return target if first == "#" else otherwise


Explain = Literal["nothing", "open", "all"]
"""The parts whose description is included: none, those whose type states nothing about their content, or all."""

# Types that state nothing about their content.
_OPEN: Final = frozenset({"any", "[any]", "object", "[object]"})


def type_text(schema: Any, explain: Explain = "nothing") -> str:
    """Return a JSON Schema as a short type: ``{id: string, tags?: [string], state: "open" | "closed"}``."""
    text = _type(schema, explain)
    description = " ".join(schema.get("description", "").split()) if isinstance(schema, dict) else ""
    is_explained = explain == "all" or (explain == "open" and text in _OPEN)
    return f"{text} ({description})" if description and is_explained else text


def members_text(
    schema: dict[str, Any], brackets: str = "{}", *, explain: Explain = "nothing", types: bool = True
) -> str:
    """Return the members of an object, each with its type; ``?`` marks an optional member."""
    required = schema.get("required", ())
    members = [
        f"{key}{'' if key in required else '?'}" + (f": {type_text(member, explain)}" if types else "")
        for key, member in schema.get("properties", {}).items()
    ]
    return f"{brackets[0]}{', '.join(members)}{brackets[1]}"


def _type(schema: Any, explain: Explain) -> str:
    if not isinstance(schema, dict):
        return "any"
    if choices := schema.get("enum") or ([schema["const"]] if "const" in schema else []):
        return " | ".join(quoted(choice) for choice in choices)
    if variants := schema.get("anyOf") or schema.get("oneOf"):
        return " | ".join(type_text(variant, explain) for variant in variants)
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    kinds = schema.get("type", "any")
    return " | ".join(_kind(kind, schema, explain) for kind in ([kinds] if isinstance(kinds, str) else kinds))


def _kind(kind: str, schema: dict[str, Any], explain: Explain) -> str:
    if kind == "array":
        return f"[{type_text(schema.get('items'), explain)}]"
    if kind == "object":
        return members_text(schema, explain=explain) if schema.get("properties") else "object"
    return f"{kind} ({schema['format']})" if "format" in schema else kind


P = TypeVar("P")
R = TypeVar("R")
