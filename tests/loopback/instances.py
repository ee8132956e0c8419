"""The smallest instance of a JSON schema, always the same one: the reply of a model that only satisfies the schema."""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Iterator
from typing import Any, Final

import jsonschema_rs

_FORMATS: Final = {
    "date": "2026-01-01",
    "date-time": "2026-01-01T00:00:00Z",
    "duration": "P1D",
    "email": "a@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "time": "00:00:00Z",
    "uri": "https://example.com",
    "uri-reference": "/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}
_BOUNDS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_IMPLIED: Final = (
    ("object", ("properties", "required", "additionalProperties", "minProperties")),
    ("array", ("items", "prefixItems", "minItems")),
    ("string", ("minLength", "maxLength", "format", "pattern")),
    ("number", (*_BOUNDS, "multipleOf")),
)
# Anthropic's SDK moves limits that the service cannot enforce to the end of the description, in braces.
_LIMITS: Final = re.compile(r"(?:\A|\n\n)\{(.*)\}\Z")
_WORD: Final = re.compile(r"(\w+): (.*?)(?=, \w+: |\Z)")
_TEXTS: Final = ("pattern", "format")
_NUMBERS: Final = (*_BOUNDS, "multipleOf", "minLength", "maxLength", "minItems", "maxItems", "minProperties")

Trail = tuple[str, ...]


class ImpossibleError(ValueError):
    """The schema has no instance, or none was found."""


def smallest(schema: Any) -> Any:
    """Return the smallest valid instance. Raise ImpossibleError with the reason if there is none."""
    return json.loads(_smallest(json.dumps(schema)))


@functools.lru_cache(maxsize=1024)
def _smallest(schema: str) -> str:
    root = json.loads(schema)
    value = _Maker(root).make(root)
    try:
        jsonschema_rs.Draft202012Validator(root, validate_formats=True).validate(value)
    except jsonschema_rs.ValidationError as error:
        raise ImpossibleError(f"{value!r} was made, but {error.message}") from None
    return json.dumps(value)


class _Maker:
    """Builds instances of the parts of one schema. A trail contains the references that led to a part."""

    def __init__(self, root: Any) -> None:
        self._root = root

    def make(self, schema: Any, trail: Trail = ()) -> Any:
        flat, trail = self._flat(schema, trail)
        for word in ("anyOf", "oneOf"):
            if word in flat:
                return self._either(flat, word, trail)
        choices = [flat["const"]] if "const" in flat else flat.get("enum")
        if choices is not None:
            return self._first_valid(flat, choices)
        return self._of_type(_type(flat), flat, trail)

    def _of_type(self, kind: str, flat: dict[str, Any], trail: Trail) -> Any:
        match kind:
            case "object":
                return self._object(flat, trail)
            case "array":
                return self._array(flat, trail)
            case "string":
                return self._string(flat)
            case "integer" | "number":
                return self._first_valid(flat, _numbers(flat, whole=kind == "integer"))
            case "boolean":
                return False
            case _:
                return None

    def _flat(self, schema: Any, trail: Trail) -> tuple[dict[str, Any], Trail]:
        """Return the schema with references and ``allOf`` resolved, and its trail. A circular reference is an error."""
        if schema is False:
            raise ImpossibleError("the schema 'false' has no instance")
        flat = {} if schema is True else {key: schema[key] for key in schema if key not in ("$ref", "allOf")}
        if schema is True:
            return flat, trail
        if ref := schema.get("$ref"):
            if ref in trail:
                raise ImpossibleError(f"{ref} contains itself without end")
            target, trail = self._flat(self._target(ref), (*trail, ref))
            flat = _merged(target, flat)
        for part in schema.get("allOf", ()):
            other, trail = self._flat(part, trail)
            flat = _merged(flat, other)
        return {**_described_limits(flat.get("description", "")), **flat}, trail

    def _target(self, ref: str) -> Any:
        part = self._root
        for step in ref.removeprefix("#").split("/")[1:]:
            part = part[step.replace("~1", "/").replace("~0", "~")]
        return part

    def _either(self, flat: dict[str, Any], word: str, trail: Trail) -> Any:
        base_schema = {key: flat[key] for key in flat if key != word}
        problems = []
        for branch in flat[word]:
            try:
                option, further = self._flat(branch, trail)
                value = self.make(_merged(base_schema, option), further)
                return self._first_valid(flat, [value])
            except ImpossibleError as problem:
                problems.append(str(problem))
        raise ImpossibleError(f"no branch of {word} has an instance: {'; '.join(problems)}")

    def _first_valid(self, flat: dict[str, Any], values: Any) -> Any:
        named = {word: self._root[word] for word in ("$defs", "definitions") if word in self._root}
        validator = jsonschema_rs.Draft202012Validator({**flat, **named}, validate_formats=True)
        for value in values:
            if validator.is_valid(value):
                return value
        raise ImpossibleError(f"no value was found for {json.dumps(flat)}")

    def _object(self, flat: dict[str, Any], trail: Trail) -> dict[str, Any]:
        properties, required = flat.get("properties", {}), flat.get("required", ())
        names = [
            *(name for name in properties if name in required),
            *(name for name in required if name not in properties),
        ]
        spare = [name for name in properties if name not in required]
        names += spare[: max(0, flat.get("minProperties", 0) - len(names))]
        return {name: self.make(properties.get(name, flat.get("additionalProperties", True)), trail) for name in names}

    def _array(self, flat: dict[str, Any], trail: Trail) -> list[Any]:
        first, item_schema = flat.get("prefixItems", []), flat.get("items", True)
        schemas = [first[index] if index < len(first) else item_schema for index in range(flat.get("minItems", 0))]
        items: list[Any] = []
        for schema in schemas:
            value = self.make(schema, trail)
            items.append(self._other(schema, value, items, trail) if flat.get("uniqueItems") else value)
        return items

    def _other(self, schema: Any, value: Any, others: list[Any], trail: Trail) -> Any:
        """Return a value that differs from the others: the next choice, the next number, or a longer text."""
        flat, _ = self._flat(schema, trail)
        grown = (value + "a" * len(others) if isinstance(value, str) else (value or 0) + len(others),)
        options = flat.get("enum") or ((False, True) if value is False else grown)
        return next((option for option in (value, *options) if option not in others), value)

    def _string(self, flat: dict[str, Any]) -> Any:
        if "pattern" in flat:
            return _matching(json.dumps(flat))
        return _FORMATS.get(flat.get("format", ""), "a" * flat.get("minLength", 0))


@functools.lru_cache(maxsize=256)
def _matching(schema: str) -> str:
    """Return the simplest string that matches a schema with a pattern; a new pattern takes about 0.2 s."""
    from hypothesis import find, settings  # the import takes 0.25 s, and few schemas have a pattern
    from hypothesis import strategies as st
    from hypothesis.errors import NoSuchExample

    is_valid = jsonschema_rs.Draft202012Validator(json.loads(schema), validate_formats=True).is_valid
    texts = st.from_regex(json.loads(schema)["pattern"], alphabet=st.characters(codec="ascii"))
    try:
        return find(texts, is_valid, settings=settings(database=None, derandomize=True))
    except NoSuchExample:
        raise ImpossibleError(f"no text was found for {schema}") from None


def _described_limits(description: str) -> dict[str, Any]:
    """Return the limits that Anthropic's SDK wrote at the end of a description, as keywords of a schema."""
    match = _LIMITS.search(description)
    words = dict(_WORD.findall(match.group(1))) if match else {}
    texts = {word: words[word] for word in _TEXTS if word in words}
    numbers = {word: json.loads(words[word]) for word in _NUMBERS if word in words}
    distinct = {"uniqueItems": True} if words.get("uniqueItems") == "True" else {}
    return {**texts, **numbers, **distinct}


def _type(flat: dict[str, Any]) -> str:
    declared = flat.get("type")
    if isinstance(declared, list):
        declared = declared[0]
    return declared or next((kind for kind, words in _IMPLIED if any(word in flat for word in words)), "null")


def _merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    merged = {**one, **other}
    if "properties" in one and "properties" in other:
        merged["properties"] = {**one["properties"], **other["properties"]}
    if "required" in one and "required" in other:
        merged["required"] = list(dict.fromkeys([*one["required"], *other["required"]]))
    return merged


def _numbers(flat: dict[str, Any], *, whole: bool) -> Iterator[float]:
    """Yield numbers to try: zero, then those at the bounds, then one between them."""
    bounds = [flat[word] for word in _BOUNDS if word in flat]
    step = flat.get("multipleOf", 1)
    yield 0
    for bound in bounds:
        below = math.floor(bound / step)
        yield from (bound, below * step, (below + 1) * step, (below - 1) * step)
    if bounds and not whole:
        yield sum(bounds) / len(bounds)
