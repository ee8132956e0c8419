"""Forms are made from JSON Schemas, and filled forms become values that satisfy them."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_toolemu.ui.playground.schema_form import FormField, form_fields, read_form

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2, "description": "Who."},
        "day": {"type": "string", "format": "date"},
        "amount": {"type": "number", "minimum": 1},
        "urgent": {"type": "boolean"},
        "mode": {"enum": ["a", "b", 3]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "rows": {"type": "array", "items": {"$ref": "#/$defs/row"}},
        "address": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "zip/code": {"type": "integer"}},
            "required": ["city"],
        },
        "any": {},
    },
    "required": ["name", "amount"],
    "$defs": {"row": {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}},
}
FILLED = {
    "/name": "Anna",
    "/day": "2026-05-01",
    "/amount": "12.5",
    "/urgent": "false",
    "/mode": "3",
    "/tags": "red\nblue",
    "/rows": '[{"id": 1}]',
    "/address/city": "Oslo",
    "/address/zip~1code": "7",
    "/any": "[1, null]",
}
VALUE = {
    "name": "Anna",
    "day": "2026-05-01",
    "amount": 12.5,
    "urgent": False,
    "mode": 3,
    "tags": ["red", "blue"],
    "rows": [{"id": 1}],
    "address": {"city": "Oslo", "zip/code": 7},
    "any": [1, None],
}


def by_pointer(fields: tuple[FormField, ...]) -> dict[str, FormField]:
    inner = [one for each in fields for one in by_pointer(each.fields).values()]
    return {each.pointer: each for each in (*fields, *inner)}


def test_every_kind_of_value_has_its_field() -> None:
    fields = by_pointer(form_fields(SCHEMA))
    assert {pointer: each.kind for pointer, each in fields.items()} == {
        "/name": "text", "/day": "line", "/amount": "number", "/urgent": "choice", "/mode": "choice", "/tags": "lines",
        "/rows": "json", "/address": "group", "/address/city": "text", "/address/zip~1code": "number", "/any": "json",
    }  # fmt: skip
    assert fields["/mode"].choices == ("a", "b", "3")
    assert (fields["/amount"].hint, fields["/amount"].is_required) == ("number, minimum 1", True)


def test_a_filled_form_becomes_a_value_and_a_value_fills_the_form() -> None:
    assert read_form(SCHEMA, FILLED).value == VALUE
    texts = {pointer: each.text for pointer, each in by_pointer(form_fields(SCHEMA, VALUE)).items()}
    assert read_form(SCHEMA, texts).value == VALUE


def test_empty_optional_fields_are_absent() -> None:
    read = read_form(SCHEMA, {"/name": "Anna", "/amount": "2"})
    assert (read.value, read.problems) == ({"name": "Anna", "amount": 2}, {})


@pytest.mark.parametrize(
    ("changed", "pointer", "message"),
    [
        ({"/amount": "much"}, "/amount", "'much' is not a number; write one such as 12 or 3.5"),
        ({"/amount": " "}, "/amount", "a value is required"),
        ({"/amount": "0"}, "/amount", "0 is less than the minimum of 1"),
        ({"/name": "A"}, "/name", '"A" is shorter than 2 characters'),
        ({"/mode": "c"}, "/mode", "'c' is none of a, b, 3"),
        ({"/rows": "[{]"}, "/rows", "this is not JSON"),
        ({"/rows": "[{}]"}, "/rows", 'rows[0]: "id" is a required property'),
        ({"/any": "NaN"}, "/any", "NaN is no JSON value"),
        ({"/address/city": "", "/address/zip~1code": "x"}, "/address/zip~1code", "'x' is not a number"),
    ],
)
def test_mistakes_are_explained_at_their_field(changed: dict[str, str], pointer: str, message: str) -> None:
    problems = read_form(SCHEMA, FILLED | changed).problems
    assert list(problems) == [pointer]
    assert message in problems[pointer]
