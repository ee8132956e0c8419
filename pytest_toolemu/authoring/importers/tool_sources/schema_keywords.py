"""Keywords of JSON Schema whose values are not schemas: which values to keep, because authors may write anything."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, Final

from pytest_toolemu.formats.regular_expressions import is_linear
from pytest_toolemu.formats.truncation import truncated

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
