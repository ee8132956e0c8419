"""``toolbox.functions()`` as frameworks use it: they read signatures with pydantic and send what their model wrote."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable
from typing import Any

import pytest
from pydantic import TypeAdapter

from pytest_toolemu.agents.custom import custom_agent
from pytest_toolemu.core.toolbox import BlockingToolbox, Task, Toolbox
from pytest_toolemu.core.toolkit import Tool, Toolkit
from pytest_toolemu.emulators.layers import OfflineEmulator, ValidatedEmulator
from tests.agents.scene import LOCKERS, calls, play, resolved_case, toolbox

PARCEL = {"type": "object", "properties": {"grams": {"type": "integer", "minimum": 1}}, "required": ["grams"]}


def function(parameters: dict[str, Any], **arguments: Any) -> tuple[Any, dict[str, Any] | None]:
    """Return the function of a tool with these parameters, and what a call with the arguments sends."""
    tool = LOCKERS.tools[0].model_copy(update={"parameters": {"type": "object", **parameters}})
    place = resolved_case()
    box = toolbox(type(place)(place.case, (LOCKERS.model_copy(update={"tools": (tool,)}),), place.path))
    (made,) = box.functions().values()
    if not arguments:
        return made, None
    asyncio.run(_awaited(made(**arguments)))
    return made, calls(box)[0][1]


async def _awaited(call: Awaitable[Any]) -> Any:
    return await call


def schema_of(made: Any) -> dict[str, Any]:
    """Return the JSON Schema that pydantic generates from the signature."""
    return TypeAdapter(made).json_schema()


def test_a_framework_generates_the_schemas_of_the_toolkit_from_the_signature() -> None:
    properties = {
        "locker": {"type": "string", "description": "Its number."},
        "size": {"enum": ["S", "L"], "description": "S or L."},
        "parcels": {"type": "array", "items": PARCEL, "maxItems": 3},
    }
    made, _ = function({"properties": properties, "required": ["locker"]})
    generated = schema_of(made)
    assert generated["required"] == ["locker"]
    assert {
        name: {key: value for key, value in part.items() if key not in ("title", "default")}
        for name, part in generated["properties"].items()
    } == properties


def test_a_reference_to_a_definition_is_written_out_for_each_parameter() -> None:
    made, _ = function({"properties": {"parcel": {"$ref": "#/$defs/Parcel"}}, "$defs": {"Parcel": PARCEL}})
    generated = schema_of(made)["properties"]["parcel"]
    assert {key: generated[key] for key in PARCEL} == PARCEL


def test_required_parameters_come_first_and_the_docstring_is_what_an_agent_reads() -> None:
    made, _ = function(
        {"properties": {"note": {"type": "string"}, "locker": {"type": "string"}}, "required": ["locker"]}
    )
    assert list(inspect.signature(made).parameters) == ["locker", "note"]
    assert made.__name__ == "Lockers_Open"
    assert made.__doc__.startswith("Open a locker.\nReturns {")


@pytest.mark.parametrize(
    ("schema", "sent"),
    [
        ({"type": "string"}, {}),
        ({"enum": ["S", "L"]}, {}),
        ({"type": ["string", "null"]}, {"note": None}),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, {"note": None}),
        ({}, {"note": None}),
    ],
)
def test_none_means_that_an_optional_argument_is_absent_unless_its_schema_allows_null(
    schema: dict[str, Any], sent: dict[str, Any]
) -> None:
    parameters = {"properties": {"locker": {"type": "string"}, "note": schema}, "required": ["locker"]}
    assert function(parameters, locker="7", note=None)[1] == {"locker": "7", **sent}


def test_none_for_a_required_argument_is_sent_as_it_is() -> None:
    parameters = {"properties": {"locker": {"type": "string"}}, "required": ["locker"]}
    assert function(parameters, locker=None)[1] == {"locker": None}


def test_an_unknown_argument_is_sent_so_that_it_is_recorded() -> None:
    assert function({"properties": {}}, color="red")[1] == {"color": "red"}


@pytest.mark.parametrize(
    ("name", "python_name"),
    [("from", "from_"), ("content-type", "content_type"), ("_id", "id"), ("3d", "value_3d"), ("$", "value")],
)
def test_a_parameter_without_a_python_name_gets_a_similar_one(name: str, python_name: str) -> None:
    made, sent = function({"properties": {name: {"type": "string"}}, "required": [name]}, **{python_name: "x"})
    assert list(inspect.signature(made).parameters) == [python_name]
    assert sent == {name: "x"}


def test_names_that_become_equal_stay_distinct() -> None:
    properties = {"from": {"type": "string"}, "from_": {"type": "string"}}
    made, sent = function({"properties": properties}, from__="a", from_="b")
    assert list(inspect.signature(made).parameters) == ["from__", "from_"]
    assert sent == {"from": "a", "from_": "b"}


def test_a_correct_call_with_omitted_optional_arguments_is_accepted() -> None:
    """Frameworks fill in the defaults of the signature, which an emulator that validates must not see."""

    async def agent(_: Task, box: Toolbox) -> str:
        return str(await box.functions()["Lockers_Open"](locker="7", note=None))

    box = toolbox(emulator=ValidatedEmulator(OfflineEmulator()))
    assert "error" not in play(custom_agent(agent, "mine"), box)
    assert calls(box) == [("Lockers_Open", {"locker": "7"})]


def test_functions_of_a_blocking_toolbox_are_plain_and_alike() -> None:
    signatures: list[inspect.Signature] = []

    def agent(_: Task, box: BlockingToolbox) -> str:
        made = box.functions()["Lockers_Open"]
        signatures.append(inspect.signature(made))
        return str(made(locker="7", note=None)["opened"])

    box = toolbox()
    assert play(custom_agent(agent, "mine"), box) == "True"
    assert calls(box) == [("Lockers_Open", {"locker": "7"})]
    assert [*signatures[0].parameters] == [*inspect.signature(toolbox().functions()["Lockers_Open"]).parameters]


class TestNamesForAgents:
    """Imported tools keep the names that an existing agent knows them by."""

    @staticmethod
    def toolkit(*names: str, kit: str = "Forge") -> Toolkit:
        fields = LOCKERS.tools[0].model_dump(exclude={"name", "call_as"})
        tools = tuple(Tool(name=f"Tool{index}", call_as=name, **fields) for index, name in enumerate(names))
        return LOCKERS.model_copy(update={"name": kit, "tools": tools})

    def box(self, *names: str) -> Toolbox:
        place = resolved_case()
        return toolbox(type(place)(place.case, (self.toolkit(*names),), place.path))

    def test_an_agent_sees_and_calls_the_tool_by_its_own_name(self) -> None:
        box = self.box("create_pull_request")

        async def agent(_: Task, tools: Toolbox) -> str:
            return str((await tools.call("create_pull_request", {"locker": "7"}))["opened"])

        assert [tool.name for tool in box.tools] == ["create_pull_request"]
        assert play(custom_agent(agent, "mine"), box) == "True"
        (step,) = box.trajectory.steps
        assert (step.call.name, step.call.tool) == ("create_pull_request", "Forge.Tool0")

    def test_providers_get_underscores_for_dots_and_the_record_keeps_the_name(self) -> None:
        box = self.box("issues.create")

        async def agent(_: Task, tools: Toolbox) -> str:
            await tools.call("issues_create", {"locker": "7"})
            await tools.functions()["issues.create"](locker="8")
            return "done"

        assert [tool["function"]["name"] for tool in box.openai_tools()] == ["issues_create"]
        assert [tool["name"] for tool in box.anthropic_tools()] == ["issues_create"]
        assert box.functions()["issues.create"].__name__ == "issues_create"
        play(custom_agent(agent, "mine"), box)
        assert [name for name, _ in calls(box)] == ["issues.create", "issues.create"]

    def test_two_tools_with_one_name_for_agents_are_refused(self) -> None:
        with pytest.raises(ValueError, match="both 'Tool0' and 'Tool1' by the name 'a_b'; change 'call_as' of one of"):
            Toolkit(**self.toolkit("a.b", "a_b").model_dump())
