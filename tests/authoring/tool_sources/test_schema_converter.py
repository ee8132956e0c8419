"""Schemas of any dialect become bounded ones that accept everything that the original accepts."""

from __future__ import annotations

from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest

from pytest_toolemu.authoring.importers.schema_converter import SchemaBounds, SchemaConverter
from pytest_toolemu.formats.json_schema import conforms, schema_problem, unknown_keywords

BOUNDS = SchemaBounds(depth=3, members=4)


def converted(schema: Any, root: Any = None) -> tuple[Any, bool]:
    converter = SchemaConverter(schema if root is None else root, BOUNDS)
    return converter.convert(schema), converter.is_cut


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        pytest.param({"type": "STRING"}, {"type": "string"}, id="types in capitals"),
        pytest.param({"type": "integer", "format": "int64"}, {"type": "integer"}, id="unknown format"),
        pytest.param({"type": "string", "format": "date"}, {"type": "string", "format": "date"}, id="known format"),
        pytest.param({"type": "string", "nullable": True}, {"type": ["string", "null"]}, id="nullable"),
        pytest.param(
            {"type": "string", "enum": ["a"], "nullable": True, "description": "Kind."},
            {"description": "Kind.", "anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}]},
            id="nullable choice",
        ),
        pytest.param(
            {"type": "number", "minimum": 0, "exclusiveMinimum": True},
            {"type": "number", "exclusiveMinimum": 0},
            id="exclusive bound of OpenAPI 3.0",
        ),
        pytest.param(
            {"type": "number", "maximum": 9, "exclusiveMaximum": False},
            {"type": "number", "maximum": 9},
            id="inclusive",
        ),
        pytest.param(
            {"allOf": [{"properties": {"a": {}}, "required": ["a"]}, {"properties": {"b": {}}, "required": ["b"]}]},
            {"properties": {"a": {}, "b": {}}, "required": ["a", "b"]},
            id="allOf is merged",
        ),
        pytest.param({"oneOf": [{"type": "string"}]}, {"anyOf": [{"type": "string"}]}, id="oneOf accepts several"),
        pytest.param({"items": [{"type": "string"}]}, {"prefixItems": [{"type": "string"}]}, id="items of draft 7"),
        pytest.param(
            {"x-go-name": "A", "xml": {}, "title": "A", "type": "string"}, {"type": "string"}, id="extensions"
        ),
        pytest.param({"type": "file"}, {}, id="unknown type"),
        pytest.param({"const": None}, {"const": None}, id="null as constant"),
        pytest.param({"type": "null", "enum": [None]}, {"type": "null", "enum": [None]}, id="null as choice"),
        pytest.param(
            {"items": [{}], "additionalItems": True, "contains": {}, "minContains": 1},
            {"prefixItems": [{}], "contains": {}},
            id="conditions that every value meets",
        ),
        pytest.param(
            {"properties": {"a": True}, "required": True}, {"properties": {"a": True}}, id="required of draft 3"
        ),
    ],
)
def test_dialects(schema: Any, expected: Any) -> None:
    assert converted(schema) == (expected, False)


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        pytest.param({"pattern": "(?=a)b", "type": "string"}, {"type": "string"}, id="slow expression"),
        pytest.param({"enum": [], "type": "string"}, {"type": "string"}, id="no choices"),
        pytest.param({"enum": ["x" * 5000]}, {}, id="huge choice"),
        pytest.param(
            {"patternProperties": {"^x": {}}, "additionalProperties": False, "type": "object"},
            {"type": "object"},
            id="names",
        ),
        pytest.param({"$ref": "https://example.com/a.json"}, {}, id="reference to the outside"),
        pytest.param({"$ref": "#/nowhere"}, {}, id="reference to nothing"),
        pytest.param("no schema", {}, id="no schema"),
        pytest.param(
            {"type": "integer", "enum": ["9223372036854775807", 1]}, {"type": "integer"}, id="number too large to store"
        ),
        pytest.param({"type": "integer", "const": "9223372036854775807"}, {"type": "integer"}, id="large constant"),
        pytest.param({"contains": {"const": 1}, "minContains": 0}, {}, id="no item has to match"),
        pytest.param(
            {"contains": {"const": 1}, "minContains": 2}, {"contains": {"const": 1}}, id="several items have to match"
        ),
        *(
            pytest.param({"type": "object", **condition}, {"type": "object"}, id=next(iter(condition)))
            for condition in (
                {"not": {"required": ["a"]}},
                {"if": {"required": ["a"]}, "then": {"required": ["b"]}},
                {"dependentRequired": {"a": ["b"]}},
                {"dependencies": {"a": ["b"]}},
                {"patternProperties": {"^x": {"type": "string"}}},
                {"unevaluatedProperties": False},
            )
        ),
        pytest.param(
            {"properties": {name: {} for name in "abcdef"}, "required": ["f"], "additionalProperties": False},
            {"properties": {"f": {}, "a": {}, "b": {}, "c": {}}, "required": ["f"]},
            id="too many members: required ones are kept, and others stay possible",
        ),
    ],
)
def test_what_cannot_be_kept_becomes_open(schema: Any, expected: Any) -> None:
    assert converted(schema) == (expected, True)


def test_references_are_replaced_by_what_they_lead_to() -> None:
    root = {"$defs": {"a/b": {"type": "integer"}}}
    assert converted({"$ref": "#/$defs/a~1b", "description": "Here."}, root) == (
        {"type": "integer", "description": "Here."},
        False,
    )


def test_members_next_to_a_reference_are_added_to_those_of_its_target() -> None:
    base = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {}}, "required": ["a"]}
    schema = {"$ref": "#/$defs/base", "properties": {"c": {}, "b": {"type": "string"}}, "required": ["c"]}
    expected = {
        "type": "object",
        "properties": {"c": {}, "b": {"type": "string"}, "a": {"type": "integer"}},
        "required": ["c", "a"],
    }
    assert converted(schema, {"$defs": {"base": base}}) == (expected, False)


def test_recursive_references_become_open() -> None:
    root = {"$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}}}
    expected = {"type": "object", "properties": {"next": {"type": "object"}}}
    assert converted({"$ref": "#/$defs/node"}, root) == (expected, True)


def test_a_reference_to_itself_becomes_open() -> None:
    assert converted({"$ref": "#"}) == ({}, True)


def test_nesting_is_bounded() -> None:
    schema: Any = {"type": "string"}
    for _ in range(9):
        schema = {"type": "object", "properties": {"a": schema}}
    inner, is_cut = converted(schema)
    for _ in range(4):
        inner = inner["properties"]["a"]
    assert (inner, is_cut) == ({"type": "object"}, True)


def test_references_that_multiply_are_bounded() -> None:
    definitions: Any = {"d0": {"type": "string"}}
    for level in range(1, 30):
        reference = {"$ref": f"#/$defs/d{level - 1}"}
        definitions[f"d{level}"] = {"allOf": [reference, reference, {"properties": {"a": reference}}]}
    schema, is_cut = converted({"$ref": "#/$defs/d29"}, {"$defs": definitions})
    assert is_cut
    assert schema_problem(schema) is None


KEYS = [
    "type",
    "properties",
    "items",
    "allOf",
    "anyOf",
    "$ref",
    "enum",
    "required",
    "nullable",
    "minimum",
    "exclusiveMinimum",
    "pattern",
    "additionalProperties",
    "description",
    "const",
    "prefixItems",
    "minItems",
    "a",
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["string", "object", "#", "#/properties/a", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)


@hypothesis.given(JSON)
@hypothesis.settings(max_examples=50)
def test_any_json_becomes_a_valid_schema(schema: Any) -> None:
    result, _ = converted(schema)
    assert schema_problem(result) is None
    assert list(unknown_keywords(result)) == []


@pytest.mark.parametrize("value", [1, "a", None, [], {}, {"f": 1}, {"g": 1}])
def test_the_result_accepts_what_the_original_accepts(value: Any) -> None:
    schema = {"oneOf": [{"type": "object", "not": {"required": ["g"]}}, {"type": "string", "pattern": "^a(?!b)"}]}
    assert not conforms(schema, value) or conforms(converted(schema)[0], value)
