"""Regular expressions of checks and pins: Python syntax, and a time limit for every search."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from pytest_toolemu.formats.json_schema import conforms, schema_problem, violations
from pytest_toolemu.formats.regular_expressions import SlowExpressionError, is_linear, occurs

# The lookaround forces backtracking: each further letter doubles the time.
EXPONENTIAL = "(?=a)(a|aa)+$(?!b)"
LETTERS = "a" * 5_000 + "!"


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(?i)(x*)*y", "(?s)(.*)(.*)(.*)z"])
def test_nested_repetition_takes_linear_time(pattern: str) -> None:
    assert is_linear(pattern)
    assert not occurs(pattern, LETTERS)
    assert not conforms({"pattern": pattern}, LETTERS)


def test_an_exponential_search_is_stopped_at_its_time_limit() -> None:
    assert not is_linear(EXPONENTIAL)
    with pytest.raises(SlowExpressionError) as caught:
        occurs(EXPONENTIAL, LETTERS, limit=0.01)
    assert str(caught.value) == (
        f"the regular expression {EXPONENTIAL!r} takes over 0.01 s on a text of 5,001 characters; begin it with '^', or "
        "write it without lookarounds, backreferences, and nested repetition"
    )


@pytest.mark.parametrize("schema", [{"pattern": EXPONENTIAL}, {"not": {"pattern": EXPONENTIAL}}])
@pytest.mark.usefixtures("short_search_limit")
def test_an_exponential_search_in_a_schema_is_an_error_not_a_result(schema: dict[str, object]) -> None:
    with pytest.raises(SlowExpressionError):
        conforms({"properties": {"text": schema}}, {"text": LETTERS})


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
        (r"\d++\d", "12"),
        ("a*+a", "aa"),
        ("a?+a", "a"),
        (r"\$\d{1,3}+0", "$100"),
        (r"\\++\\", r"\\"),
        (r"C\++$", "C++"),
    ],
)
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_expressions_match_as_in_python(pattern: str, text: str) -> None:
    assert occurs(pattern, text) is (re.search(pattern, text) is not None)


@pytest.mark.parametrize("pattern", [r"C\++", r"\{3}+", r"\p{L}+", r"\x{41}+"])
def test_escaped_quantifiers_and_characters_are_not_possessive(pattern: str) -> None:
    assert is_linear(pattern)


@pytest.mark.parametrize("find", [violations, conforms])
@pytest.mark.usefixtures("short_search_limit")
def test_patterns_of_tools_have_the_time_limit_too(find: Callable[..., object]) -> None:
    schema = {"properties": {"who": {"type": "string", "pattern": EXPONENTIAL}}}
    with pytest.raises(SlowExpressionError):
        find(schema, {"who": LETTERS})
    assert violations(schema, {"who": "b"}) == [f'who: "b" does not match "{EXPONENTIAL}"']
    assert conforms(schema, {"who": "aa"})
    assert conforms({"pattern": "^(?=.*a)(?=.*b)"}, "ba")


@pytest.mark.parametrize("pattern", ["[", "(?=a", "(?<=x"])
def test_an_invalid_pattern_is_refused(pattern: str) -> None:
    assert schema_problem({"pattern": pattern}) == f'"{pattern}" is not a "regex"'


def test_lookarounds_are_refused_in_pattern_properties() -> None:
    assert schema_problem({"patternProperties": {"^x-": {}}}) is None
    assert schema_problem({"properties": {"a": {"patternProperties": {"(?=.*a)b": {}}}}}) == (
        "patternProperties: write '(?=.*a)b' without lookarounds and backreferences, which can take unlimited time"
    )
