"""Turns the pins of a case into rows of its world."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from json import dumps
from pathlib import Path
from typing import Any, Final

from pytest_toolemu.agents.reference import ReferenceAgent
from pytest_toolemu.authoring.play_references import play
from pytest_toolemu.authoring.world_text import with_world
from pytest_toolemu.core.call_patterns import form_of
from pytest_toolemu.core.case import Case, Pin, ResolvedCase
from pytest_toolemu.core.case_loading import build_case, load_case
from pytest_toolemu.core.trajectory import Step
from pytest_toolemu.core.world.entity_table import EntityTable
from pytest_toolemu.core.world.operation_plan import Plan
from pytest_toolemu.core.world.toolkit_plan import ToolkitPlan
from pytest_toolemu.core.world.world import World, plan_of
from pytest_toolemu.emulators.offline.schema_generator import SchemaGenerator, UnsatisfiableSchemaError
from pytest_toolemu.errors import DocumentError, ToolemuError, UsageError
from pytest_toolemu.formats.atomic_write import write_json_text
from pytest_toolemu.formats.json_schema import conforms
from pytest_toolemu.formats.truncation import truncated
from pytest_toolemu.formats.yaml_document import Document

Json = dict[str, Any]
_MAX_SHOWN: Final = 300


@dataclass(frozen=True)
class MigratedCase:
    """The file, how many rows it gained, how many pins it lost and kept, and notes for the author."""

    path: Path
    rows: int
    removed: int
    kept: int
    notes: tuple[str, ...]


@dataclass
class _Rows:
    """Rows under construction, by toolkit, entity and key; and the keys that created rows get."""

    plans: Mapping[str, ToolkitPlan]
    tables: dict[str, dict[str, dict[str, Json]]] = field(default_factory=dict)
    ids: dict[str, list[Any]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def put(self, kit: str, table: EntityTable, values: Json) -> None:
        """Add what a pin says about a row. The first pin that tells a field wins."""
        key = values.get(table.key)
        if key is None or key in self.ids.get(f"{kit}.{table.name}", ()):
            return
        row = self.tables.setdefault(kit, {}).setdefault(table.name, {}).setdefault(repr(key), {table.key: key})
        for name, value in values.items():
            if name in row and row[name] != value:
                where = f"{kit}.{table.name} {key}: {name}"
                self.notes.append(f"{where}: pins contradict each other: {_shown(row[name])} or {_shown(value)}")
            else:
                row[name] = value

    def complete(self, case: Case) -> None:
        """Fill required fields that no pin tells."""
        for kit, tables in self.tables.items():
            for name, rows in tables.items():
                table = self.plans[kit].tables[name]
                for row in rows.values():
                    for missing in sorted(table.required - row.keys()):
                        if "default" not in table.fields[missing]:
                            row[missing] = _invented(table, missing, row, case)
                            where = f"{kit}.{name} {row[table.key]}: {missing}"
                            self.notes.append(f"{where}: no pin tells it; filled with {_shown(row[missing])}")

    @property
    def world(self) -> dict[str, dict[str, list[Json]]]:
        """The rows as they are written in the case file."""
        return {
            kit: {
                name: list(self.tables[kit][name].values())
                for name in plan.tables
                if self.tables.get(kit, {}).get(name)
            }
            for kit, plan in self.plans.items()
        }


def migrate_pins(path: Path, *, drop_all: bool = False) -> MigratedCase:
    """Write rows instead of pins for the toolkits of a case that declare entities.

    Pins that the rows answer equally are removed; with ``drop_all``, all pins of tools with an operation. Raise
    DocumentError if the case is not valid, and UsageError if its pins do not make valid rows.
    """
    document = Document.read(path)
    resolved_case = load_case(path)
    case = resolved_case.case
    plans = {kit.name: plan_of(kit) for kit in resolved_case.toolkits if kit.entities and kit.name not in case.world}
    if not plans:
        note = "no toolkit of the case declares entities that the case has no rows for"
        return MigratedCase(path, 0, 0, len(case.pins), (note,))
    rows = _collect(case, plans)
    rows.complete(case)
    world, ids = rows.world, {name: keys for name, keys in rows.ids.items() if keys}
    migrated = {index for index, pin in enumerate(case.pins) if _plan(plans, pin.tool) is not None}
    try:
        without = build_case(Document.parse(with_world(document, world, ids, remove=migrated), path))
    except DocumentError as error:
        raise UsageError(f"{path}: the pins do not make valid rows; migrate this case by hand:\n{error}") from None
    different = _differences(resolved_case, without, migrated)
    removed = migrated if drop_all else migrated - different.keys()
    text = with_world(document, world, ids, remove=removed)
    build_case(Document.parse(text, path))
    write_json_text(path, text)
    verb = "removed, although" if drop_all else "kept:"
    notes = [f"pins[{index}] {case.pins[index].tool}: {verb} {text}" for index, text in sorted(different.items())]
    count = sum(len(entries) for tables in world.values() for entries in tables.values())
    return MigratedCase(path, count, len(removed), len(case.pins) - len(removed), (*rows.notes, *notes))


def _plan(plans: Mapping[str, ToolkitPlan], tool: str) -> Plan | None:
    kit, _, name = tool.partition(".")
    return plans[kit].plans.get(name) if kit in plans else None


def _collect(case: Case, plans: Mapping[str, ToolkitPlan]) -> _Rows:
    rows = _Rows(plans)
    for pin in case.pins:  # first the keys of rows that do not exist at the beginning
        plan = _plan(plans, pin.tool)
        if plan is not None and plan.operation.verb == "create" and plan.table is not None:
            key = _created_key(plan, plan.table, pin.returns or {})
            keys = rows.ids.setdefault(f"{pin.tool.partition('.')[0]}.{plan.table.name}", [])
            if key is not None and key not in keys:
                keys.append(key)
    for pin in case.pins:
        plan = _plan(plans, pin.tool)
        if plan is not None and pin.returns is not None:
            kit = pin.tool.partition(".")[0]
            arguments = _plain_arguments(pin, plan)
            for table, values in _told(plan, pin.returns, arguments):
                rows.put(kit, table, values)
    return rows


def _told(plan: Plan, returns: Json, arguments: Json) -> Iterator[tuple[EntityTable, Json]]:
    """Yield what the result of a call tells about rows that exist before it."""
    table, shown = plan.table, plan.operation.show
    for lookup in plan.lookups:
        value = arguments.get(lookup.argument)
        for key in value if isinstance(value, list) else [] if value is None else [value]:
            yield lookup.table, {lookup.table.key: key}
    if table is None:
        return
    if plan.list_member and plan.items_are_objects:
        members = [name for name in plan.item_members if name in table.fields and name not in shown]
        equal = {name: value for name, value in arguments.items() if name in table.fields and name not in members}
        for item in returns.get(plan.list_member, ()):
            yield table, {**equal, **{name: item[name] for name in members if name in item}}
    if plan.operation.verb == "get":
        own = {name: value for name, value in returns.items() if name in table.fields and name not in shown}
        key = arguments.get(plan.key_argument or "")
        yield table, {**({} if key is None else {table.key: key}), **own}


def _created_key(plan: Plan, table: EntityTable, returns: Json) -> Any:
    """Return the key of the created row, as the result tells it; None if it does not."""
    if table.key in plan.assigned:
        return None  # the call determines it
    names = [name for name, expression in plan.shown.items() if expression in (":id", f"new.{table.key}")]
    return next((returns[name] for name in (table.key, *names) if name in returns), None)


def _plain_arguments(pin: Pin, plan: Plan) -> Json:
    """Return the values that the pin requires of arguments, as far as they are plain values."""
    return pin.arguments if form_of(pin.arguments, plan.tool.parameters) == "plain" else {}


def _invented(table: EntityTable, name: str, row: Json, case: Case) -> Any:
    schema = table.fields[name]
    plain_values: tuple[Any, ...] = ("", 0, False, [], {})
    for value in plain_values:
        if "enum" not in schema and not name.endswith(("name", "title")) and value != "" and conforms(schema, value):
            return value
    generator = SchemaGenerator(f"{case.id}:{table.name}:{row[table.key]}:{name}", case.locale, case.now, {})
    try:
        return generator.value(schema, (table.name, name))
    except UnsatisfiableSchemaError:
        return ""


def _differences(before: ResolvedCase, after: ResolvedCase, migrated: set[int]) -> dict[int, str]:
    """Return how the rows answer differently, by the number of the pin; pins that cannot be compared count as such."""
    compared: set[int] = set()
    different: dict[int, str] = {}
    for label in before.case.references:
        try:
            old = asyncio.run(play(before, ReferenceAgent(label))).steps
            new = asyncio.run(play(after, ReferenceAgent(label))).steps
        except ToolemuError as error:
            return dict.fromkeys(migrated, f"the reference {label!r} cannot be played: {error}")
        for one, other in zip(old, new, strict=False):
            index = _pin_of(before, one)
            if index in migrated:
                compared.add(index)
                if one.observation.content != other.observation.content:
                    texts = (_shown(step.observation.content) for step in (other, one))
                    different.setdefault(index, "rows return {}, and the pin returns {}".format(*texts))
    for index in migrated - compared:
        text = _compare(after, before.case.pins[index])
        if text:
            different[index] = text
    return different


def _pin_of(resolved_case: ResolvedCase, step: Step) -> int:
    """Return the number of the pin that answered a call; -1 if none did. Pins with ``nth`` are told by their result."""
    for index, pin in enumerate(resolved_case.case.pins):
        if step.observation.source != "pinned" or step.call.tool is None:
            break
        content = {"error": pin.error} if pin.error is not None else pin.returns
        if content == step.observation.content and resolved_case.matches(pin, step.call.tool, step.call.arguments):
            return index
    return -1


def _compare(resolved_case: ResolvedCase, pin: Pin) -> str:
    """Return how the rows answer the call that a pin describes differently; empty if they answer it equally."""
    tool = resolved_case.tools_in_files[pin.tool]
    if form_of(pin.arguments, tool.parameters) != "plain" or not conforms(tool.parameters, pin.arguments):
        return "no reference makes such a call, and the pin does not say all of its arguments"
    content = World.of(resolved_case).call(pin.tool, pin.arguments, 0)
    expected = {"error": pin.error} if pin.error is not None else pin.returns
    return "" if content == expected else f"rows return {_shown(content)}, and the pin returns {_shown(expected)}"


def _shown(value: Any) -> str:
    return truncated(dumps(value, ensure_ascii=False), _MAX_SHOWN)
