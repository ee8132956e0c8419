"""The table of an entity: its columns with their JSON Schemas, and rows as JSON values."""

from __future__ import annotations

import functools
import json
import math
import re
import sqlite3
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pytest_toolemu.core.toolkit import Tool, Toolkit
from pytest_toolemu.core.world.database import Database, cell, decimal, quote
from pytest_toolemu.core.world.declarations import Entity
from pytest_toolemu.core.world.state_changes import StateEdit
from pytest_toolemu.formats.json_schema import ValueSchema, inlined
from pytest_toolemu.formats.yaml_document import KEY, Loc, closest

Json = dict[str, Any]

_PORTION: Final = 100
_INTEGER: Final = re.compile(r"-?[0-9]{1,18}")
_DECIMAL: Final = re.compile(r"-?[0-9]{1,15}\.[0-9]{1,15}")
_STRUCTURED: Final = frozenset({"array", "object"})

Kinds = Mapping[str, frozenset[str]]
"""The types that the schema of each value names."""

StoredRow = tuple[Any, ...]
"""The cells of a row, one for each field of its entity, in the same order."""


@dataclass(frozen=True)
class EntityTable:
    """An entity of one toolkit, with the fields that it takes from the results of tools."""

    name: str
    entity: Entity
    fields: Mapping[str, Json]
    required: frozenset[str]
    """Fields that every row has: those that are required where the fields come from, and the key."""

    @property
    def key(self) -> str:
        """The field that identifies a row."""
        return self.entity.key

    @functools.cached_property
    def kinds(self) -> Kinds:
        """The types of each field."""
        return kinds_of(self.fields)

    @functools.cached_property
    def nullable(self) -> frozenset[str]:
        """The fields that every row has, if only with the value null."""
        return frozenset(name for name in self.required if allows_null(self.fields.get(name)))

    @functools.cached_property
    def counts_keys(self) -> bool:
        """Whether keys are numbers, of which a new row gets the next one."""
        return not self.kinds[self.key].isdisjoint(("integer", "number")) and "string" not in self.kinds[self.key]

    def create_sql(self) -> str:
        """Return the statement that creates the table."""
        parts = [quote(field) + (" PRIMARY KEY NOT NULL" if field == self.key else "") for field in self.fields]
        for fields in self.entity.unique:
            names = [fields] if isinstance(fields, str) else fields
            parts.append(f"UNIQUE ({', '.join(map(quote, names))})")
        parts += [f"CHECK ({condition})" for condition in self.entity.check]
        # JSON has no infinity, in which large numbers of an agent can result.
        parts += [f"CHECK ({number} NOT IN (9e999, -9e999))" for number in self._numbers]
        return f"CREATE TABLE {quote(self.name)} ({', '.join(parts)})"

    @functools.cached_property
    def _numbers(self) -> list[str]:
        """The names of fields with numbers, as SQL."""
        return [quote(field) for field, kinds in self.kinds.items() if kinds & {"number", "integer"}]

    @functools.cached_property
    def decimals_sql(self) -> str:
        """The statement that removes from numbers what only binary arithmetic leaves; empty without such fields."""
        changed = " OR ".join(f"typeof({name}) = 'real' AND {name} <> decimal({name})" for name in self._numbers)
        assigned = ", ".join(f"{name} = decimal({name})" for name in self._numbers)
        return f"UPDATE {quote(self.name)} SET {assigned} WHERE {changed}" if changed else ""

    def row_schema(self) -> Json:
        """Return the JSON Schema of a row in a case file."""
        required = [name for name in self.fields if name in self.required and "default" not in self.fields[name]]
        return {"type": "object", "properties": dict(self.fields), "required": required, "additionalProperties": False}

    @functools.cached_property
    def row_rules(self) -> ValueSchema:
        """The schema of a row, for checking many rows."""
        return ValueSchema(self.row_schema())

    def complete(self, row: Json) -> Json:
        """Return the row with the defaults of its fields."""
        defaults = {name: schema["default"] for name, schema in self.fields.items() if "default" in schema}
        return {**defaults, **row}

    def insert(self, database: sqlite3.Connection, row: Mapping[str, Any]) -> None:
        """Insert a row of cells or JSON values; an absent field is NULL."""
        self.insert_all(database, [row])

    def insert_all(
        self, database: sqlite3.Connection, rows: Sequence[Mapping[str, Any]], schema: str = "main", name: str = ""
    ) -> None:
        """Insert rows in order; the first that cannot be added ends this. The table may have another name elsewhere."""
        # Always all fields: rows with different fields then share one statement, which SQLite prepares once.
        unknown = {field for row in rows for field in row} - self.fields.keys()
        fields = (*self.fields, *sorted(unknown))
        statement = _insertion(schema, name or self.name, fields)
        # In portions, because the steps of one execution are limited.
        for first in range(0, len(rows), _PORTION):
            portion = rows[first : first + _PORTION]
            database.executemany(statement, [[cell(row.get(field)) for field in fields] for row in portion])

    def replace_all(self, database: sqlite3.Connection, stored: Sequence[StoredRow]) -> None:
        """Make these rows, as ``stored`` returns them, the only ones."""
        database.execute(f"DELETE FROM {quote(self.name)}")
        statement = _insertion("main", self.name, tuple(self.fields))
        for first in range(0, len(stored), _PORTION):
            database.executemany(statement, stored[first : first + _PORTION])

    def stored(self, database: sqlite3.Connection) -> list[StoredRow]:
        """Return all rows as they are stored, in the order of their creation."""
        # As tuples, because the comparison of SQLite's own rows also compares the names of all columns.
        return [*map(tuple, database.execute(f"SELECT * FROM {quote(self.name)} ORDER BY rowid"))]

    def decoded(self, stored: StoredRow) -> Json:
        """Return a stored row as JSON values; a NULL is absent, unless the row must have the field."""
        return decode(zip(self.kinds, stored, strict=True), self.kinds, self.nullable)

    def edit(self, database: sqlite3.Connection, edit: StateEdit) -> list[str]:
        """Carry out a change that a model asks for, or return why it cannot be.

        Raise sqlite3.Error if the row would break a rule of the entity.
        """
        key = self._key_of(database, edit.key)
        old = self.get(database, key)
        if (old is None) != (edit.change == "add"):
            return [f"key: {self.name} {edit.key!r} {'does not exist' if old is None else 'exists already'}"]
        if edit.change == "remove":
            self.delete(database, key)
            return []
        if edit.values.get(self.key) not in (None, key, edit.key):
            reason = "the key of a row cannot change; remove the row, and add another"
            return [f"values: {self.key} differs from the key {edit.key!r}; {reason}"]
        values = {field: value for field, value in edit.values.items() if field != self.key}
        row = {**(self.decoded(tuple(old)) if old is not None else {}), **values, self.key: key}
        row = self.complete(row)
        if problems := self.row_rules.violations(row):
            return [f"values: {problem}" for problem in problems]
        if old is None:
            self.insert(database, row)
        else:
            self.update(database, key, values)
        return []

    def _key_of(self, database: sqlite3.Connection, text: str) -> str | int | float:
        """Return a key that a model gives as text, as rows have it."""
        kinds = self.kinds[self.key]
        number: str | int | float = text
        if kinds & {"integer", "number"} and _INTEGER.fullmatch(text):
            number = int(text)
        elif "number" in kinds and _DECIMAL.fullmatch(text):
            number = float(text)
        # If keys may be texts too, the number is meant only if a row has it.
        return number if self.counts_keys or self.get(database, number) is not None else text

    def update(self, database: sqlite3.Connection, key: Any, values: Mapping[str, Any]) -> None:
        """Set fields of the row with this key to cells or JSON values."""
        if values:
            assignments = ", ".join(f"{quote(field)} = ?" for field in values)
            statement = f"UPDATE {quote(self.name)} SET {assignments} WHERE {quote(self.key)} = ?"
            database.execute(statement, (*map(cell, values.values()), key))

    def delete(self, database: sqlite3.Connection, key: Any) -> int:
        """Remove the row with this key, and return the number of removed rows."""
        return database.execute(f"DELETE FROM {quote(self.name)} WHERE {quote(self.key)} = ?", (key,)).rowcount

    def get(self, database: sqlite3.Connection, key: Any) -> sqlite3.Row | None:
        """Return the row with this key."""
        row: sqlite3.Row | None = database.execute(
            f"SELECT * FROM {quote(self.name)} WHERE {quote(self.key)} = ?", (cell(key),)
        ).fetchone()
        return row


def entity_tables(toolkit: Toolkit) -> tuple[dict[str, EntityTable], list[tuple[Loc, str]]]:
    """Return the tables of a toolkit's entities, and the problems of their declarations with their locations."""
    tables: dict[str, EntityTable] = {}
    problems: list[tuple[Loc, str]] = []
    for name, entity in toolkit.entities.items():
        loc: Loc = ("entities", name)
        fields, required, own = _fields(toolkit, entity, loc)
        tables[name] = EntityTable(name, entity, fields, frozenset({*required, *entity.required, entity.key}))
        problems += own or list(_name_problems(entity, fields, loc, toolkit))
    return tables, problems


def kinds_of(schemas: Mapping[str, Any]) -> Kinds:
    """Return the types that each schema names."""
    return {name: types_of(schema) for name, schema in schemas.items()}


def decode(cells: Iterable[tuple[str, Any]], kinds: Kinds, nullable: Collection[str]) -> Json:
    """Return a row of the database as JSON values of these types; a NULL is absent, except in ``nullable`` columns."""
    return {
        name: decode_cell(value, kinds.get(name, frozenset()))
        for name, value in cells
        if value is not None or name in nullable
    }


def decode_cell(value: Any, kinds: frozenset[str]) -> Any:
    """Return a cell as a JSON value of one of these types. Raise sqlite3.DataError for an infinite number."""
    if isinstance(value, str):
        is_text = kinds.isdisjoint(_STRUCTURED) or ("string" in kinds and value[:1] not in ("[", "{"))
        return value if is_text else _parsed(value)
    if "boolean" in kinds and value in (0, 1):
        return bool(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise sqlite3.DataError("the number is infinite")
        rounded = decimal(value)
        return int(rounded) if rounded.is_integer() and "number" not in kinds and "integer" in kinds else rounded
    return value


def types_of(schema: Any) -> frozenset[str]:
    """Return the types that a schema names, also in its branches."""
    if not isinstance(schema, dict):
        return frozenset()
    named = schema.get("type", ())
    branches: Iterable[Any] = [part for word in ("anyOf", "oneOf", "allOf") for part in schema.get(word, ())]
    own = {named} if isinstance(named, str) else set(named)
    return frozenset(own.union(*map(types_of, branches)))


def allows_null(schema: Any) -> bool:
    """Return whether a schema allows null beside other values."""
    return isinstance(schema, dict) and ("null" in types_of(schema) or None in schema.get("enum", ()))


@functools.lru_cache(maxsize=4096)
def _insertion(schema: str, table: str, fields: tuple[str, ...]) -> str:
    columns, marks = ", ".join(map(quote, fields)), ", ".join("?" * len(fields))
    return f"INSERT INTO {quote(schema)}.{quote(table)} ({columns}) VALUES ({marks})"


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _fields(toolkit: Toolkit, entity: Entity, loc: Loc) -> tuple[dict[str, Json], set[str], list[tuple[Loc, str]]]:
    """Return the fields, the required ones among them, and the problems of 'like' and 'without'."""
    fields: dict[str, Json] = {}
    required: set[str] = set()
    problems: list[tuple[Loc, str]] = []
    sources = (entity.like,) if isinstance(entity.like, str) else entity.like
    tools = {tool.name: tool for tool in toolkit.tools}
    for source in sources:
        name, *members = source.split(".")
        if name not in tools:
            problems.append(((*loc, "like"), f"the toolkit has no tool {name!r}{closest(name, tools)}"))
            continue
        part = _member_schema(tools[name], members)
        if part is None or not part.get("properties"):
            problems.append(((*loc, "like"), f"{source!r} has no fields; name a tool, or a member of its 'returns'"))
            continue
        fields = {**part["properties"], **fields}
        required |= set(part.get("required", ()))
    for name in entity.without:
        if name not in fields:
            problems.append(((*loc, "without"), f"'like' gives no field {name!r}{closest(name, fields)}"))
    fields = {name: schema for name, schema in fields.items() if name not in entity.without}
    fields.update(entity.fields)
    return fields, required & fields.keys(), problems


def _member_schema(tool: Tool, members: list[str]) -> Json | None:
    """Return the schema of the objects at a member of a tool's result; None if there is no such member."""
    part: Any = inlined(tool.returns)
    for member in members:
        part = part.get("properties", {}).get(member)
        if not isinstance(part, dict):
            return None
        part = part.get("items", part)
    return part if isinstance(part, dict) else None


def _name_problems(entity: Entity, fields: Mapping[str, Json], loc: Loc, toolkit: Toolkit) -> Iterator[tuple[Loc, str]]:
    named: dict[Loc, str] = {("key",): entity.key}
    named |= {("required", index): name for index, name in enumerate(entity.required)}
    named |= {("refs", name, KEY): name for name in entity.refs}
    for index, unique in enumerate(entity.unique):
        named |= {("unique", index, name): name for name in ([unique] if isinstance(unique, str) else unique)}
    for place, name in named.items():
        if name not in fields:
            yield (*loc, *place), f"the entity has no field {name!r}{closest(name, fields)}"
    for name, target in entity.refs.items():
        if target not in toolkit.entities:
            hint = closest(target, toolkit.entities)
            yield (*loc, "refs", name), f"the toolkit has no entity {target!r}{hint}"


_MAX_IDLE: Final = 2  # as each keeps prepared statements of about 0.3 MB
_FUNCTIONS: Final = ("new_id", "code")


class ToolkitDatabases:
    """Lends databases that execute nothing but what reads and writes the tables."""

    def __init__(self, tables: Mapping[str, EntityTable]) -> None:
        self._tables = tables
        self._idle: list[Database] = []
        weakref.finalize(self, _close_all, self._idle).atexit = False

    def table_problem(self) -> tuple[str, Loc, sqlite3.Error] | None:
        """Create the tables, which all databases copy.

        Return the first entity whose table or order SQLite refuses, with the part of the entity and the reason; None if
        it refuses none.
        """
        for name, table in self._tables.items():
            part: Loc = ()
            try:
                self._template.execute(table.create_sql())
                if table.entity.order:
                    part = ("order",)
                    self._template.execute(f"SELECT 1 FROM {quote(name)} ORDER BY {table.entity.order}")
            except sqlite3.Error as error:
                return name, part, error
        self._protect(self._template)
        return None

    def check(self, statement: str, parameters: Any) -> None:
        """Raise sqlite3.Error if a statement is not valid, or does more than to read and write the tables."""
        self._template.execute(f"EXPLAIN {statement}", parameters)

    def lend(self, rows: Mapping[str, Sequence[StoredRow]]) -> Database:
        """Return a database whose tables contain these rows, as ``EntityTable.stored`` returns them, and no others."""
        try:
            database = self._idle.pop()
        except IndexError:
            database = Database()
            self._template.backup(database)  # in a fifth of the time that the creation of its tables takes
            self._protect(database)
        database.execute("BEGIN")
        for name, table in self._tables.items():
            table.replace_all(database, rows.get(name, ()))
        database.execute("COMMIT")
        return database

    def give_back(self, database: Database) -> None:
        """Take back a database that nobody uses any more."""
        database.functions.clear()
        if database.in_transaction or len(self._idle) >= _MAX_IDLE:
            database.close()
        else:
            self._idle.append(database)

    @functools.cached_property
    def _template(self) -> Database:
        """The database with the empty tables; an imported toolkit needs none."""
        database = Database()
        database.close_with(self)
        return database

    def _protect(self, database: Database) -> None:
        for name in _FUNCTIONS:
            database.add_function(name)
        database.protect(self._tables)


def _close_all(databases: list[Database]) -> None:
    for database in databases:
        database.close()
