"""Executes one call by its plan: rows that must exist, guards, reads and changes, and the result."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable
from typing import Any, Final, NoReturn

from pytest_toolemu.core.world.database import Database, cell
from pytest_toolemu.core.world.entity_table import EntityTable, decode, decode_cell, types_of
from pytest_toolemu.core.world.operation_plan import CONFLICT, INVALID_REQUEST, NOT_FOUND, Plan
from pytest_toolemu.core.world.toolkit_plan import is_constant
from pytest_toolemu.errors import OpenEntityError

Json = dict[str, Any]
NewKey = Callable[[EntityTable], Any]


_OF_KEYS: Final = (NOT_FOUND, INVALID_REQUEST)
_OF_REQUESTS: Final = (INVALID_REQUEST, CONFLICT)
# Limits of the database, which no toolkit can prevent.
_TOO_LARGE: Final = frozenset({"integer overflow", "LIKE or GLOB pattern too complex"})
_LONG: Final = 1000  # characters of arguments that explain why a statement takes too long
_BAD_JSON: Final = re.compile("malformed JSON|(bad )?JSON path")
# An argument as a document or a path of a function that reads JSON, or of an operator.
_READ_AS_JSON: Final = (
    r"(?i:\bjson(?!_array\s*\(|_object|_quote|_valid|_group)\w*\s*\([^()]*(?:\([^()]*\)?[^()]*)?:{0}\b"
    r"|:{0}\s*->|->>?[\s('$.\[|]*:{0}\b)"
)


class CallError(Exception):
    """The call fails with an error that its tool declares."""

    def __init__(self, error: str, message: str) -> None:
        super().__init__(f"{error}: {message}")
        self.error = error
        self.message = message


def execute(plan: Plan, database: Database, arguments: Json, values: Json, new_key: NewKey) -> Json:
    """Return the result of a call within the current transaction. Raise CallError, to be rolled back, if it fails.

    Arguments can lead to a date that does not exist, for which SQLite returns NULL. If the result or a row then lacks a
    value, the call fails too.
    """
    database.impossible_dates.clear()
    content = _executed(plan, database, arguments, values, new_key)
    if not database.impossible_dates:
        return content
    tables = plan.tables.values() if plan.writes else ()
    if not plan.tool.result_schema.conforms(content) or any(
        table.row_rules.violations(table.decoded(row)) for table in tables for row in table.stored(database)
    ):
        error = plan.error(*_OF_REQUESTS, default=CONFLICT)
        raise CallError(error, f"there is no such date or time: {database.impossible_dates[0]}")
    return content


def _executed(plan: Plan, database: Database, arguments: Json, values: Json, new_key: NewKey) -> Json:
    argument_cells = {
        name: cell(default if (value := arguments.get(name)) is None else value)
        for name, default in plan.defaults.items()
    }
    bound = {"id": None, "count": None, "more": None, "total": None, "replaced": 0, **values, **argument_cells}
    key = plan.key_argument
    # A search reads a list of keys at once, in its condition.
    keys = arguments.get(key) if key and plan.verb != "search" else None
    if not isinstance(keys, list):
        return _Execution(plan, database, arguments, bound, new_key).run()
    if not keys:
        raise CallError(plan.error(*_OF_KEYS, default=NOT_FOUND), f"{key} is empty; it must name at least one entry")
    # A list of keys: the same happens to each row, or nothing to any.
    content: Json = {}
    distinct = dict.fromkeys(map(cell, keys))
    if "count" not in argument_cells:
        bound["count"] = len(distinct)
    for value in distinct:
        content = _Execution(plan, database, arguments, {**bound, str(key): value}, new_key).run()
    return content


class _Execution:
    """One call on one row."""

    def __init__(self, plan: Plan, database: Database, arguments: Json, bound: Json, new_key: NewKey) -> None:
        self._plan = plan
        self._database = database
        self._arguments = arguments
        self._bound = bound
        self._new_key = new_key
        self._items: list[Any] | None = None

    def run(self) -> Json:
        plan, verb = self._plan, self._plan.verb
        self._require_rows()
        key = self._bound.get(plan.key_argument or "")
        if plan.selects_by_condition:
            key = self._select_key()
        elif verb in ("get", "update", "delete"):
            self._bind("id", key)
        self._check_guards()
        if plan.list_member:
            self._list()
        # What is shown of a deleted row must be read before it is gone; of all others, after they were changed.
        shown = self._shown() if verb == "delete" else {}
        row: sqlite3.Row | None = plan.table.get(self._database, key) if plan.table and verb == "delete" else None
        if plan.table is not None and verb in ("create", "update", "delete"):
            key = self._change(plan.table, key)
        # After the row's own change, so that the statements see its key and its new values.
        for statement in plan.operation.then:
            self._database.execute(statement, self._bound)
        for statement in plan.tidying:
            self._database.execute(statement)
        if verb != "delete":
            shown = self._shown()
            if plan.table is not None and verb in ("get", "create", "update"):
                row = plan.table.get(self._database, key)
        return self._result(row, shown)

    def _require_rows(self) -> None:
        for lookup in self._plan.lookups:
            value = self._bound[lookup.argument]
            # An optional argument that is absent names no row, so there is nothing that must exist.
            keys = self._arguments.get(lookup.argument) or [] if lookup.is_list else [] if value is None else [value]
            for key in keys:
                if lookup.table.get(self._database, key) is None:
                    entity = lookup.table.name.replace("_", " ")
                    self._fail_unknown(lookup.table, f"there is no {entity} with the {lookup.table.key} {key!r}")

    def _fail_unknown(self, table: EntityTable | None, message: str) -> NoReturn:
        # The rows are only a part of what exists, so an unknown key is not an error: the emulator decides.
        if table is not None and table.entity.open:
            raise OpenEntityError(f"{message} among the rows")
        raise CallError(self._plan.error(*_OF_KEYS, default=NOT_FOUND), message)

    def _select_key(self) -> Any:
        """Return the key of the row that the conditions choose, and bind it."""
        row = self._database.execute(self._plan.selected_key, self._bound).fetchone()
        if row is None:
            self._fail_unknown(self._plan.table, "nothing matches the request")
        self._bind("id", row[0])
        return row[0]

    def _check_guards(self) -> None:
        if not self._plan.guards:
            return
        row = self._database.execute(self._plan.guard_statement, self._bound).fetchone()
        if row is not None and row[0] is not None:
            guard = self._plan.guards[row[0]]
            raise CallError(guard.error, guard.message)

    def _list(self) -> None:
        plan = self._plan
        # All rows, not only those of the page: results also state how many there are, and whether there are more.
        rows = self._database.rows(plan.list_statement, self._bound)
        first = _count(self._bound.get(plan.offset or ""), 0)
        last = first + _count(self._bound.get(plan.limit or ""), len(rows))
        if plan.items_are_objects:
            page = rows[first:last]
            self._items = [decode(dict(row).items(), plan.item_kinds, plan.nullable_items) for row in page]
        else:
            kinds = types_of(plan.item_schema or next(iter(plan.item_members.values()), {}))
            self._items = [decode_cell(row[0], kinds) for row in rows[first:last]]
        self._bind("more", int(len(rows) > last))
        self._bind("total", len(rows))

    def _change(self, table: EntityTable, key: Any) -> Any:
        """Create, update or delete the row; return its key."""
        plan, database, verb = self._plan, self._database, self._plan.verb
        if verb == "delete":
            table.delete(database, key)
            return key
        assigned = database.execute(plan.assignment, self._bound).fetchone() if plan.assigned else None
        values = {name: assigned[name] for name in plan.assigned} if assigned is not None else {}
        if verb == "create":
            # A key that the agent chose is kept, so that a second use of it is the conflict that it would be.
            if values.get(table.key) is None:
                values[table.key] = cell(self._new_key(table))
            self._bind("id", values[table.key])
            if plan.operation.replace:
                self._bind("replaced", table.delete(database, values[table.key]))
            table.insert(database, table.complete({name: value for name, value in values.items() if value is not None}))
            return values[table.key]
        self._bind("id", values.get(table.key, key))
        # An absent argument changes nothing, also if it has a default, which only a created row gets.
        own = plan.assigned.keys() - plan.operation.set.keys()
        values = {
            name: value for name, value in values.items() if name not in own or self._arguments.get(name) is not None
        }
        is_cleared = {name for name in plan.cleared_by_null if name in self._arguments and self._bound[name] is None}
        values.update(dict.fromkeys(is_cleared))
        table.update(database, key, values)
        return values.get(table.key, key)

    def _shown(self) -> Json:
        if not self._plan.shown:
            return {}
        row = self._database.execute(self._plan.show_statement, self._bound).fetchone()
        return {name: row[name] for name in self._plan.shown}

    def _result(self, row: sqlite3.Row | None, shown: Json) -> Json:
        """Return the members of the result: from ``show``, else by convention."""
        plan = self._plan
        fields = set(row.keys()) if row is not None else set()
        content: Json = {}
        for name, schema in plan.returns.items():
            if name in shown:
                value = shown[name]
            elif self._items is not None and name == plan.list_member:
                content[name] = self._items
                continue
            elif self._items is not None and name in ("more", "total"):
                value = self._bound[name]
            elif is_constant(schema):
                value = cell(schema["const"] if "const" in schema else schema["enum"][0])
            elif name in fields and row is not None and row[name] is not None:
                value = row[name]
            elif self._arguments.get(name) is not None:
                value = cell(self._arguments[name])
            else:
                value = 1 if name == "success" else None
            if value is not None or name in plan.nullable_members:
                content[name] = decode_cell(value, plan.return_kinds[name])
        return content

    def _bind(self, name: str, value: Any) -> None:
        """Bind a value of the call, unless an argument has the same name."""
        if name not in self._plan.arguments:
            self._bound[name] = value


def _count(value: Any, absent: int) -> int:
    """Return a limit or an offset as a count: 5.0 is an integer in JSON, and a negative number counts as 0."""
    try:
        return max(0, int(value))
    except (TypeError, ValueError, OverflowError):
        return absent


def error_of_request(plan: Plan, error: sqlite3.Error, arguments: Json) -> str | None:
    """Return what an agent reads about an error that its arguments have caused; None if the declaration is wrong."""
    texts = {name: value for name, value in arguments.items() if isinstance(value, str)}
    kind, _, names = str(error).partition(": ")
    # The table's own rules. A row without a key is no conflict: an agent cannot know what is missing.
    if isinstance(error, sqlite3.IntegrityError) and not kind.startswith("NOT NULL"):
        fields = ", ".join(name.rpartition(".")[2] for name in names.split(", "))
        broken = f"another entry has the same {fields}" if kind.startswith("UNIQUE") else "the values are not possible"
        return f"{plan.error(CONFLICT, INVALID_REQUEST, default=CONFLICT)}: {broken}"
    reason: str | None = None
    if isinstance(error, sqlite3.DataError) or kind in _TOO_LARGE:
        reason = "the request is too large"
    elif kind == "interrupted" and sum(map(len, texts.values())) >= _LONG:
        reason = "the request takes too long"
    elif _BAD_JSON.match(str(error)):
        statements = " ".join(statement for _, statement in plan.parts())
        read = (name for name in texts if re.search(_READ_AS_JSON.format(re.escape(name)), statements))
        reason = next((f"{name} is not possible here" for name in read if not _is_json(texts[name])), None)
    return reason and f"{plan.error(*_OF_REQUESTS, default=CONFLICT)}: {reason}"


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
