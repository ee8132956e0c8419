from __future__ import annotations

from typing import Any

import pytest

from pytest_toolemu.core.toolkit import Tool
from pytest_toolemu.emulators.simulated import read_reply, reply_schema
from pytest_toolemu.formats.json_schema import violations
from pytest_toolemu.models.strict_schema import satisfies_strict, to_strict, without_nulls
from tests.emulators.resolved_cases import TEXT, contacts, listed, record, tool

OPTIONAL = record("id", id=TEXT, note=TEXT, tags=listed(TEXT), parts=listed(record("a", a=TEXT, b=TEXT)))


def outcomes(of: Tool) -> list[dict[str, Any]]:
    outcome = reply_schema(of, adversarial=False).schema_["properties"]["outcome"]
    schemas: list[dict[str, Any]] = outcome.get("anyOf", [outcome])
    return schemas


def test_fields_come_in_the_order_of_reasoning() -> None:
    get = contacts().tools[1]
    assert list(reply_schema(get, adversarial=False).schema_["properties"]) == [
        "validation", "reasoning", "log_summary", "outcome",
    ]  # fmt: skip
    assert list(reply_schema(get, adversarial=True).schema_["properties"]) == [
        "validation", "reasoning", "stress_test", "log_summary", "outcome",
    ]  # fmt: skip


def test_only_declared_errors_are_possible() -> None:
    search, get, *_ = contacts().tools
    assert [list(outcome["properties"]) for outcome in outcomes(search)] == [["observation"]]
    assert outcomes(get)[1]["properties"]["error"]["properties"]["name"]["enum"] == ["NotFound"]


@pytest.mark.parametrize("of", contacts().tools, ids=lambda of: of.name)
@pytest.mark.parametrize("adversarial", [True, False])
def test_reply_schemas_satisfy_strict_mode(of: Tool, adversarial: bool) -> None:
    assert satisfies_strict(reply_schema(of, adversarial).schema_)


STRICTABLE = [
    OPTIONAL,
    record(a={"type": "string", "minLength": 3, "maxLength": 5, "default": "abc", "format": "uri"}),
    record(a={"oneOf": [{"type": "integer"}, {"type": "null"}]}),
    {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"type": ["string", "null"]}}},
    {"type": "object", "properties": {"a": {"enum": [1, "b", None]}, "b": {"const": 3}}},
    {"type": "object", "properties": {}, "additionalProperties": False},
]


@pytest.mark.parametrize("schema", STRICTABLE)
def test_schemas_of_ordinary_returns_become_strict(schema: dict[str, Any]) -> None:
    assert satisfies_strict(strict_of(schema))


def strict_of(schema: dict[str, Any]) -> dict[str, Any]:
    reader = tool("Do", "read", record(), schema)
    observation: dict[str, Any] = outcomes(reader)[0]["properties"]["observation"]
    return observation


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "object"}, {"any": 1}),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, {"a": 1}),
        ({"type": "object", "properties": {"a": TEXT}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"b": 1}),
        ({"allOf": [record("a", a=TEXT) | {"additionalProperties": True}]}, {"a": "x", "c": 2}),
        (record(a={"type": "array", "prefixItems": [TEXT, {"type": "integer"}]}), {"a": ["x", 1]}),
    ],
)
def test_adapting_a_schema_never_narrows_it(schema: dict[str, Any], value: Any) -> None:
    assert violations({"allOf": [to_strict(schema)]}, value) == []


class TestAbsentMembers:
    def test_null_stands_for_absent(self) -> None:
        value = {"id": "1", "note": None, "tags": None, "parts": [{"a": "x", "b": None}]}
        assert without_nulls(OPTIONAL, value) == {"id": "1", "parts": [{"a": "x"}]}

    def test_a_null_that_the_schema_allows_is_kept(self) -> None:
        schema = record("a", a={"type": ["string", "null"]}, b={"anyOf": [TEXT, {"type": "null"}]}, c={})
        value = {"a": None, "b": None, "c": None}
        assert without_nulls(schema, value) == value

    def test_nulls_within_variants_are_removed(self) -> None:
        schema = record(a={"anyOf": [record("x", x=TEXT, y=TEXT), record("z", z=TEXT)]})
        assert without_nulls(schema, {"a": {"x": "1", "y": None}}) == {"a": {"x": "1"}}
        assert without_nulls(schema, {"a": {"z": "1"}}) == {"a": {"z": "1"}}

    def test_a_reply_is_validated_against_the_tool_s_return_schema(self) -> None:
        reader = tool("Do", "read", record(), OPTIONAL)
        fields = {"validation": "", "reasoning": "", "log_summary": ""}
        value = {"id": "1", "note": None, "tags": ["t"], "parts": None}
        observation = read_reply(reader, {**fields, "outcome": {"observation": value}})
        assert observation.content == {"id": "1", "tags": ["t"]}
        with pytest.raises(ValueError, match=r"observation.*id"):
            read_reply(reader, {**fields, "outcome": {"observation": value | {"id": None}}})


def test_the_schema_for_any_tool_is_closed_except_for_the_observation() -> None:
    outcomes = reply_schema(None, adversarial=True).schema_["properties"]["outcome"]["anyOf"]
    assert outcomes[0]["properties"] == {"observation": {"type": "object"}}
    assert outcomes[1]["properties"]["error"]["required"] == ["name", "message"]
