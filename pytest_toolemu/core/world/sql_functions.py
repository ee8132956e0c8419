"""The functions that SQL of toolkits and cases can use in addition to those of SQLite."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Callable
from typing import Any, Final

_MAX_WORDS: Final = 200  # of a query that a text is searched for


# Accents that follow their letters; marks of other scripts, such as Japanese ones, make other letters.
_ACCENTS: Final = re.compile("[\u0300-\u036f]")
# Letters that Unicode does not decompose into a plain letter and an accent.
_PLAIN_LETTERS: Final = str.maketrans(
    {"\u0131": "i", "ł": "l", "ø": "o", "đ": "d", "ð": "d", "ħ": "h", "þ": "th", "æ": "ae", "œ": "oe"}
)


def fold(text: str) -> str:
    """Return the text without case and accents, as most search fields compare it."""
    if text.isascii():
        return text.casefold()
    # Some characters decompose into capital letters, such as the sign of a trademark.
    plain = _ACCENTS.sub("", unicodedata.normalize("NFKD", text.casefold()).casefold()).translate(_PLAIN_LETTERS)
    # Put together again what is no letter with an accent: otherwise half a Korean syllable would be found.
    return unicodedata.normalize("NFC", plain)


def _phrases(query: Any) -> list[list[str]]:
    """Return the words of each item of a query that is a JSON list, and else each word on its own."""
    items = _items(query)
    if len(items) == 1 and items[0] is query:
        items = str(query or "").split()
    phrases: list[list[str]] = []
    room = _MAX_WORDS
    for item in dict.fromkeys(fold(str(item)) for item in items):
        if phrase := item.split()[:room]:
            phrases.append(phrase)
            room -= len(phrase)
    return phrases


def _text(cells: tuple[Any, ...]) -> str:
    return fold(" ".join(str(value) for value in cells if value is not None))


def _has(query: Any = None, *cells: Any) -> int:
    text = _text(cells)
    return int(all(word in text for phrase in _phrases(query) for word in phrase))


def _has_any(query: Any = None, *cells: Any) -> int:
    text, phrases = _text(cells), _phrases(query)
    return int(not phrases or any(all(word in text for word in phrase) for phrase in phrases))


def _items(text: Any) -> list[Any]:
    if not isinstance(text, str) or text[:1] != "[":
        return [] if text is None else [text]
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):  # a text that an agent wrote, such as "[urgent"
        return [text]
    return value if isinstance(value, list) else [value]


def _includes(items: Any, item: Any) -> int:
    return int(item in _items(items))


def _list_add(items: Any, more: Any) -> str:
    united = _items(items)
    for item in _items(more):
        if item not in united:
            united.append(item)
    return json_text(united)


def _list_remove(items: Any, fewer: Any) -> str:
    gone = _items(fewer)
    return json_text([item for item in _items(items) if item not in gone])


def _fold_cell(text: Any) -> str | None:
    return None if text is None else fold(str(text))


def decimal_cell(cell: Any) -> Any:
    """Return a cell of a database, with ``decimal`` applied to a number."""
    return decimal(cell) if isinstance(cell, float) else cell


FUNCTIONS: Final[dict[str, tuple[int, Callable[..., Any]]]] = {
    "has": (-1, _has),
    "has_any": (-1, _has_any),
    "includes": (2, _includes),
    "list_add": (2, _list_add),
    "list_remove": (2, _list_remove),
    "fold": (1, _fold_cell),
    "decimal": (1, decimal_cell),
}
QUERY_FUNCTIONS: Final = tuple(FUNCTIONS)
"""The functions that queries of the state can use in addition to those of SQLite."""
FUNCTION_NAMES: Final = (*QUERY_FUNCTIONS, "code", "new_id")
"""The functions that operations can use in addition to those of SQLite."""


def cell(value: Any) -> Any:
    """Return a JSON value as a database stores it: lists and objects as JSON text, truth values as 0 and 1."""
    if value is None or isinstance(value, str):  # most values
        return value
    if isinstance(value, dict | list):
        return json_text(value)
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float):
        return decimal(value)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return float(value) if abs(value) < 2**1000 else math.inf if value > 0 else -math.inf
    return value


def json_text(value: list[Any] | dict[str, Any]) -> str:
    """Return a list or an object as JSON text."""
    return json.dumps(value, ensure_ascii=False)


_DECIMALS: Final = 6
"""The decimals that remain of a number with many digits, such as 10 / 3."""
_DIGITS: Final = 6
"""The digits that remain of a small number with many digits, of which the decimals could be zeros only."""
_LEAST: Final = 1e-9
"""Smaller numbers with many digits are what a subtraction of equal numbers leaves."""
_SMALL: Final = 1e-3
_LARGE: Final = 1e9
"""Larger numbers with six decimals have more than 15 digits."""


def decimal(number: float) -> float:
    """Return a number without the digits that only binary arithmetic leaves.

    A number with up to 15 digits is exact, and stays as it is: nobody computed it, or nothing was lost.
    """
    if abs(number) < _LARGE and round(number, _DECIMALS) == number:  # most numbers, in a fifth of the time
        return number or 0.0  # no negative zero
    text = f"{number:.15g}"
    if float(text) == number or not math.isfinite(number):
        return number
    if float(short := f"{number:.13g}") == float(text):
        return float(short)
    if abs(number) >= _SMALL:
        return round(number, _DECIMALS)
    return float(f"{number:.{_DIGITS}g}") if abs(number) >= _LEAST else 0.0
