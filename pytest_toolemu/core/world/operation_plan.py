"""The plan of one tool: its operation with every convention filled in, as SQL statements that are ready to be bound."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pytest_toolemu.core.toolkit import Tool
from pytest_toolemu.core.world.database import quote
from pytest_toolemu.core.world.declarations import Operation, Verb, sql
from pytest_toolemu.core.world.entity_table import EntityTable, Kinds, allows_null, kinds_of, types_of
from pytest_toolemu.formats.json_schema import inlined
from pytest_toolemu.formats.yaml_document import Loc

Json = dict[str, Any]

NO_KEY: Final = "none"
CALL_VALUES: Final = ("now", "today", "user_name", "user_email", "id", "count", "more", "total", "replaced")
"""What SQL can bind besides the arguments.

Time and user, the key of the created row, the number of keys in a list, whether the limit left out rows, the number of
rows without the limit, and whether the created row replaced one.
"""


@dataclass(frozen=True)
class Lookup:
    """A row that an argument names: SQL refers to it by the alias."""

    alias: str
    table: EntityTable
    argument: str
    is_list: bool = False
    """Whether the argument is a list of keys, each of which must exist."""


@dataclass(frozen=True)
class PlannedGuard:
    """A condition, as an SQL expression, under which the call fails."""

    error: str
    message: str
    condition: str
    loc: Loc


@dataclass(frozen=True)
class Plan:
    """The statements of one tool. Locations are relative to the tool's operation."""

    tool: Tool
    operation: Operation
    tables: Mapping[str, EntityTable]
    table: EntityTable | None
    lookups: tuple[Lookup, ...]
    arguments: dict[str, Json] = field(init=False)
    returns: Mapping[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "arguments", dict(inlined(self.tool.parameters).get("properties", {})))
        object.__setattr__(self, "returns", inlined(self.tool.returns).get("properties", {}))
        name, _, count = (self.operation.limit or "").partition(" ")
        if count and name in self.arguments:
            self.arguments[name] = {**self.arguments[name], "default": int(count)}

    # ---- conventions

    def error(self, *names: str, default: str) -> str:
        """Return the first of these errors that the tool declares, else the default."""
        return declared_error(self.tool, *names) or default

    @functools.cached_property
    def verb(self) -> Verb | None:
        """The verb of the operation; None if it consists of SQL only."""
        return self.operation.verb

    @functools.cached_property
    def defaults(self) -> dict[str, Any]:
        """The default of each argument, which is None if it has none."""
        return {
            name: schema.get("default") if isinstance(schema, dict) else None for name, schema in self.arguments.items()
        }

    @functools.cached_property
    def key_argument(self) -> str | None:
        """The argument that holds the key, or the keys, of the row that the call is about."""
        return key_argument(self.operation, self.tool, self.table)

    @functools.cached_property
    def list_member(self) -> str | None:
        """The member of the result that lists rows."""
        if self.operation.list:
            return self.operation.list
        if self.operation.verb != "search":
            return None
        lists = [name for name, schema in self.returns.items() if "array" in types_of(schema)]
        objects = [name for name in lists if "object" in types_of(self.returns[name].get("items", {"type": "object"}))]
        return next(iter(objects or lists), None)

    @functools.cached_property
    def limit(self) -> str | None:
        """The argument that limits the number of listed rows."""
        named = (self.operation.limit or "").partition(" ")[0]
        return named or ("limit" if "limit" in self.arguments else None)

    @functools.cached_property
    def offset(self) -> str | None:
        """The argument with the number of rows to skip."""
        return self.operation.offset or ("offset" if "offset" in self.arguments else None)

    @functools.cached_property
    def item_schema(self) -> Json:
        """The JSON Schema of a listed item."""
        member = self.list_member
        schema = self.returns.get(member, {}).get("items", {}) if member else {}
        return schema if isinstance(schema, dict) else {}

    @functools.cached_property
    def items_are_objects(self) -> bool:
        """Whether listed items are objects; otherwise they are the values of one column."""
        return not isinstance(self.operation.columns, str) and not (types_of(self.item_schema) - {"object"})

    @functools.cached_property
    def columns(self) -> tuple[str, ...]:
        """The fields of listed items that the operation names."""
        columns = self.operation.columns
        return (columns,) if isinstance(columns, str) else columns

    @functools.cached_property
    def item_members(self) -> dict[str, Json]:
        """The members of listed items with their JSON Schemas."""
        if self.table is None or self.list_member is None:
            return {}
        if columns := self.columns:
            named = self.item_schema.get("properties", {})
            return {name: named.get(name, self.table.fields.get(name, {})) for name in columns}
        return self.item_schema.get("properties") or dict(self.table.fields)

    @functools.cached_property
    def item_kinds(self) -> Kinds:
        """The types of the members of listed items."""
        return kinds_of(self.item_members)

    @functools.cached_property
    def return_kinds(self) -> Kinds:
        """The types of the members of the result."""
        return kinds_of(self.returns)

    @functools.cached_property
    def nullable_items(self) -> frozenset[str]:
        """The members of listed items that are null if they have no value."""
        required = self.item_schema.get("required", ())
        return frozenset(name for name, schema in self.item_members.items() if name in required and allows_null(schema))

    @functools.cached_property
    def nullable_members(self) -> frozenset[str]:
        """The members of the result that are null if they have no value."""
        required = self.tool.returns.get("required", ())
        return frozenset(name for name, schema in self.returns.items() if name in required and allows_null(schema))

    @functools.cached_property
    def cleared_by_null(self) -> frozenset[str]:
        """The fields whose value a null argument removes: those of optional arguments that may be null.

        A required argument that may be null is how some schemas write an optional one.
        """
        required = self.tool.parameters.get("required", ())
        names = self.assigned.keys() - self.operation.set.keys() if self.verb == "update" else ()
        return frozenset(name for name in names if name not in required and allows_null(self.arguments[name]))

    @functools.cached_property
    def shown(self) -> dict[str, str]:
        """Expressions of members of the result itself."""
        items = self.item_members
        return {name: sql(value) for name, value in self.operation.show.items() if name not in items}

    @functools.cached_property
    def assigned(self) -> dict[str, str]:
        """The SQL expression of each field that the call sets."""
        if self.table is None or self.operation.verb not in ("create", "update"):
            return {}
        own = {
            name: f":{name}"
            for name in self.arguments
            if name in self.table.fields and not (name == self.key_argument and self.operation.verb == "update")
        }
        if self.operation.verb == "update":
            own = {name: f"coalesce(:{name}, {quote(self.table.name)}.{quote(name)})" for name in own}
        return {**own, **{name: sql(value) for name, value in self.operation.set.items()}}

    @functools.cached_property
    def writes(self) -> bool:
        """Whether a call can change rows."""
        return bool(self.operation.then) or self.verb in ("create", "update", "delete")

    @functools.cached_property
    def may_change(self) -> frozenset[str]:
        """The tables whose rows a call can change, and perhaps others that its statements only read."""
        statements = " ".join(self.operation.then).casefold()
        own = {self.table.name} if self.table is not None and self.verb in ("create", "update", "delete") else set()
        return frozenset(own | {name for name in self.tables if name.casefold() in statements})

    @functools.cached_property
    def tidying(self) -> tuple[str, ...]:
        """The statements that follow those of ``then``, whose results of arithmetic they turn into decimals."""
        tables = (self.tables[name] for name in sorted(self.may_change)) if self.operation.then else ()
        return tuple(table.decimals_sql for table in tables if table.decimals_sql)

    # ---- statements

    def over(self, expressions: Mapping[str, str], *, created: bool = False) -> str:
        """Return a SELECT of expressions over the rows that the call names; ``new`` is the created row."""
        columns = ", ".join(f"({expression}) AS {quote(name)}" for name, expression in expressions.items())
        joins = [
            f"LEFT JOIN {quote(each.table.name)} AS {quote(each.alias)} "
            f"ON {quote(each.alias)}.{quote(each.table.key)} = :{self._key_value(each)}"
            for each in self.lookups
            if not each.is_list
        ]
        if self._names_chosen_row and self.table is not None:
            name = quote(self.table.name)
            joins.append(f"LEFT JOIN {name} ON {name}.{quote(self.table.key)} = :id")
        if created and self.table is not None:
            joins.append(f"LEFT JOIN {quote(self.table.name)} AS new ON new.{quote(self.table.key)} = :id")
        return " ".join([f"SELECT {columns or '1'} FROM (SELECT 1)", *joins])

    def _key_value(self, lookup: Lookup) -> str:
        """Return the value with the key of a found row: of the row that an update may give another key, ``id``."""
        is_own = self.verb == "update" and lookup is self.lookups[0] and lookup.argument == self.key_argument
        return "id" if is_own and "id" not in self.arguments else lookup.argument

    @functools.cached_property
    def guards(self) -> tuple[PlannedGuard, ...]:
        """The conditions of ``fail``, in order."""
        guards: list[PlannedGuard] = []
        for error, conditions in self.operation.fail.items():
            if isinstance(conditions, tuple):
                guards += [
                    PlannedGuard(error, guard.say, guard.when, ("fail", error, index, "when"))
                    for index, guard in enumerate(conditions)
                ]
            else:
                message = self.tool.errors.get(error) or error
                guards.append(PlannedGuard(error, message, sql(conditions), ("fail", error)))
        return tuple(guards)

    @functools.cached_property
    def guard_statement(self) -> str:
        """The SELECT of the index of the first guard that is true; later ones are not evaluated."""
        # One statement, because SQLite needs ten times as long to prepare a statement as to execute it.
        branches = " ".join(f"WHEN ({guard.condition}) THEN {index}" for index, guard in enumerate(self.guards))
        return self.over({"first": f"CASE {branches} END"}) if branches else ""

    @functools.cached_property
    def list_statement(self) -> str:
        """The SELECT of the listed rows, without the limit."""
        if self.table is None:
            return ""
        fields, show = self.table.fields, self.operation.show
        members = {
            name: sql(show[name]) if name in show else quote(name)
            for name in self.item_members
            if name in show or name in fields
        }
        columns = ", ".join(f"({expression}) AS {quote(name)}" for name, expression in members.items()) or "1"
        return f"SELECT {columns} FROM {quote(self.table.name)}{self._conditions()} ORDER BY {self._order()}"

    @functools.cached_property
    def selected_key(self) -> str:
        """The SELECT of the key of the row that the call is about, if no argument holds the key."""
        if self.table is None:
            return ""
        return (
            f"SELECT {quote(self.table.key)} FROM {quote(self.table.name)}{self._conditions()} "
            f"ORDER BY {self._order()} LIMIT 1"
        )

    @functools.cached_property
    def selects_by_condition(self) -> bool:
        """Whether conditions, and no argument with a key, choose the row that the call is about."""
        return self.operation.verb in ("get", "update", "delete") and self.key_argument is None

    @functools.cached_property
    def _names_chosen_row(self) -> bool:
        """Whether SQL refers to the row that conditions choose, like to one that an argument names, by its entity."""
        names = {*self.arguments, *(each.alias for each in self.lookups)}
        return self.selects_by_condition and self.table is not None and names.isdisjoint({"id", self.table.name})

    def _conditions(self) -> str:
        if self.table is None:
            return ""
        where = {name: sql(value) for name, value in self.operation.where.items()}
        not_compared = {*where, self.limit, self.offset, *self.operation.unused}
        is_change = self.operation.verb == "update"
        equal = {
            name: f"{quote(name)} = :{name}"
            for name in self.arguments
            if name in self.table.fields and name not in not_compared and not is_change
        }
        conditions = [
            f"(:{name} IS NULL OR ({condition}))" if name in self.arguments else f"({condition})"
            for name, condition in {**equal, **where}.items()
        ]
        return f" WHERE {' AND '.join(conditions)}" if conditions else ""

    def _order(self) -> str:
        order = self.operation.order or (self.table.entity.order if self.table else "")
        return f"{order}, rowid" if order else "rowid"

    @functools.cached_property
    def assignment(self) -> str:
        """The SELECT of the values of the fields that the call sets."""
        return self.over(self.assigned)

    @functools.cached_property
    def show_statement(self) -> str:
        """The SELECT of the shown members of the result."""
        return self.over(self.shown, created=self.operation.verb == "create")

    def parts(self) -> Iterator[tuple[Loc, str]]:
        """Yield a statement for each part of the operation, with the part that it comes from."""
        verb = self.operation.verb or "then"
        if self.list_member:
            yield (("where",) if self.operation.where else (verb,)), self.list_statement
        if self.selects_by_condition:
            yield (("where",) if self.operation.where else (verb,)), self.selected_key
        for guard in self.guards:
            yield guard.loc, self.over({"fails": guard.condition})
        for name, expression in self.assigned.items():
            yield ("set", name), self.over({name: expression})
        for index, statement in enumerate(self.operation.then):
            yield ("then", index), statement
        for name, expression in self.shown.items():
            yield ("show", name), self.over({name: expression}, created=self.operation.verb == "create")


NOT_FOUND: Final = "NotFound"
CONFLICT: Final = "Conflict"
INVALID_REQUEST: Final = "InvalidRequest"


def declared_error(tool: Tool, *names: str) -> str | None:
    """Return the first of these errors that the tool declares, with or without 'Exception'; None if it has none."""
    declared = {error.removesuffix("Exception"): error for error in tool.errors}
    return next((declared[name] for name in names if name in declared), None)


def key_argument(operation: Operation, tool: Tool, table: EntityTable | None) -> str | None:
    """Return the argument that holds the key of the row that a call is about; None if there is none."""
    if operation.key is not None:
        return None if operation.key == NO_KEY else operation.key
    arguments = tool.parameters.get("properties", {})
    return table.key if table is not None and table.key in arguments else None
