"""Derives the rows of a case from the results of its pins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from json import dumps
from typing import Any, Final

from pytest_toolemu.core.case import Case
from pytest_toolemu.core.case_rules import Pin, is_schema
from pytest_toolemu.core.world.entity_table import EntityTable
from pytest_toolemu.core.world.operation_plan import Plan
from pytest_toolemu.core.world.toolkit_plan import ToolkitPlan
from pytest_toolemu.emulators.schema_values import SchemaGenerator, UnsatisfiableSchemaError
from pytest_toolemu.formats.json_schema import conforms
from pytest_toolemu.formats.text import truncated

Json = dict[str, Any]
_MAX_SHOWN: Final = 300


@dataclass
class RowsOfPins:
    """Rows under construction, by toolkit, entity and key; and the keys that created rows get."""

    plans: Mapping[str, ToolkitPlan]
    tables: dict[str, dict[str, dict[str, Json]]] = field(default_factory=dict)
    ids: dict[str, list[Any]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    others: dict[tuple[str, str, str], Json] = field(default_factory=dict)
    """Members of results that no field holds, such as the first words of a text, by toolkit, entity and key."""

    def put(self, kit: str, table: EntityTable, values: Json, others: Json) -> None:
        """Add what a pin says about a row. The first pin with a value of a field wins."""
        key = values.get(table.key)
        if key is None or key in self.ids.get(f"{kit}.{table.name}", ()):
            return
        self.others.setdefault((kit, table.name, repr(key)), {}).update(others)
        row = self.tables.setdefault(kit, {}).setdefault(table.name, {}).setdefault(repr(key), {table.key: key})
        for name, value in values.items():
            if name in row and row[name] != value:
                where = f"{kit}.{table.name} {key}: {name}"
                self.notes.append(
                    f"{where}: pins contradict each other: {shortened_json(row[name])} or {shortened_json(value)}"
                )
            else:
                row[name] = value

    def complete(self, case: Case) -> None:
        """Add rows that others refer to, and fill required fields that no pin gives a value."""
        for kit, tables in list(self.tables.items()):
            for name in list(tables):
                self._add_referenced(kit, self.plans[kit].tables[name])
        for kit, tables in self.tables.items():
            for name, rows in tables.items():
                table = self.plans[kit].tables[name]
                for key, row in rows.items():
                    others = self.others.get((kit, name, key), {})
                    for missing in sorted(table.required - row.keys()):
                        if "default" not in table.fields[missing]:
                            value = _value_of(others, missing, table.fields[missing])
                            row[missing] = _invented(table, missing, row, case) if value is None else value
                            where = f"{kit}.{name} {row[table.key]}: {missing}"
                            self.notes.append(
                                f"{where}: no pin gives a value; filled with {shortened_json(row[missing])}"
                            )

    def _add_referenced(self, kit: str, table: EntityTable) -> None:
        for name, target in table.entity.refs.items():
            referenced = self.plans[kit].tables[target]
            for row in list(self.tables[kit][table.name].values()):
                value = row.get(name)
                for key in value if isinstance(value, list) else [] if value in (None, "") else [value]:
                    self.put(kit, referenced, {referenced.key: key}, {})

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


def plan_of_tool(plans: Mapping[str, ToolkitPlan], tool: str) -> Plan | None:
    """Return the plan of ``Toolkit.Tool``; None if the tool has no operation."""
    kit, _, name = tool.partition(".")
    return plans[kit].plans.get(name) if kit in plans else None


def rows_of_pins(case: Case, plans: Mapping[str, ToolkitPlan]) -> RowsOfPins:
    """Return the rows that exist before the first call, as far as the pins show them, and the keys of created rows."""
    rows = RowsOfPins(plans)
    for pin in case.pins:  # first the keys of rows that do not exist at the beginning
        plan = plan_of_tool(plans, pin.tool)
        if plan is not None and plan.operation.verb == "create" and plan.table is not None:
            key = _created_key(plan, plan.table, pin.returns or {})
            kit = pin.tool.partition(".")[0]
            keys = rows.ids.setdefault(f"{kit}.{plan.table.name}", [])
            may_replace = plan.assigned.get(plan.table.key, "NULL") != "NULL" and (
                plan.key_argument in _plain_arguments(pin) or repr(key) in _listed_keys(plans, case.pins, plan.table)
            )
            if key is not None and key not in keys and not may_replace:
                keys.append(key)
    for pin in case.pins:
        plan = plan_of_tool(plans, pin.tool)
        if plan is not None and pin.returns is not None:
            kit = pin.tool.partition(".")[0]
            arguments = _plain_arguments(pin)
            for table, values, others in _rows_in_result(plan, pin.returns, arguments):
                rows.put(kit, table, values, others)
    return rows


def _rows_in_result(plan: Plan, returns: Json, arguments: Json) -> Iterator[tuple[EntityTable, Json, Json]]:
    """Yield the rows that exist before a call, as its result shows them: fields, and members without a field."""
    table = plan.table
    for lookup in plan.lookups:
        value = arguments.get(lookup.argument)
        for key in value if isinstance(value, list) else [] if value is None else [value]:
            yield lookup.table, {lookup.table.key: key}, {}
    if table is None:
        return
    if plan.list_member and plan.items_are_objects:
        for item in returns.get(plan.list_member) or ():
            equal = {name: value for name, value in arguments.items() if name in table.fields and name not in item}
            others = {name: value for name, value in item.items() if name not in table.fields}
            yield table, {**equal, **_stored(plan, table, item)}, others
    if plan.operation.verb == "get":
        key = arguments.get(plan.key_argument or "")
        yield table, {**({} if key is None else {table.key: key}), **_stored(plan, table, returns)}, {}


def _stored(plan: Plan, table: EntityTable, members: Json) -> Json:
    """Return the members of a result that fields hold, also those that the call shows by an expression."""
    shown = plan.operation.show
    renamed = {str(shown[name]): value for name, value in members.items() if shown.get(name) in table.fields}
    stored = {
        name: value
        for name, value in members.items()
        if name in table.fields and (name not in shown or conforms(table.fields[name], value))
    }
    return {**renamed, **stored}


def _created_key(plan: Plan, table: EntityTable, returns: Json) -> Any:
    """Return the key of the created row, as the result shows it; None if it does not."""
    names = [name for name, expression in plan.shown.items() if expression in (":id", f"new.{table.key}")]
    return next((returns[name] for name in (table.key, *names) if name in returns), None)


def _listed_keys(plans: Mapping[str, ToolkitPlan], pins: Iterable[Pin], table: EntityTable) -> set[str]:
    """Return the keys that results of reading tools show."""
    keys: set[str] = set()
    for pin in pins:
        plan = plan_of_tool(plans, pin.tool)
        if plan is not None and plan.table is table and plan.operation.verb in ("search", "get"):
            rows = _rows_in_result(plan, pin.returns or {}, {})
            keys |= {repr(values.get(table.key)) for _, values, _ in rows}
    return keys


def _plain_arguments(pin: Pin) -> Json:
    """Return the values that the pin requires of arguments, as far as they are plain values."""
    return {} if is_schema(pin.arguments) else pin.arguments


def _value_of(others: Json, name: str, schema: Any) -> Any:
    """Return the value of a field that follows from other members: ``email`` for ``emails``, an excerpt for a text.

    None if it does not.
    """
    single = others.get(name.removesuffix("s"))
    if single is not None and conforms(schema, [single]):
        return [single]
    texts = [text for text in others.values() if isinstance(text, str)]
    is_text = schema.keys() <= {"type", "description"} and not name.endswith(("name", "title"))
    return max(texts, key=len) if texts and is_text and conforms(schema, max(texts, key=len)) else None


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


def shortened_json(value: Any) -> str:
    """Return a value as JSON text of at most 300 characters, for notes."""
    return truncated(dumps(value, ensure_ascii=False), _MAX_SHOWN)
