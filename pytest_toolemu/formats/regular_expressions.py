"""Regular expressions of case files, in Python's syntax, searched in bounded time: the text is an agent's.

An expression runs in linear time, by the engine that pydantic brings, unless it has lookarounds or backreferences, or
means something else there. Those need an engine that backtracks, and have a time limit.
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
"""Seconds that one search may take."""

# Valid for both engines, with different meanings: word boundaries, operations on sets.
_OTHERWISE: Final = re.compile(r"\\[<>]|\\b\{|\[[^\]]*(?:&&|--|~~|\[)")


class SlowExpressionError(InconclusiveError):
    """An expression did not come to an end in time, so nobody knows whether it is found in the text."""


def occurs(pattern: str, text: str, limit: float = LIMIT) -> bool:
    """Return whether the expression is found anywhere in the text; SlowExpressionError after ``limit`` seconds."""
    linear = _linear(pattern)
    # Python's '$' matches before a last line break too, and the other engine's only at the very end.
    if linear is not None and not ("$" in pattern and text.endswith("\n")):
        return linear.isinstance_python(text.encode("utf-8", "replace").decode())
    try:
        return _backtracking(pattern).search(text, timeout=limit) is not None
    except TimeoutError:
        raise SlowExpressionError(
            f"the regular expression {pattern!r} takes over {limit:g} s on a text of {len(text):,} characters; begin "
            "it with '^', or write it without lookarounds, backreferences and nested repetition"
        ) from None


def is_linear(pattern: str) -> bool:
    """Return whether the time that the expression takes grows with the text, and no faster."""
    return _linear(pattern) is not None


@functools.lru_cache(maxsize=1024)
def _linear(pattern: str) -> SchemaValidator | None:
    if _OTHERWISE.search(pattern):
        return None
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
    except SchemaError:
        return None


@functools.lru_cache(maxsize=1024)
def _backtracking(pattern: str) -> regex.Pattern[str]:
    import regex

    return regex.compile(pattern)
