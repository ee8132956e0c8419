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
        return f"unknown JSON Schema keyword {name!r}; if it is the rest of a text with a comma, quote the whole text"
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
    for word in _ONE:
        yield from subschemas(schema.get(word), (*loc, word))
    for word in _LISTS:
        for index, part in enumerate(_or_empty(schema.get(word), list)):
            yield from subschemas(part, (*loc, word, index))
    for word in _MAPPINGS:
        for name, part in _or_empty(schema.get(word), dict).items():
            yield from subschemas(part, (*loc, word, name))


def _or_empty(value: Any, kind: type) -> Any:
    """Return the value, or an empty one if it is not of this kind: the validity of schemas is checked elsewhere."""
    return value if isinstance(value, kind) else kind()
