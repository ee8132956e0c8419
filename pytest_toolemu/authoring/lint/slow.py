"""Finds regular expressions that an agent can make slow, by trying them on long texts made of their own words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from pytest_toolemu.authoring.lint.rules import LintRemark
from pytest_toolemu.core.case import Case
from pytest_toolemu.core.case_loading import checks_of
from pytest_toolemu.core.case_rules import CallPattern, Pin
from pytest_toolemu.core.toolkit import Toolkit
from pytest_toolemu.evaluators.checks import MAX_ANSWER
from pytest_toolemu.formats.json_schema_keywords import subschemas
from pytest_toolemu.formats.regular_expressions import LIMIT, SlowExpressionError, is_linear, occurs
from pytest_toolemu.formats.yaml_document import Loc, show

# In seconds. Most expressions need a few milliseconds; those that are reported would exceed the limit of a search.
_PATIENCE: Final = LIMIT / 4
_WORD: Final = re.compile(r"[^\W_]+")
_ESCAPE: Final = re.compile(r"\\.|\(\?[a-zA-Z]*")
_MAX_WORDS: Final = 4


def slow_expressions(case: Case) -> Iterator[LintRemark]:
    """Yield a remark for each expression that takes too long on a text of the maximum length."""
    for loc, pattern in _expressions(case):
        yield from _remark(loc, pattern)


def _remark(loc: Loc, pattern: str) -> Iterator[LintRemark]:
    if not is_linear(pattern) and (text := _slow_on(pattern)) is not None:
        problem = f"{show(pattern)} takes too long on a text of {MAX_ANSWER:,} characters such as {show(text[:20])}"
        remedy = "begin it with '^', or write it without lookarounds, backreferences, and nested repetition"
        yield LintRemark("slow-expression", loc, f"{problem}; {remedy}")


def slow_patterns(toolkit: Toolkit) -> Iterator[LintRemark]:
    """Yield a remark for each slow expression in the parameters and results of a toolkit's tools."""
    for index, tool in enumerate(toolkit.tools):
        for name, schema in (("parameters", tool.parameters), ("returns", tool.returns)):
            for inner_loc, part in subschemas(schema, ("tools", index, name)):
                if isinstance(pattern := part.get("pattern"), str):
                    yield from _remark((*inner_loc, "pattern"), pattern)


def _expressions(case: Case) -> Iterator[tuple[Loc, str]]:
    for loc, pattern in _patterns(case):
        if isinstance(pattern, CallPattern) and pattern.answer is not None:
            yield (*loc, "answer"), pattern.answer
        yield from _in_schema(pattern.arguments, (*loc, "arguments"))


def _patterns(case: Case) -> Iterator[tuple[Loc, Pin | CallPattern]]:
    for index, pin in enumerate(case.pins):
        yield ("pins", index), pin
    for loc, check in checks_of(case):
        for kind, pattern in (("never", check.never), ("unless", check.unless), ("expect", check.expect)):
            if pattern is not None:
                yield (*loc, kind), pattern


def _in_schema(arguments: dict[str, Any], loc: Loc) -> Iterator[tuple[Loc, str]]:
    inside = arguments.get("schema")
    schema, where = (inside, (*loc, "schema")) if isinstance(inside, dict) else (arguments, loc)
    for inner_loc, part in subschemas(schema, ()):
        if isinstance(part.get("pattern"), str):
            yield (*where, *inner_loc, "pattern"), part["pattern"]


def _slow_on(pattern: str) -> str | None:
    """Return a text on which the expression takes too long; None if none was found, which proves nothing."""
    words = list(dict.fromkeys(_WORD.findall(_ESCAPE.sub(" ", pattern))))[:_MAX_WORDS]
    pieces: list[str] = ["a", " ", "x\n", *words, *(f"{word} " for word in words)]
    for piece in dict.fromkeys(pieces):
        text = (piece * MAX_ANSWER)[: MAX_ANSWER - 1] + "!"
        try:
            occurs(pattern, text, _PATIENCE)
        except SlowExpressionError:
            return text
    return None
