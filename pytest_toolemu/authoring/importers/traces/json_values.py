"""Reads JSON of traces: values that follow one another, and texts that contain a value."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

# Readers of YAML disagree on integers with so many characters or more.
_DIGITS: Final = 19
_GAP: Final = re.compile(r"[ \t\r\n]*")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def load_json(text: str) -> Any:
    """Return the value of JSON text. What files of cases cannot contain is replaced. Raise ValueError."""
    value = _DECODER.decode(text)
    return _storable(value) if _may_have_surrogates(text) else value


def load_values(text: str) -> Iterator[Any]:
    """Yield the JSON values in a text, with nothing or white space between them.

    Raise ValueError for text that is not JSON, and RecursionError for a value that is nested too deeply.
    """
    replaces = _may_have_surrogates(text)
    position = _after_gap(text, 0)
    while position < len(text):
        value, position = _DECODER.raw_decode(text, position)
        yield _storable(value) if replaces else value
        position = _after_gap(text, position)


def parsed(value: Any) -> Any:
    """Return the JSON value in a text; the text itself if it is not JSON."""
    if not isinstance(value, str):
        return value
    try:
        return load_json(value)
    except (ValueError, RecursionError):
        return value


def objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects in a list; empty if the value is not a list."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _after_gap(text: str, position: int) -> int:
    match = _GAP.match(text, position)
    return match.end() if match else position


def _may_have_surrogates(text: str) -> bool:
    return "\\ud" in text or "\\uD" in text


def _storable(value: Any) -> Any:
    """Replace halves of surrogate pairs, which are valid in JSON but not in UTF-8."""
    if isinstance(value, str):
        return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", value)
    if isinstance(value, dict):
        return {_storable(key): _storable(part) for key, part in value.items()}
    return [_storable(part) for part in value] if isinstance(value, list) else value


def _number(text: str) -> Any:
    """Return a number; the text of one that files of cases cannot contain."""
    if text.lstrip("-").isdigit():
        return int(text) if len(text) < _DIGITS else text
    return text if abs(float(text)) == float("inf") else float(text)


_DECODER: Final = json.JSONDecoder(parse_int=_number, parse_float=_number, parse_constant=str)
