"""Converts JSON Schemas of any draft or dialect, from sources that nobody checked, to bounded ones of draft 2020-12.

References are replaced by what they lead to, down to a depth and a number of members. What lies beyond, repeats itself,
or is not valid becomes open: it accepts more than the original, and never less.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from pytest_toolemu.formats.json_schema import schema_problem, target_of
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
            schema = target_of(self._root, schema["$ref"], None)
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
            member = target_of(self._root, member["$ref"], None)
        return False

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
        target = target_of(self._root, reference, None)
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
        return _values(schema, ("type", "description"))

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
        result = _values(schema)
        _remove_misread_choices(result)
        self.is_cut |= any(key in schema and key not in result for key in ("enum", "const", "pattern"))
        self.is_cut |= any(key in schema and schema[key] is not True and schema[key] != {} for key in _UNKEPT)
        for exclusive, inclusive in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            if schema.get(exclusive) is True and inclusive in result:  # of OpenAPI 3.0
                result[exclusive] = result.pop(inclusive)
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
        properties, required = schema.get("properties", {}), schema.get("required")
        self.is_cut |= not isinstance(properties, dict)
        if schema.get("patternProperties"):
            self.is_cut |= result.pop("additionalProperties", None) is not None
        names = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
        if isinstance(properties, dict) and "properties" in schema:
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


# Formats that validators check. Others, such as int64, only describe.
_FORMATS: Final = frozenset({
    "date", "date-time", "time", "duration", "email", "idn-email", "hostname", "idn-hostname", "ipv4", "ipv6", "uri",
    "uri-reference", "iri", "iri-reference", "uri-template", "json-pointer", "relative-json-pointer", "regex", "uuid",
})  # fmt: skip
_VALUE_KEYWORDS: Final = (
    "type", "description", "enum", "const", "default", "format", "pattern", "minimum", "maximum", "exclusiveMinimum",
    "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "minItems", "maxItems", "uniqueItems", "minProperties",
    "maxProperties",
)  # fmt: skip
_MAX_TEXT: Final = 2_000
_MAX_PATTERN: Final = 500
_MAX_CHOICES: Final = 500
_MAX_VALUE: Final = 1_000
_MAX_COUNT: Final = 10_000


def _values(schema: Json, keys: tuple[str, ...] = _VALUE_KEYWORDS) -> Json:
    """Return the keywords of a schema that are not schemas, and whose values are valid and small."""
    kept = {key: _normalized(key, schema[key]) for key in keys if key in schema}
    return {key: value for key, value in kept.items() if _is_usable(key, value) and not schema_problem({key: value})}


def _normalized(key: str, value: Any) -> Any:
    if key == "type":  # Gemini writes types in capitals.
        return [str(kind).lower() for kind in value] if isinstance(value, list) else str(value).lower()
    if key == "description" and isinstance(value, str):
        return truncated(value, _MAX_TEXT)
    is_enum = key == "enum" and isinstance(value, list)
    return list({json.dumps(each): each for each in value}.values()) if is_enum else value


def _is_usable(key: str, value: Any) -> bool:
    if key == "enum":
        return isinstance(value, list) and 0 < len(value) <= _MAX_CHOICES and all(map(_is_small, value))
    if key == "pattern":
        return isinstance(value, str) and len(value) <= _MAX_PATTERN and is_linear(value)
    if key == "format":
        return isinstance(value, str) and value in _FORMATS
    if key in ("minLength", "minItems", "minProperties"):
        return isinstance(value, int) and value <= _MAX_COUNT
    return value != "" if key == "description" else _is_small(value)


def _is_small(value: Any) -> bool:
    return len(json.dumps(value)) <= _MAX_VALUE
