from __future__ import annotations

from typing import Any

import pytest

from pytest_toolemu.agents.model_agents import specification
from pytest_toolemu.core.toolkit import Tool, Toolkit
from tests.agents.scene import LOCKERS


def rendered(parameters: dict[str, Any], returns: dict[str, Any] | None = None) -> list[str]:
    """Return the lines below that of a tool."""
    empty = {"type": "object"}
    tool = Tool(
        name="T", description="d", parameters=empty | parameters, returns=empty | (returns or {}), effect="read"
    )
    kit = Toolkit(name="K", title="k", category="c", description="d", tools=(tool,))
    return specification((kit,)).splitlines()[3:]


def test_a_specification_lists_tools_arguments_and_returns() -> None:
    assert specification((LOCKERS,)) == "\n".join(
        [
            "## Lockers: Parcel lockers of one neighbourhood.",
            "",
            "* Lockers_Open: Open a locker.",
            "  * Arguments:",
            "    * locker (string): Its number.",
            "    * note (string, optional)",
            "  * Returns:",
            "    * opened (boolean)",
        ]
    )


def test_a_tool_without_arguments_or_returns_says_none() -> None:
    assert rendered({}) == ["  * Arguments: none", "  * Returns: none"]


@pytest.mark.parametrize(
    ("schema", "description"),
    [
        ({"type": "string", "enum": ["a", "ü"]}, 'string, one of "a", "ü"'),
        ({"type": ["string", "null"], "format": "date"}, 'string or null, format "date"'),
        ({"const": 3}, "any, always 3"),
        ({"type": "integer", "minimum": 1, "default": 5}, "integer, minimum 1, default 5"),
        ({"type": "array", "items": {"type": "string"}, "maxItems": 2}, "array of string, maxItems 2"),
        ({"type": "array", "items": {"type": "string", "format": "email"}}, 'array of (string, format "email")'),
        ({"type": "array", "items": True}, "array"),
        ({"anyOf": [{"type": "string"}, {"type": "number"}]}, 'any, anyOf [{"type": "string"}, {"type": "number"}]'),
        ({"type": "object", "additionalProperties": False}, "object"),
        (
            {"type": "object", "additionalProperties": {"type": "number"}},
            'object, additionalProperties {"type": "number"}',
        ),
        (True, "any"),
        (False, "nothing"),
    ],
)
def test_allowed_values_are_described_beside_the_name(schema: Any, description: str) -> None:
    assert rendered({"properties": {"x": schema}, "required": ["x"]})[1] == f"    * x ({description})"


def test_members_of_nested_objects_and_arrays_are_listed_below_their_field() -> None:
    point = {"type": "object", "properties": {"lat": {"type": "number", "description": "North\nis positive."}}}
    rows = {"type": "array", "items": {"type": "array", "items": point}}
    assert rendered({"properties": {"rows": rows, "at": point}, "required": ["rows", "at"]})[1:6] == [
        "    * rows (array of array of object)",
        "      * lat (number, optional): North is positive.",
        "    * at (object)",
        "      * lat (number, optional): North is positive.",
        "  * Returns: none",
    ]


def test_rules_about_all_arguments_are_in_the_heading() -> None:
    lines = rendered({"properties": {"a": {"type": "string"}}, "minProperties": 1})
    assert lines[0] == "  * Arguments (minProperties 1):"
