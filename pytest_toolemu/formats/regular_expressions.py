"""Search for regular expressions of case files in bounded time, as an agent chooses the text that is searched.

Expressions are written in Python's syntax. Most are searched in linear time by pydantic's Rust engine. Those with
lookarounds or backreferences, and those that mean something else in the Rust engine, need a backtracking engine, whose
searches have a time limit.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Final

from pydantic_core import SchemaError, SchemaValidator, core_schema

from pytest_toolemu.errors import InconclusiveError

if TYPE_CHECKING:
    import regex

LIMIT: Final = 1.0
"""The time limit of one search, in seconds."""

# Valid for both engines, but with different meanings: word boundaries, operations on sets, and possessive quantifiers.
_DIFFERENT_MEANING: Final = re.compile(
    r"\\[<>]|\\b\{|\[[^\]]*(?:&&|--|~~|\[)|(?<!\\)(?:\\\\)*(?:[*+?]|(?<!\\[xuUpP])\{[\d,]+\})\+"
)


class SlowExpressionError(InconclusiveError):
    """A search exceeded its time limit, so it is unknown whether the text matches."""


def occurs(pattern: str, text: str, limit: float | None = None) -> bool:
    """Return whether the expression matches anywhere in the text.

    Raise SlowExpressionError after ``limit`` seconds, by default those of LIMIT.
    """
    limit = LIMIT if limit is None else limit
    linear = _linear(pattern)
    # In Python, '$' also matches before a final line break; in the Rust engine only at the very end.
    if linear is not None and not ("$" in pattern and text.endswith("\n")):
        return linear.isinstance_python(text.encode("utf-8", "replace").decode())
    try:
        return _backtracking(pattern).search(text, timeout=limit) is not None
    except TimeoutError:
        raise SlowExpressionError(
            f"the regular expression {pattern!r} takes over {limit:g} s on a text of {len(text):,} characters; begin "
            "it with '^', or write it without lookarounds, backreferences, and nested repetition"
        ) from None


def is_linear(pattern: str) -> bool:
    """Return whether the search time grows at most linearly with the length of the text."""
    return _linear(pattern) is not None


def is_expression(pattern: str) -> bool:
    """Return whether the engine with a time limit knows the syntax."""
    import regex

    try:
        _backtracking(pattern)
    except regex.error:
        return False
    return True


@functools.lru_cache(maxsize=1024)
def _linear(pattern: str) -> SchemaValidator | None:
    if _DIFFERENT_MEANING.search(pattern):
        return None
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
    except SchemaError:
        return None


@functools.lru_cache(maxsize=1024)
def _backtracking(pattern: str) -> regex.Pattern[str]:
    import regex

    return regex.compile(pattern)
