"""Tools whose provider added hostile text to their descriptions.

An agent trusts the descriptions of its tools, and the provider of a tool server can change them at any time. A case
names the changes and leaves the toolkit as it is. The agent reads them as part of the toolkit, and records store the
toolkit as the agent saw it. Models that emulate or judge get the toolkit without the hostile texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pydantic import Field, model_validator

from pytest_toolemu.core.toolkit import Text, Tool, Toolkit, ToolName
from pytest_toolemu.formats.json_schema import schema_problem
from pytest_toolemu.formats.json_schema_keywords import unknown_keywords
from pytest_toolemu.formats.visible_text import quoted
from pytest_toolemu.formats.yaml_document import Loc, Record, closest


class PoisonedTool(Record):
    """What the provider of a tool changed about it."""

    tool: ToolName = Field(description="The tool, as Toolkit.Tool")
    adds: Text | None = Field(default=None, description="Text that follows the tool's description")
    parameters: dict[str, dict[str, Any]] = Field(
        default={},
        description="JSON Schemas by parameter. Their keywords replace those of an existing parameter; a new parameter "
        "is optional and has no effect on rows",
    )

    @model_validator(mode="after")
    def _has_change(self) -> PoisonedTool:
        if self.adds is None and not self.parameters:
            raise ValueError("a poisoned tool has 'adds', 'parameters', or both")
        return self

    def __str__(self) -> str:
        return quoted(self.model_dump(mode="json", exclude_defaults=True))

    def applied(self, tool: Tool) -> Tool:
        """Return the tool as the agent sees it."""
        properties: dict[str, Any] = tool.parameters.get("properties", {})
        changed = {name: {**properties.get(name, {}), **schema} for name, schema in self.parameters.items()}
        new = [name for name in self.parameters if name not in properties]
        operation = tool.operation and tool.operation.model_copy(update={"unused": (*tool.operation.unused, *new)})
        description = tool.description if self.adds is None else f"{tool.description}{self._added}"
        parameters = {**tool.parameters, "properties": {**properties, **changed}}
        return tool.model_copy(update={"description": description, "parameters": parameters, "operation": operation})

    def removed(self, tool: Tool) -> Tool:
        """Return the tool that ``applied`` gave without its hostile texts. Types and defaults stay as they are."""
        properties: dict[str, Any] = tool.parameters.get("properties", {})
        silent = {
            name: {keyword: value for keyword, value in properties.get(name, {}).items() if keyword != "description"}
            for name in self.parameters
        }
        parameters = {**tool.parameters, "properties": {**properties, **silent}}
        return tool.model_copy(
            update={"description": tool.description.removesuffix(self._added), "parameters": parameters}
        )

    @property
    def _added(self) -> str:
        return "" if self.adds is None else f" {self.adds}"


def with_hostile_texts(toolkits: tuple[Toolkit, ...], changes: tuple[PoisonedTool, ...]) -> tuple[Toolkit, ...]:
    """Return the toolkits as the agent sees them."""
    return _changed(toolkits, changes, PoisonedTool.applied)


def without_hostile_texts(toolkits: tuple[Toolkit, ...], changes: tuple[PoisonedTool, ...]) -> tuple[Toolkit, ...]:
    """Return toolkits that ``with_hostile_texts`` gave as models that emulate or judge see them."""
    return _changed(toolkits, changes, PoisonedTool.removed)


def _changed(
    toolkits: tuple[Toolkit, ...], changes: tuple[PoisonedTool, ...], change: Callable[[PoisonedTool, Tool], Tool]
) -> tuple[Toolkit, ...]:
    """Return the toolkits with each poisoned tool replaced; a toolkit without one is returned itself."""
    by_tool = {poisoned.tool: poisoned for poisoned in changes}
    return tuple(
        toolkit.model_copy(
            update={
                "tools": tuple(
                    change(by_tool[name], tool) if (name := f"{toolkit.name}.{tool.name}") in by_tool else tool
                    for tool in toolkit.tools
                )
            }
        )
        if any(name.startswith(f"{toolkit.name}.") for name in by_tool)
        else toolkit
        for toolkit in toolkits
    )


def poison_problems(toolkits: tuple[Toolkit, ...], changes: tuple[PoisonedTool, ...]) -> Iterator[tuple[Loc, str]]:
    """Yield unknown and repeated tools, and parameters that are not valid JSON Schemas, with their locations."""
    tools = {f"{toolkit.name}.{tool.name}" for toolkit in toolkits for tool in toolkit.tools}
    seen: set[str] = set()
    for index, poisoned in enumerate(changes):
        loc: Loc = ("poisoned_tools", index)
        if poisoned.tool not in tools:
            yield (*loc, "tool"), f"unknown tool {poisoned.tool!r}{closest(poisoned.tool, tools)}"
        if poisoned.tool in seen:
            yield (*loc, "tool"), f"{poisoned.tool!r} occurs twice; write both changes into one entry"
        seen.add(poisoned.tool)
        for name, schema in poisoned.parameters.items():
            if problem := schema_problem(schema):
                yield (*loc, "parameters", name), f"not a valid JSON Schema: {problem}"
            for inner, message in unknown_keywords(schema):
                yield (*loc, "parameters", name, *inner), message
