"""The keywords of JSON Schema (draft 2020-12), and the locations of subschemas in a schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pytest_toolemu.formats.yaml_document import KEY, Loc, closest

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
        ((*loc, name, KEY), _message(name, part[name]))
        for loc, part in subschemas(schema, ())
        for name in part
        if name not in KEYWORDS and not name.startswith("x-")
    ]


def _message(name: str, value: Any) -> str:
    if value is None and not name.isidentifier():
        return (
            f"unknown JSON Schema keyword {name!r}; if it is part of a text with a comma, put the whole text in quotes"
        )
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
