"""What holds for every declared tool of a toolkit, on generated rows and with generated arguments.

Each property is tried with the rows and arguments of one seed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest

from pytest_toolemu.core.case import User
from pytest_toolemu.core.world.entity_table import EntityTable, types_of
from pytest_toolemu.core.world.operation_plan import Plan
from pytest_toolemu.core.world.toolkit_plan import ToolkitPlan
from pytest_toolemu.core.world.world import World
from pytest_toolemu.core.world.world_state import WorldBeginning
from pytest_toolemu.emulators.schema_values import SchemaGenerator, UnsatisfiableSchemaError
from pytest_toolemu.errors import OpenEntityError, WorldError
from pytest_toolemu.formats.json_schema import conforms, inlined, violations

Json = dict[str, Any]
Tables = Sequence[tuple[list[Json], EntityTable]]
NOW = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)
USER = User(name="Ada Lovelace", email="ada@example.org")


class Material:
    """Rows and arguments for one toolkit, generated from a seed."""

    def __init__(self, kit: ToolkitPlan, seed: int) -> None:
        self.random = Random(seed)
        self._seed = f"{kit.name}:{seed}"
        self._count = 0
        self.keys: dict[str, list[Any]] = {}
        self.rows: dict[str, list[Json]] = {}
        for name, table in kit.tables.items():
            self.keys[name] = [self._key(table, number) for number in range(3)]
        for name, table in kit.tables.items():
            self.rows[name] = [row for key in self.keys[name] if (row := self._row(table, key)) is not None]
        self._make_possible(kit)
        self._beginning = WorldBeginning({kit.name: kit}, {kit.name: self.rows})

    def value(self, schema: Any, *path: str) -> Any:
        self._count += 1
        generator = SchemaGenerator(f"{self._seed}:{self._count}", "en_US", NOW, {})
        return generator.value(inlined(schema), path)

    def arguments(self, tool: Plan) -> Json | None:
        """Return arguments for a call; None if none could be generated. Keys are mostly those of rows."""
        schema = tool.tool.parameters
        required = schema.get("required", ())
        named = {lookup.argument: lookup for lookup in tool.lookups}
        given: Json = {}
        for name, part in tool.arguments.items():
            if name not in required and self.random.random() < 0.5:
                continue
            if name in named and self.random.random() < 0.9:
                keys = self.keys[named[name].table.name]
                is_list = "array" in types_of(part)
                given[name] = (
                    self.random.sample(keys, self.random.randint(1, 2)) if is_list else self.random.choice(keys)
                )
                continue
            try:
                given[name] = self.value(part, tool.tool.name, name)
            except UnsatisfiableSchemaError:
                return None
        return given if conforms(schema, given) else None

    def _key(self, table: EntityTable, number: int) -> Any:
        schema = table.fields[table.key]
        if (target := table.entity.refs.get(table.key)) in self.keys:
            return self.keys[target][number]
        if "enum" in schema:
            return schema["enum"][number % len(schema["enum"])]
        for _ in range(20):
            key = self.value(schema, table.name, table.key)
            if key not in self.keys.get(table.name, ()):
                return key
        return f"{table.name}-{number}"

    def _row(self, table: EntityTable, key: Any) -> Json | None:
        row: Json = {table.key: key}
        for name, schema in table.fields.items():
            if name == table.key or (name not in table.required and self.random.random() < 0.3):
                continue
            target = table.entity.refs.get(name)
            try:
                row[name] = self.random.choice(self.keys[target]) if target else self.value(schema, table.name, name)
            except UnsatisfiableSchemaError:
                return None
            if target and "array" in types_of(schema):
                row[name] = [row[name]]
        return row if conforms(table.row_schema(), row) else None

    def _make_possible(self, kit: ToolkitPlan) -> None:
        """Leave out rows that break a rule of their entity; generated values know nothing of those."""
        database = kit.databases.lend({})
        for name, rows in self.rows.items():
            possible = []
            for row in rows:
                try:
                    kit.tables[name].insert(database, kit.tables[name].complete(row))
                    possible.append(row)
                except sqlite3.IntegrityError:
                    continue
            self.rows[name] = possible

    def world(self) -> World:
        """Return a new world with the generated rows, which calls in other worlds do not change."""
        return World(self._beginning, ids={}, user=USER, now=NOW, seed=self._seed)


def calls(kit: ToolkitPlan, seed: int) -> Iterator[tuple[Plan, World, Json, Json | None]]:
    """Yield each declared tool with a world, arguments, and the result in it; None if the emulator has to answer."""
    material = Material(kit, seed)
    for name, tool in kit.plans.items():
        arguments = material.arguments(tool)
        if arguments is None:
            continue
        world = material.world()
        try:
            yield tool, world, arguments, world.call(f"{kit.name}.{name}", arguments, 0)
        except OpenEntityError:
            yield tool, world, arguments, None
        except WorldError as error:
            pytest.fail(f"{kit.name}.{name} {arguments}: {error}")


def try_calls(kit: ToolkitPlan, seed: int) -> None:
    """Assert what holds after each call, on its result and on the rows."""
    for tool, world, arguments, content in calls(kit, seed):
        where = f"{kit.name} {tool.tool.name} {arguments} {content}"
        changes = world.take_changes()
        if content is None or "error" in content:
            assert changes == (), where
            assert content is None or content["error"].partition(":")[0] in {*tool.tool.errors, "Conflict"}, where
            continue
        tables = [*_tables(world)]
        assert_declared(tool, content, changes, tables, where)
        if tool.table is not None:
            rows = {str(row[tool.table.key]): row for rows, table in tables if table is tool.table for row in rows}
            assert_limited_and_visible(tool, tool.table, arguments, content, rows, where)


def assert_declared(tool: Plan, content: Json, changes: Sequence[object], tables: Tables, where: str) -> None:
    """Assert that a call returns what its tool declares, that reads change nothing, and that all rows stay valid."""
    assert violations(tool.tool.returns, content) == [], where
    if tool.tool.effect == "read" and not tool.operation.then:
        assert changes == (), where
    for rows, table in tables:
        for row in rows:
            assert violations(table.row_schema(), row) == [], f"{where} left {table.name} {row}"


def assert_limited_and_visible(
    tool: Plan, table: EntityTable, arguments: Json, content: Json, rows: Mapping[str, Json], where: str
) -> None:
    """Assert that searches honor limits, and that what is created, changed, or deleted is seen in the rows, by key."""
    verb, key = tool.operation.verb, arguments.get(tool.key_argument or "")
    if verb == "search" and tool.list_member and tool.limit in arguments:
        assert len(content[tool.list_member]) <= arguments[str(tool.limit)], where
    if verb == "delete" and isinstance(key, str):
        assert key not in rows, where
    is_created = verb == "create" and not any("DELETE" in statement for statement in tool.operation.then)
    if is_created and content.get(table.key) is not None and table.key not in tool.operation.show:
        assert str(content[table.key]) in rows, where
    if verb == "update" and isinstance(key, str) and key in rows:
        changed = {
            name: value for name, value in arguments.items() if name in table.fields and name != tool.key_argument
        }
        touched = " ".join(tool.operation.then)
        for name, value in changed.items():
            if name not in tool.operation.set and name not in touched and value is not None:
                assert rows[key].get(name) == value, f"{where}: {name} {rows[key]}"


def try_unknown_keys(kit: ToolkitPlan, seed: int) -> None:
    """Assert that an unknown key is a declared error, or is left to the emulator."""
    material = Material(kit, seed)
    for name, tool in kit.plans.items():
        for lookup in tool.lookups:
            arguments = material.arguments(tool)
            if arguments is None or lookup.argument not in arguments:
                continue
            unknown: Any = "no-such-key"
            arguments[lookup.argument] = [unknown] if "array" in types_of(tool.arguments[lookup.argument]) else unknown
            if not conforms(tool.tool.parameters, arguments):
                continue
            try:
                content = material.world().call(f"{kit.name}.{name}", arguments, 0)
            except OpenEntityError:
                continue
            assert content.get("error", "").partition(":")[0] in tool.tool.errors, f"{name} {arguments}: {content}"


def _tables(world: World) -> Iterator[tuple[list[Json], EntityTable]]:
    for kit, entities in world.rows().items():
        for name, rows in entities.items():
            yield rows, world.plans[kit].tables[name]
