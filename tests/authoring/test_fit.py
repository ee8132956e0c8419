"""Patterns are compared with the schema of their tool, and pins with earlier pins."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_toolemu.authoring.lint.pattern_rules import covers, incompatibilities
from pytest_toolemu.formats.json_schema import violations

PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "to": {"type": "string", "minLength": 3},
        "amount": {"type": "number", "minimum": 0, "maximum": 100},
        "count": {"type": "integer"},
        "kind": {"enum": ["letter", "card"]},
        "copies": {"type": "array", "items": {"enum": ["ann", "bea"]}, "maxItems": 2},
        "place": {"type": "object", "properties": {"city": {"type": "string"}}, "additionalProperties": False},
        "when": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "free": {},
    },
    "required": ["to"],
    "additionalProperties": False,
}


def messages(**members: Any) -> list[str]:
    return [text for _, text in incompatibilities({"type": "object", "properties": members}, PARAMETERS)]


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"kind": {"const": "parcel"}}, '"parcel" can never occur here: "parcel" is not one of "letter" or "card"'),
        ({"kind": {"enum": ["card", "x"]}}, '"x" can never occur here: "x" is not one of "letter" or "card"'),
        ({"kind": {"pattern": "^p"}}, 'no possible value matches; possible values are "letter", "card"'),
        ({"kind": {"not": {"const": "parcel"}}}, '"parcel" can never occur here: "parcel" is not one of "letter" or "card"'),
        ({"amount": {"type": "string"}}, "the value here is a number, never a string"),
        ({"amount": {"pattern": "^1"}}, "'pattern' does not apply to a number, so every value passes"),
        ({"amount": {"exclusiveMinimum": 5, "minimum": 101}}, "no value is at least 101 and at most 100"),
        ({"to": {"maxLength": 2}}, "no value is at least 3 and at most 2"),
        ({"copies": {"contains": {"const": "cid"}}}, '"cid" can never occur here: "cid" is not one of "ann" or "bea"'),
        ({"copies": {"minItems": 3}}, "no value is at least 3 and at most 2"),
        ({"place": {"properties": {"town": {}}}}, "unknown argument 'town'; known: city"),
        ({"place": {"required": ["town"]}}, "unknown argument 'town'; known: city"),
        ({"when": {"type": "integer"}}, "the value here is a string, never an integer"),
    ],
)  # fmt: skip
def test_a_condition_that_no_or_every_valid_call_meets_is_reported(members: dict[str, Any], expected: str) -> None:
    assert messages(**members) == [expected]


@pytest.mark.parametrize(
    "members",
    [
        {"kind": {"const": "card"}},
        {"kind": {"pattern": "(?i)^CARD$"}},
        {"kind": {"not": {"const": "card"}}},
        {"amount": {"minimum": 50}},
        {"amount": {"type": "integer"}},
        {"count": {"type": "number"}},
        {"copies": {"contains": {"const": "ann"}}},
        {"place": {"properties": {"city": {"pattern": "x"}}, "required": ["city"]}},
        {"when": {"type": "null"}},
        {"when": {"pattern": "^2"}},
        {"free": {"const": 3}},
    ],
)
def test_a_condition_that_some_valid_calls_meet_is_not_reported(members: dict[str, Any]) -> None:
    assert messages(**members) == []


def test_a_misfit_is_reported_at_its_location() -> None:
    pattern = {"anyOf": [{"required": ["to"]}, {"properties": {"copies": {"contains": {"const": "cid"}}}}]}
    assert [place for place, _ in incompatibilities(pattern, PARAMETERS)] == [
        ("anyOf", 1, "properties", "copies", "contains", "const")
    ]


ANY: dict[str, Any] = {}
CARD = {"properties": {"kind": {"const": "card"}}, "required": ["kind"]}
TO_ANN = {"properties": {"to": {"const": "ann"}}}
TO_SOME = {"properties": {"to": {"enum": ["ann", "bea"]}}}


@pytest.mark.parametrize(
    ("first", "later", "expected"),
    [
        (ANY, TO_ANN, True),
        (TO_ANN, TO_ANN, True),
        (TO_SOME, TO_ANN, True),
        (TO_ANN, TO_SOME, False),
        ({"properties": {"to": {"pattern": "a"}}}, TO_SOME, True),
        ({"properties": {"to": {"pattern": "a"}}}, {"properties": {"to": {"pattern": "ann"}}}, False),
        ({"anyOf": [TO_ANN, {"properties": {"to": {"const": "bea"}}}]}, TO_SOME, True),
        ({"not": TO_ANN}, TO_SOME, False),
        (CARD, TO_ANN, False),
        (ANY, CARD, True),
        # An optional argument may be missing, so a condition on it does not always apply.
        ({"required": ["kind"]}, {"properties": {"kind": {"const": "card"}}}, False),
        ({"maxProperties": 1}, TO_ANN, False),
    ],
)
def test_whether_all_calls_of_the_later_pattern_match_the_first(
    first: dict[str, Any], later: dict[str, Any], expected: bool
) -> None:
    assert covers(first, later, PARAMETERS) is expected


def test_a_covering_pattern_matches_every_covered_call() -> None:
    """Every call that matches the later pattern also matches the first."""
    patterns = [ANY, CARD, TO_ANN, TO_SOME, {"not": TO_ANN}, {"required": ["kind"]}, {"maxProperties": 1}]
    calls = [{"to": to, **more} for to in ("ann", "bea", "cid") for more in ({}, {"kind": "card"}, {"kind": "letter"})]
    for first in patterns:
        for later in patterns:
            if covers(first, later, PARAMETERS):
                assert all(not violations(first, call) for call in calls if not violations(later, call))
