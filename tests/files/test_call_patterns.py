"""``arguments`` of pins and checks: plain values that must be equal, or a JSON Schema under ``schema``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_toolemu.core.case import Case, ResolvedCase
from pytest_toolemu.core.case_rules import CallPattern, argument_problems, call_schema
from pytest_toolemu.core.toolkit import Tool, Toolkit
from pytest_toolemu.core.world.declarations import Operation
from pytest_toolemu.formats.json_schema import conforms

Json = dict[str, Any]

PAY: Json = {
    "type": "object",
    "properties": {
        "membership_id": {"type": "string", "pattern": "^M-[0-9]+$"},
        "amount": {"type": "number"},
        "urgent": {"type": "boolean"},
        "note": {"type": ["string", "null"]},
        "to": {"type": "array", "items": {"type": "string"}},
        "address": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "zip": {"type": "string"}},
            "additionalProperties": False,
        },
    },
    "required": ["membership_id"],
    "additionalProperties": False,
}
FORM: Json = {  # a tool whose parameters are called like keywords of JSON Schema
    "type": "object",
    "properties": {"type": {"type": "string"}, "required": {"type": "array"}, "title": {"type": "string"}},
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("arguments", "call", "expected"),
    [
        ({"membership_id": "M-31155"}, {"membership_id": "M-31155"}, True),
        ({"membership_id": "M-31155"}, {"membership_id": "M-20817"}, False),
        ({"membership_id": "M-1"}, {"membership_id": "M-1", "amount": 3}, True),
        ({"amount": 3}, {"membership_id": "M-1"}, False),
        ({"amount": 1}, {"amount": 1.0}, True),
        ({"amount": 1}, {"amount": True}, False),
        ({"urgent": True}, {"urgent": 1}, False),
        ({"amount": 1}, {"amount": "1"}, False),
        ({"note": None}, {"note": None}, True),
        ({"note": None}, {}, False),
        ({"to": ["a", "b"]}, {"to": ["a", "b"]}, True),
        ({"to": ["a"]}, {"to": ["a", "b"]}, False),
        ({"to": ["b", "a"]}, {"to": ["a", "b"]}, False),
        ({"address": {"city": "Bonn"}}, {"address": {"city": "Bonn", "zip": "53111"}}, True),
        ({"address": {"city": "Bonn"}}, {"address": {"city": "Kiel"}}, False),
        ({"address": {"city": "Bonn"}}, {"address": "Bonn"}, False),
        ({}, {"membership_id": "M-1"}, True),
        ({"membership_id": "M-1"}, "no object", False),
        ({"schema": {"properties": {"amount": {"minimum": 5}}}}, {"amount": 4}, False),
        ({"schema": {"properties": {"amount": {"minimum": 5}}}}, {"amount": 5}, True),
    ],
)
def test_plain_values_must_be_equal_and_a_schema_is_applied(arguments: Json, call: Any, expected: bool) -> None:
    assert argument_problems(arguments, PAY, "Club.Pay") == []
    assert conforms(call_schema(arguments), call) is expected


SHARE: Json = {
    "type": "object",
    "properties": {
        "file": {"type": "string"},
        "visibility": {"type": ["string", "null"], "default": "public"},
        "until": {"$ref": "#/$defs/until"},
        "note": True,
    },
    "$defs": {"until": {"type": "string", "default": "always"}},
}


@pytest.mark.parametrize(
    ("arguments", "call", "expected"),
    [
        ({"visibility": "public"}, {"file": "a"}, True),
        ({"visibility": "public"}, {"visibility": None}, True),
        ({"visibility": "public"}, {"visibility": "team"}, False),
        ({"visibility": None}, {"visibility": None}, True),
        ({"visibility": None}, {}, False),
        ({"visibility": "team"}, {}, False),
        ({"until": "always", "file": "a"}, {"file": "a"}, True),
        ({"note": "x"}, {}, False),
        ({"visibility": "public"}, "no object", False),
        ({"schema": {"properties": {"visibility": {"const": "public"}}, "required": ["visibility"]}}, {}, False),
    ],
)
def test_a_plain_value_matches_the_default_of_an_absent_argument(arguments: Json, call: Any, expected: bool) -> None:
    assert resolved().matches(CallPattern(tool="Drive.Share", arguments=arguments), "Drive.Share", call) is expected


def test_an_absent_argument_of_an_update_has_no_default() -> None:
    pattern = CallPattern(tool="Drive.Share", arguments={"visibility": "public"})
    assert not resolved(Operation(update="file")).matches(pattern, "Drive.Share", {"file": "a"})


def resolved(operation: Operation | None = None) -> ResolvedCase:
    returns: Json = {"type": "object", "properties": {}}
    share = Tool(
        name="Share", description="Share.", parameters=SHARE, returns=returns, effect="write", operation=operation
    )
    drive = Toolkit(name="Drive", title="Drive", category="files", description="Files.", tools=(share,))
    return ResolvedCase(
        Case(title="Share", toolkits=("Drive",), instruction="Share."), (drive,), Path("a.toolemu.yaml")
    )


@pytest.mark.parametrize(
    ("arguments", "place", "message"),
    [
        ({"membershp_id": "M-1"}, ("membershp_id", "\0key"),
         "Club.Pay takes no argument 'membershp_id'; did you mean 'membership_id'?"),
        ({"address": {"town": "Bonn"}}, ("address", "town", "\0key"),
         "Club.Pay takes no argument 'town'; known: city, zip"),
        ({"membership_id": 31155}, ("membership_id",),
         '31155 can never occur here, so no call of Club.Pay matches: 31155 is not of type "string"'),
        ({"membership_id": "31155"}, ("membership_id",),
         '"31155" can never occur here, so no call of Club.Pay matches: "31155" does not match "^M-[0-9]+$"'),
        ({"membership_id": {"pattern": "^M-3"}}, ("membership_id",),
         '{"pattern": "^M-3"} can never occur here, so no call of Club.Pay matches'),
        ({"address": {"city": {"enum": ["Bonn"]}}}, ("address", "city"),
         '{"enum": ["Bonn"]} can never occur here, so no call of Club.Pay matches'),
        ({"note": {"text": "Hello"}}, ("note",),
         '{"text": "Hello"} can never occur here, so no call of Club.Pay matches'),
        ({"type": "object", "propertis": {"amount": {"const": 3}}}, ("type", "\0key"),
         "Club.Pay takes no argument 'type'; write a JSON Schema as {schema: ...}"),
        ({"schema": {"propertis": {}}}, ("schema", "propertis", "\0key"),
         "unknown JSON Schema keyword 'propertis'; did you mean 'properties'?"),
        ({"properties": {"amount": {"const": 3}}}, ("properties", "\0key"),
         "Club.Pay takes no argument 'properties'; write a JSON Schema as {schema: ...}"),
        ({"schema": {"type": "objet"}}, ("schema",), "not a valid JSON Schema: type: "),
    ],
)  # fmt: skip
def test_arguments_that_can_never_match_are_an_error_with_the_closest_name(
    arguments: Json, place: Any, message: str
) -> None:
    (found_place, problem), *_ = argument_problems(arguments, PAY, "Club.Pay")
    assert found_place == place
    assert problem.startswith(message)


@pytest.mark.parametrize("arguments", [{"title": "A form"}, {"type": "invoice", "title": "A form"}, {"required": [3]}])
def test_parameters_named_like_schema_keywords_take_values(arguments: Json) -> None:
    assert argument_problems(arguments, FORM, "Desk.Fill") == []
    assert conforms(call_schema(arguments), arguments)
    assert not conforms(call_schema(arguments), {})


def test_patterns_may_use_unlisted_arguments_if_the_tool_accepts_them() -> None:
    assert argument_problems({"other": 1}, {**PAY, "additionalProperties": True}, "Club.Pay") == []


def test_values_are_checked_against_definitions_and_branches_of_the_parameters() -> None:
    parameters = {
        "type": "object",
        "properties": {"currency": {"$ref": "#/$defs/currency"}},
        "anyOf": [{"properties": {"iban": {"type": "string"}}}, {"properties": {"bic": {"type": "string"}}}],
        "$defs": {"currency": {"enum": ["EUR", "USD"]}},
    }
    assert argument_problems({"iban": "ES37", "currency": "EUR"}, parameters, "Club.Pay") == []
    ((place, message),) = argument_problems({"currency": "GBP"}, parameters, "Club.Pay")
    assert (place, message.partition(", ")[0]) == (("currency",), '"GBP" can never occur here')


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {},
        {"type": "object"},
        {"type": ["object", "null"]},
        {"enum": [{"unit": "EUR"}, "EUR"]},
        {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/money"}]},
    ],
)
def test_an_object_matches_where_the_tool_accepts_objects(schema: Any) -> None:
    parameters = {"properties": {"price": schema}, "$defs": {"money": {"type": "object"}}}
    assert argument_problems({"price": {"unit": "EUR"}}, parameters, "Club.Pay") == []


@pytest.mark.parametrize(
    "schema",
    [
        False,
        {"type": ["string", "null"]},
        {"const": "EUR"},
        {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/word"}]},
        {"allOf": [{}, {"type": "number"}]},
    ],
)
def test_an_object_is_an_error_where_the_tool_never_accepts_one(schema: Any) -> None:
    parameters = {"properties": {"price": schema}, "$defs": {"word": {"type": "string"}}}
    ((place, _),) = argument_problems({"price": {"unit": "EUR"}}, parameters, "Club.Pay")
    assert place == ("price",)
