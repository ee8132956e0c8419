"""Converts JSON Schemas of any draft or dialect, from sources that nobody checked, to bounded ones of draft 2020-12.

References are replaced by what they lead to, down to a depth and a number of members. What lies beyond, repeats itself,
or is not valid becomes open: it accepts more than the original, and never less.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

from pytest_toolemu.formats.json_schema import schema_problem
from pytest_toolemu.formats.regular_expressions import is_linear
from pytest_toolemu.formats.text import truncated

Json = dict[str, Any]

_MAX_PARTS: Final = 4_000
_MAX_VARIANTS: Final = 25
_MAX_KEY: Final = 200
_MAX_REFERENCES: Final = 40
_STRUCTURE: Final = ("properties", "items", "anyOf", "oneOf", "additionalProperties", "prefixItems")
# Without those that accept less if their parts accept more, such as "not".
_ONE: Final = ("items", "additionalProperties", "contains", "propertyNames")
_UNKEPT: Final = (
    "not", "if", "patternProperties", "dependentRequired", "dependentSchemas", "dependencies", "maxContains",
    "unevaluatedProperties", "unevaluatedItems", "additionalItems",
)  # fmt: skip
"""Keywords that restrict values and are left out."""
_MERGED: Final = ("properties", "required", "allOf")


@dataclass(frozen=True)
class SchemaBounds:
    """The number of nested levels, and of members of each object, that a converted schema has at most."""

    depth: int
    members: int


class SchemaConverter:
    """Converts one schema. References lead into ``root``; ``is_cut`` tells whether something became open.

    Members that the keyword ``omitted`` marks are left out, such as ``readOnly`` for what is sent.
    """

    def __init__(self, root: Any, bounds: SchemaBounds, omitted: str | None = None) -> None:
        self._root, self._bounds, self._parts_left, self._omitted = root, bounds, _MAX_PARTS, omitted
        self.is_cut = False

    def convert(self, schema: Any) -> Json:
        """Return the converted schema; an empty one, which accepts everything, if it cannot be used at all."""
        try:
            converted = self._part(schema, (), 0)
        except RecursionError:
            converted = None
        if not isinstance(converted, dict) or schema_problem(converted):
            self.is_cut = True
            return {}
        return converted

    def resolved(self, schema: Any) -> Any:
        """Return what a reference, or a chain of them, leads to; None if nothing. Other values are returned as such."""
        for _ in range(_MAX_REFERENCES):
            if not isinstance(schema, dict) or not isinstance(schema.get("$ref"), str):
                return schema
            schema = self._target(schema["$ref"])
        return None

    def is_omitted(self, member: Any) -> bool:
        """Return whether the keyword marks a member: its schema, what the schema refers to, or a part of either."""
        for _ in range(_MAX_REFERENCES):
            if self._omitted is None or not isinstance(member, dict):
                return False
            # The keyword next to a reference overrides that of its target.
            if self._omitted in member:
                return member[self._omitted] is True
            if not isinstance(member.get("$ref"), str):
                parts = member.get("allOf")
                resolved = map(self.resolved, parts[:_MAX_VARIANTS] if isinstance(parts, list) else ())
                return any(isinstance(part, dict) and part.get(self._omitted) is True for part in resolved)
            member = self._target(member["$ref"])
        return False

    def _target(self, reference: str) -> Any:
        first, *keys = unquote(reference).split("/")
        value = self._root if first == "#" else None
        for key in keys:
            name = key.replace("~1", "/").replace("~0", "~")
            if isinstance(value, list) and name.isdecimal() and int(name) < len(value):
                value = value[int(name)]
            else:
                value = value.get(name) if isinstance(value, dict) else None
        return value

    def _part(self, schema: Any, within: tuple[str, ...], level: int) -> Any:
        self._parts_left -= 1
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict) or self._parts_left < 0:
            return self._open({})
        reference = schema.get("$ref")
        if isinstance(reference, str):
            return self._referenced(schema, reference, within, level)
        merged = self._with_all_of(schema, within, level)
        if level > self._bounds.depth and any(word in merged for word in _STRUCTURE):
            return self._open(merged)
        return _nullable(merged, self._converted(merged, within, level))

    def _referenced(self, schema: Json, reference: str, within: tuple[str, ...], level: int) -> Any:
        target = self._target(reference)
        siblings = {key: value for key, value in schema.items() if key != "$ref"}
        if reference in within or level > self._bounds.depth or len(within) >= _MAX_REFERENCES:
            return self._open({**(target if isinstance(target, dict) else {}), **siblings})
        if isinstance(target, bool):
            return target
        if not isinstance(target, dict):
            return self._open(siblings)
        merged = {**target, **siblings}
        if not any(key in target and key in siblings for key in _MERGED):
            return self._part(merged, (*within, reference), level)
        # Both list members, so both count.
        own = siblings.get("allOf")
        parts = [*(own if isinstance(own, list) else ()), target]
        return self._part({**siblings, "allOf": parts}, (*within, reference), level)

    def _open(self, schema: Json) -> Json:
        """Return a schema without its inner parts, which accepts more."""
        self.is_cut = True
        pairs = ((key, bounded_keyword(key, schema[key])) for key in ("type", "description") if key in schema)
        return {key: value for key, value in pairs if value is not None}

    def _with_all_of(self, schema: Json, within: tuple[str, ...], level: int) -> Json:
        """Return the schema with the parts of ``allOf`` merged into it, as few readers of schemas do that."""
        merged = {key: value for key, value in schema.items() if key != "allOf"}
        parts = schema.get("allOf")
        self.is_cut |= isinstance(parts, list) and len(parts) > _MAX_VARIANTS
        for part in parts[:_MAX_VARIANTS] if isinstance(parts, list) else ():
            converted = self._part(part, within, level)
            for key, value in converted.items() if isinstance(converted, dict) else ():
                if key == "properties" and isinstance(merged.get(key), dict):
                    merged[key] = {**merged[key], **{name: value[name] for name in value if name not in merged[key]}}
                elif key == "required" and isinstance(merged.get(key), list):
                    merged[key] = [*merged[key], *value]
                else:
                    merged.setdefault(key, value)
        return merged

    def _converted(self, schema: Json, within: tuple[str, ...], level: int) -> Json:
        result: Json = bounded_values(schema)
        _remove_misread_choices(result)
        self.is_cut |= any(key in schema and key not in result for key in ("enum", "const", "pattern"))
        self.is_cut |= any(key in schema and schema[key] is not True and schema[key] != {} for key in _UNKEPT)
        _number_bounds(schema, result)
        for key in _ONE:
            if isinstance(schema.get(key), dict | bool):
                result[key] = self._part(schema[key], within, level + (key == "items"))
        if "contains" in result and schema.get("minContains", 1) != 1:
            self.is_cut = True
            if schema["minContains"] == 0:  # no item has to match
                del result["contains"]
        self._variants(schema, result, within, level)
        self._members(schema, result, within, level)
        return result

    def _variants(self, schema: Json, result: Json, within: tuple[str, ...], level: int) -> None:
        # A value may conform to several converted variants of "oneOf". Lists of "items" are of draft 7.
        for key, names in (("anyOf", ("anyOf", "oneOf")), ("prefixItems", ("prefixItems", "items"))):
            parts: list[Any] = next(
                (schema[name] for name in names if isinstance(schema.get(name), list) and schema[name]), []
            )
            if 0 < len(parts) <= _MAX_VARIANTS:
                result[key] = [self._part(part, within, level + 1) for part in parts]
            elif parts:
                self.is_cut = True

    def _members(self, schema: Json, result: Json, within: tuple[str, ...], level: int) -> None:
        properties, required = schema.get("properties"), schema.get("required")
        if schema.get("patternProperties"):
            self.is_cut |= result.pop("additionalProperties", None) is not None
        names = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
        if isinstance(properties, dict):
            wanted = [name for name in properties if not self.is_omitted(properties[name])]
            kept = [name for name in wanted if len(name) <= _MAX_KEY]
            if len(kept) > self._bounds.members:
                kept = sorted(kept, key=lambda name: name not in names)[: self._bounds.members]
            self.is_cut |= len(kept) < len(wanted)
            if len(kept) < len(properties):
                result.pop("additionalProperties", None)
            result["properties"] = {name: self._part(properties[name], within, level + 1) for name in kept}
            names = [name for name in names if name in result["properties"]]
        names = [name for name in dict.fromkeys(names) if len(name) <= _MAX_KEY][: self._bounds.members]
        if names:
            result["required"] = names


def _remove_misread_choices(result: Json) -> None:
    """Remove choices that are texts where the type allows none: numbers too large to store are read as texts."""
    kinds = result.get("type", "string")
    for key, values in (("enum", result.get("enum", ())), ("const", [result.get("const")])):
        if "string" not in kinds and any(isinstance(value, str) for value in values):
            del result[key]


def _number_bounds(schema: Json, result: Json) -> None:
    """Convert exclusive bounds of OpenAPI 3.0, which are truth values next to the bound."""
    for exclusive, inclusive in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if schema.get(exclusive) is True and inclusive in result:
            result[exclusive] = result.pop(inclusive)


def _nullable(schema: Json, converted: Json) -> Json:
    """Add null to the types of a schema of OpenAPI 3.0 that allows it."""
    if schema.get("nullable") is not True:
        return converted
    kind = converted.get("type")
    if isinstance(kind, str) and kind != "null" and not {"enum", "const"} & converted.keys():
        return {**converted, "type": [kind, "null"]}
    if kind is None and not {"enum", "const", "anyOf", "oneOf"} & converted.keys():
        return converted  # it accepts everything
    outer = {"description": converted.pop("description")} if "description" in converted else {}
    return {**outer, "anyOf": [converted, {"type": "null"}]}


_TYPES: Final = ("array", "boolean", "integer", "null", "number", "object", "string")

# Formats that validators check. Others, such as int64, only describe.
_FORMATS: Final = frozenset({
    "date", "date-time", "time", "duration", "email", "idn-email", "hostname", "idn-hostname", "ipv4", "ipv6", "uri",
    "uri-reference", "iri", "iri-reference", "uri-template", "json-pointer", "relative-json-pointer", "regex", "uuid",
})  # fmt: skip
_MAX_TEXT: Final = 2_000
_MAX_PATTERN: Final = 500
_MAX_CHOICES: Final = 500
_MAX_VALUE: Final = 1_000
_MAX_COUNT: Final = 10_000


def bounded_keyword(key: str, value: Any) -> Any:
    """Return the value of a keyword; a shorter one of a long text, and None if the value cannot be used."""
    return BOUNDED[key](value)


def bounded_values(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the keywords of a schema that are not schemas, and whose values can be used."""
    pairs = ((key, bounded_keyword(key, schema[key])) for key in BOUNDED if key in schema)
    kept = {key: value for key, value in pairs if value is not None}
    # Null is a value of these.
    return kept | {key: schema[key] for key in ("const", "default") if key in schema and _is_small(schema[key])}


def _type(value: Any) -> Any:
    if isinstance(value, list):
        kinds = [kind for each in value if (kind := _type(each)) in _TYPES]
        return kinds if kinds and len(kinds) == len(value) == len(set(kinds)) else None
    # Gemini writes types in capitals.
    return value.lower() if isinstance(value, str) and value.lower() in _TYPES else None


def _text(value: Any) -> str | None:
    return truncated(value, _MAX_TEXT) if isinstance(value, str) and value else None


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and math.isfinite(value) else None


def _step(value: Any) -> float | None:
    number = _number(value)
    return number if number is not None and number > 0 else None


def _count(value: Any) -> int | None:
    is_count = isinstance(value, int) and not isinstance(value, bool)
    return value if is_count and 0 <= value <= _MAX_COUNT else None


def _limit(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _choices(value: Any) -> list[Any] | None:
    if not isinstance(value, list) or not 0 < len(value) <= _MAX_CHOICES or not all(map(_is_small, value)):
        return None
    return list({json.dumps(each): each for each in value}.values())


def _pattern(value: Any) -> str | None:
    return value if isinstance(value, str) and len(value) <= _MAX_PATTERN and is_linear(value) else None


def _is_small(value: Any) -> bool:
    return len(json.dumps(value)) <= _MAX_VALUE


BOUNDED: Final[dict[str, Callable[[Any], Any]]] = {
    "type": _type,
    "description": _text,
    "enum": _choices,
    "format": lambda value: value if isinstance(value, str) and value in _FORMATS else None,
    "pattern": _pattern,
    "minimum": _number,
    "maximum": _number,
    "exclusiveMinimum": _number,
    "exclusiveMaximum": _number,
    "multipleOf": _step,
    "minLength": _count,
    "maxLength": _limit,
    "minItems": _count,
    "maxItems": _limit,
    "uniqueItems": _flag,
    "minProperties": _count,
    "maxProperties": _count,
}
"""A function for each keyword that returns the value to keep; None drops the keyword."""
