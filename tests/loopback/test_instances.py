from __future__ import annotations

from typing import Any

import pytest
from anthropic import transform_schema

from pytest_toolemu.formats.json_schema import violations
from tests.loopback.instances import ImpossibleError, smallest

_TREE = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "name": {"$ref": "#/$defs/name"},
                "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
            },
            "required": ["name", "next", "children"],
        },
        "name": {"type": "string", "minLength": 2},
    },
}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (True, None),
        ({}, None),
        ({"type": "null"}, None),
        ({"type": "boolean"}, False),
        ({"type": "string"}, ""),
        ({"type": "string", "minLength": 3}, "aaa"),
        ({"minLength": 1}, "a"),
        ({"type": "string", "format": "date"}, "2026-01-01"),
        ({"type": "string", "format": "email"}, "a@example.com"),
        ({"type": "string", "format": "text"}, ""),
        ({"type": "string", "pattern": "^[A-Z]{3}$"}, "AAA"),
        ({"pattern": "^[0-9]+$", "minLength": 2}, "00"),
        ({"const": {"a": 1}}, {"a": 1}),
        ({"type": "string", "enum": ["low", "high"]}, "low"),
        ({"enum": [7, "seven"], "type": "string"}, "seven"),
        ({"type": "integer"}, 0),
        ({"type": "integer", "minimum": 2, "maximum": 9}, 2),
        ({"type": "integer", "maximum": -3}, -3),
        ({"type": "integer", "minimum": 0.5}, 1),
        ({"type": "integer", "exclusiveMinimum": 4}, 5),
        ({"type": "integer", "exclusiveMaximum": -4}, -5),
        ({"type": "integer", "minimum": 5, "multipleOf": 4}, 8),
        ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, 0.5),
        ({"type": "number", "exclusiveMinimum": 0}, 1),
        ({"type": ["string", "null"]}, ""),
        ({"type": "array"}, []),
        ({"type": "array", "items": {"type": "boolean"}, "minItems": 2}, [False, False]),
        ({"type": "array", "items": {"enum": ["a", "b", "c"]}, "minItems": 2, "uniqueItems": True}, ["a", "b"]),
        ({"type": "array", "items": {"type": "string"}, "minItems": 3, "uniqueItems": True}, ["", "a", "aa"]),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 2, "uniqueItems": True}, [0, 1]),
        ({"prefixItems": [{"const": 1}], "items": {"type": "string"}, "minItems": 2}, [1, ""]),
        ({"properties": {"a": {"type": "string"}, "b": {"type": "integer"}}, "required": ["b"]}, {"b": 0}),
        ({"type": "object", "required": ["x"], "additionalProperties": {"type": "integer"}}, {"x": 0}),
        ({"properties": {"a": {"type": "string"}, "b": {"type": "null"}}, "minProperties": 1}, {"a": ""}),
        ({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]}, 1),
        ({"anyOf": [False, {"type": "string"}]}, ""),
        ({"uniqueItems": True, "anyOf": [{"items": {"type": "integer"}, "minItems": 2}]}, [0, 1]),
        ({"oneOf": [{"type": "number"}, {"type": "integer"}, {"type": "string"}]}, ""),
        (
            {"properties": {"a": {"const": 1}, "b": {"const": 2}}, "oneOf": [{"required": ["b"]}, {"required": ["a"]}]},
            {"b": 2},
        ),
        ({"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"type": "integer", "minimum": 3}}}, 3),
        (
            {
                "allOf": [{"properties": {"a": {"const": 1}}, "required": ["a"]}],
                "properties": {"b": {"const": 2}},
                "required": ["b"],
            },
            {"b": 2, "a": 1},
        ),
        (_TREE, {"name": "aa", "next": None, "children": []}),
    ],
)
def test_the_smallest_instance_is_valid(schema: Any, value: Any) -> None:
    instance = smallest(schema)
    assert instance == value
    assert type(instance) is type(value)
    assert schema is True or violations(schema, instance) == []


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (False, "no instance"),
        ({"type": "string", "pattern": "^x$", "minLength": 2}, "no text was found"),
        ({"type": "integer", "minimum": 2, "maximum": 1}, "no value was found"),
        ({"type": "string", "minLength": 2, "maxLength": 1}, "was made, but"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"required": ["a"], "properties": {"a": {"$ref": "#/$defs/a"}}}}}, "end"),
        ({"anyOf": [False, {"type": "integer", "minimum": 2, "maximum": 1}]}, "no branch of anyOf"),
    ],
)
def test_the_error_for_a_schema_without_an_instance_states_the_reason(schema: Any, reason: str) -> None:
    with pytest.raises(ImpossibleError, match=reason):
        smallest(schema)


def test_limits_that_anthropics_sdk_moves_to_the_description_are_met() -> None:
    schema = {
        "type": "object",
        "properties": {
            "score": {"type": "integer", "minimum": 1, "maximum": 3, "description": "How bad."},
            "reason": {"type": "string", "minLength": 2},
            "steps": {"type": "array", "items": {"type": "string"}, "minItems": 2, "uniqueItems": True},
            "currency": {"type": "string", "pattern": "^[A-Z]{3}$", "description": "As in ISO 4217.", "maxLength": 3},
            "link": {"type": "string", "format": "uri-reference", "default": "x, y"},
            "changed": {"type": "object", "properties": {"a": {"type": "null"}}, "minProperties": 1},
        },
        "required": ["score", "reason", "steps", "currency", "link", "changed"],
    }
    sent_schema = transform_schema(schema)
    assert "minimum" not in sent_schema["properties"]["score"]
    assert violations(schema, smallest(sent_schema)) == []
