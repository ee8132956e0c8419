"""Regular expressions of checks and pins: Python's syntax, and an end to every search."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from pytest_toolemu.formats.json_schema import conforms, matches, schema_problem, violations
from pytest_toolemu.formats.regular_expressions import SlowExpressionError, is_linear, occurs

# With a lookaround, so that it has to backtrack: twice the time for each further letter.
EXPONENTIAL = "(?=a)(a|aa)+$(?!b)"
LETTERS = "a" * 5_000 + "!"


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(?i)(x*)*y", "(?s)(.*)(.*)(.*)z"])
def test_nested_repetition_is_decided_in_linear_time(pattern: str) -> None:
    assert is_linear(pattern)
    assert not occurs(pattern, LETTERS)
    assert not matches({"pattern": pattern}, LETTERS)


def test_a_search_that_would_never_end_is_given_up() -> None:
    assert not is_linear(EXPONENTIAL)
    with pytest.raises(SlowExpressionError) as caught:
        occurs(EXPONENTIAL, LETTERS, limit=0.01)
    assert str(caught.value) == (
        f"the regular expression {EXPONENTIAL!r} takes over 0.01 s on a text of 5,001 characters; begin it with '^', or "
        "write it without lookarounds, backreferences and nested repetition"
    )


@pytest.mark.parametrize("schema", [{"pattern": EXPONENTIAL}, {"not": {"pattern": EXPONENTIAL}}])
def test_a_schema_with_such_a_search_neither_matches_nor_fails_to(schema: dict[str, object]) -> None:
    with pytest.raises(SlowExpressionError):
        matches({"properties": {"text": schema}}, {"text": LETTERS})


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("(?i)which .*\\?", "Which one?"),
        (r"^\w+$", "Tóth"),
        (r"\d", "٣"),
        (r"\bGábor\b", "to Gábor, then"),
        ("done$", "done\n"),
        (r"done\Z", "done\n"),
        ("(?is)^(?=.*gym)(?=.*thursday)", "Thursday,\nin the gym"),
        (r"(?<!\d)5", "15"),
        (r"(?P<x>a)(?P=x)", "aa"),
        (r"a\<b", "a<b"),
        (r"[a-z--b]", "b"),
        (r"[[]x", "[x"),
        (r"x{,2}y", "xxy"),
        (r"\x41\u00e9", "Aé"),
        ("(?x) a b  # comment", "ab"),
    ],
)
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_expressions_mean_what_they_mean_in_python(pattern: str, text: str) -> None:
    assert occurs(pattern, text) is (re.search(pattern, text) is not None)


def test_the_rest_of_a_schema_is_as_it_is_elsewhere() -> None:
    schema = {"properties": {"to": {"type": "string", "pattern": r"^\d+$", "format": "date"}, "n": {"minimum": 3}}}
    for value in ({"to": "2024"}, {"to": "x"}, {"n": 2}, {"n": 3}, {"to": 3}, {}, "text", {"to": "2024-01-01"}):
        assert matches(schema, value) is conforms(schema, value)


@pytest.mark.parametrize("find", [violations, conforms])
def test_patterns_of_tools_are_searched_with_a_time_limit_too(find: Callable[..., object]) -> None:
    schema = {"properties": {"who": {"type": "string", "pattern": EXPONENTIAL}}}
    with pytest.raises(SlowExpressionError):
        find(schema, {"who": LETTERS})
    assert violations(schema, {"who": "b"}) == [f'who: "b" does not match "{EXPONENTIAL}"']
    assert conforms(schema, {"who": "aa"})
    assert conforms({"pattern": "^(?=.*a)(?=.*b)"}, "ba")


@pytest.mark.parametrize("pattern", ["[", "(?=a", "(?<=x"])
def test_a_pattern_that_is_no_expression_is_refused(pattern: str) -> None:
    assert schema_problem({"pattern": pattern}) == f'"{pattern}" is not a "regex"'


def test_names_of_members_have_no_lookarounds() -> None:
    assert schema_problem({"patternProperties": {"^x-": {}}}) is None
    assert schema_problem({"properties": {"a": {"patternProperties": {"(?=.*a)b": {}}}}}) == (
        "patternProperties: write '(?=.*a)b' without lookarounds and backreferences, whose time has no limit"
    )
