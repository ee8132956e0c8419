"""Describes tables and tools on one line each, as the models that write rows read them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pytest_toolemu.core.toolkit import Tool, Toolkit
from pytest_toolemu.core.world.entity_table import EntityTable, types_of
from pytest_toolemu.core.world.operation_plan import Plan
from pytest_toolemu.core.world.toolkit_plan import ToolkitPlan
from pytest_toolemu.formats.json_schema_refs import inlined

BY_A_MODEL: Final = "answered by a model"
"""What the text says about a tool that declares no operation."""


def table_lines(plans: Mapping[str, ToolkitPlan]) -> Iterator[str]:
    """Yield each table with its columns, and the tools that read and change it."""
    for kit, plan in plans.items():
        for name, table in plan.tables.items():
            columns = ", ".join(_column(table, field) for field in table.fields)
            readers = [tool for tool, each in plan.plans.items() if _shows(each, name)]
            writers = [tool for tool, each in plan.plans.items() if _changes(each, name)]
            uses = f"read by {', '.join(readers) or 'no tool'}; changed by {', '.join(writers) or 'no tool'}"
            yield f"{kit}.{name}({columns}): {uses}"


def tool_lines(toolkits: Sequence[Toolkit], plans: Mapping[str, ToolkitPlan]) -> Iterator[str]:
    """Yield each tool with its parameters, and with what its results show."""
    for kit in toolkits:
        for tool in kit.tools:
            plan = plans[kit.name].plans.get(tool.name) if kit.name in plans else None
            members = _shown_members(plan) if plan is not None else [BY_A_MODEL]
            shows = f": {', '.join(members)}" if members else ""
            yield f"{kit.name}.{tool.name}({', '.join(_parameters(tool, plan))}){shows}"


def _parameters(tool: Tool, plan: Plan | None) -> Iterator[str]:
    """Yield the parameters of a tool, each with the table of which it holds a key."""
    tables = {lookup.argument: lookup.table.name for lookup in plan.lookups} if plan is not None else {}
    required = tool.parameters.get("required", ())
    for name, schema in inlined(tool.parameters).get("properties", {}).items():
        mark = "" if name in required else "?"
        refers = f" of {tables[name]}" if name in tables else ""
        yield _with_kind(f"{name}{mark}{refers}", schema)


def _shown_members(plan: Plan) -> list[str]:
    """Return what a result tells an agent: the members of its listed items, or its own."""
    if plan.list_member and plan.items_are_objects and plan.table is not None:
        return [name for name in plan.item_members if name in plan.operation.show or name in plan.table.fields]
    return [_with_kind(name, schema) for name, schema in plan.returns.items() if name != "success"]


def _column(table: EntityTable, field: str) -> str:
    mark = "*" if field == table.key else ""
    refers = f" of {table.entity.refs[field]}" if field in table.entity.refs else ""
    return _with_kind(f"{field}{mark}{refers}", table.fields[field])


def _with_kind(name: str, schema: dict[str, Any]) -> str:
    """Return a name with the kind of its values, which is left out for plain text."""
    kind = _kind(schema)
    return name if kind in ("", "string") else f"{name} ({kind})"


def _kind(schema: dict[str, Any]) -> str:
    """Return the kind of values that a schema allows, as a model reads it fastest."""
    if "enum" in schema:
        return "|".join(map(str, schema["enum"]))
    types = types_of(schema)
    if types == {"array"} and isinstance(items := schema.get("items"), dict) and _kind(items):
        return f"array of {_kind(items)}"
    if types == {"object"} and schema.get("properties"):
        return f"object of {', '.join(_with_kind(name, part) for name, part in schema['properties'].items())}"
    return str(schema.get("format") or schema.get("pattern") or "/".join(sorted(types)))


def _shows(plan: Plan, name: str) -> bool:
    """Return whether the results of a tool come from a table."""
    if plan.operation.entity == name and plan.operation.verb in ("search", "get"):
        return True
    selected = re.compile(rf"(?i)\b(from|join) {name}\b")
    return any(selected.search(" ".join(str(shown).split())) for shown in plan.operation.show.values())


def _changes(plan: Plan, name: str) -> bool:
    """Return whether a tool changes rows of a table."""
    if plan.operation.entity == name and plan.operation.verb in ("create", "update", "delete"):
        return True
    changed = re.compile(rf"(?i)\b(insert into|insert or \w+ into|replace into|update|delete from) {name}\b")
    return any(changed.search(" ".join(statement.split())) for statement in plan.operation.then)
