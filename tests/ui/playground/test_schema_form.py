"""Forms are made from JSON Schemas, and filled forms become values that satisfy them."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_toolemu.ui.filled_form import read_form
from pytest_toolemu.ui.schema_form import FormField, form_fields

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
        "/rows": "rows", "/address": "group", "/address/city": "text", "/address/zip~1code": "number", "/any": "json",
    }  # fmt: skip
    assert fields["/mode"].choices == ("a", "b", "3")
    assert (fields["/amount"].hint, fields["/amount"].is_required) == ("number, minimum 1", True)


def test_a_filled_form_becomes_a_value_and_a_value_fills_the_form() -> None:
    assert read_form(SCHEMA, FILLED).value == VALUE
    assert read_form(SCHEMA, FILLED | {"/rows": "", "/rows/0": "", "/rows/0/id": "1"}).value == VALUE
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


ORDERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "orders": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "properties": {
                    "id": {"type": "integer", "maximum": 9},
                    "note": {"type": "string"},
                    "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
                },
                "required": ["id"],
                "anyOf": [{"required": ["note"]}, {"required": ["lines"]}],
            },
        },
    },
    "$defs": {"line": {"type": "object", "properties": {"a.b": {"type": "integer", "minimum": 1}}}},
}
ORDER = {"/orders/4": "", "/orders/4/id": "1", "/orders/4/note": "x"}


def test_a_list_of_objects_has_rows_that_have_lists_of_their_own() -> None:
    value = {"orders": [{"id": 1, "lines": [{"a.b": 2}, {}]}, {"id": 2, "note": "n"}]}
    fields = by_pointer(form_fields(ORDERS, value))
    assert [row.pointer for row in fields["/orders"].fields] == ["/orders/0", "/orders/1"]
    assert fields["/orders/0/lines/1/a.b"].kind == "number"
    new = fields["/orders"].new_row
    assert new is not None
    assert [(each.pointer, each.text) for each in new.fields] == [
        ("/orders/-/id", ""), ("/orders/-/note", ""), ("/orders/-/lines", ""),
    ]  # fmt: skip
    texts = {pointer: each.text for pointer, each in fields.items()}
    assert read_form(ORDERS, texts).value == value


def test_rows_are_read_in_the_order_of_their_indexes() -> None:
    rows = {f"/orders/{index}/{name}": "5" for index in (10, 9) for name in ("id", "note")} | {"/orders/9/id": "3"}
    assert [row["id"] for row in read_form(ORDERS, rows).value["orders"]] == [3, 5]


@pytest.mark.parametrize(
    ("text", "value"), [("", {}), ("[]", {"orders": []}), ('[{"id": 1}]', {"orders": [{"id": 1}]})]
)
def test_an_empty_list_is_not_an_absent_one(text: str, value: dict[str, Any]) -> None:
    assert read_form(ORDERS, {"/orders": text}).value == value


def test_a_list_of_which_a_form_would_lose_a_part_is_edited_as_json() -> None:
    for orders in ([{"id": 1, "more": 2}], [{"id": 1}] * 51, ["x"], "x"):
        (field,) = form_fields(ORDERS, {"orders": orders})
        assert (field.kind, read_form(ORDERS, {"/orders": field.text}).value) == ("json", {"orders": orders})
    (field, *_) = form_fields(
        SCHEMA | {"properties": {"address": SCHEMA["properties"]["address"]}}, {"address": {"x": 1}}
    )
    assert (field.kind, read_form(SCHEMA, FILLED | {"/address": field.text}).value["address"]) == ("json", {"x": 1})


@pytest.mark.parametrize(
    ("changed", "pointer", "message"),
    [
        ({"/orders/4/id": "x"}, "/orders/4/id", "'x' is not a number; write one such as 12 or 3.5"),
        ({"/orders/4/id": "10"}, "/orders/4/id", "10 is greater than the maximum of 9"),
        ({"/orders/7": "", "/orders/7/id": ""}, "/orders/7/id", "a value is required"),
        ({"/orders/4/lines/2/a.b": "0"}, "/orders/4/lines/2/a.b", "0 is less than the minimum of 1"),
        ({"/orders/4/note": ""}, "/orders/4", "is not valid under any of the schemas"),
    ],
)
def test_mistakes_in_rows_are_explained_at_their_field(changed: dict[str, str], pointer: str, message: str) -> None:
    problems = read_form(ORDERS, ORDER | changed).problems
    assert list(problems) == [pointer]
    assert message in problems[pointer]


def test_mistakes_of_a_whole_list_are_explained_at_the_list() -> None:
    assert read_form(ORDERS, {"/orders": "[]"}).problems == {"/orders": "[] has less than 1 item"}
