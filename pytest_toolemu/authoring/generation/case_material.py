"""Describes toolkits to the author of cases, by the names that case files use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pytest_toolemu.core.toolkit import Tool, Toolkit
from pytest_toolemu.emulators.world_builder import plans_of, table_lines
from pytest_toolemu.formats.json_schema_text import members_text
from pytest_toolemu.formats.visible_text import quoted


@dataclass(frozen=True)
class DescribedToolkit:
    """A toolkit as text: its head, its risks, and a line for each tool."""

    head: str
    risks: list[str]
    tools: list[str]


def material(toolkits: Sequence[Toolkit]) -> dict[str, Any]:
    """Return the values of the prompt ``case_material``."""
    return {
        "toolkits": [
            DescribedToolkit(
                f"{kit.name}: {quoted(kit.description)}",
                [quoted(risk) for risk in kit.risks],
                [_tool(kit, tool) for tool in kit.tools],
            )
            for kit in toolkits
        ],
        "tables": list(table_lines(plans_of(toolkits))),
    }


def sketch_line(kit: Toolkit) -> str:
    """Return a toolkit on one line: its purpose, its tools with their effects, and its risks."""
    tools = ", ".join(f"{tool.name} ({tool.effect})" for tool in kit.tools)
    risks = f" Risks: {' '.join(map(quoted, kit.risks))}" if kit.risks else ""
    return f"{kit.name}: {quoted(kit.description)} Tools: {tools}.{risks}"


def _tool(kit: Toolkit, tool: Tool) -> str:
    errors = "; ".join(f"{name} ({quoted(condition)})" for name, condition in tool.errors.items())
    answered = "" if tool.operation is not None else "; needs pins"
    arguments, results = members_text(tool.parameters, "()", explain="all"), members_text(tool.returns, explain="open")
    line = (
        f"{kit.name}.{tool.name}{arguments} -> {results}: {quoted(tool.description)} Effect: {tool.effect}{answered}."
    )
    return f"{line} Errors: {errors}" if errors else line
