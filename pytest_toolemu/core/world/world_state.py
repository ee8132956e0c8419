"""The rows with which worlds begin, which are checked once, their changes, and the queries of state checks."""

from __future__ import annotations

import functools
import re
import sqlite3
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.world.database import (
    QUERY_FUNCTIONS,
    TEXTS,
    Database,
    broken_rule,
    explained,
    json_text,
    quote,
)
from pytest_toolemu.core.world.entity_table import EntityTable
from pytest_toolemu.core.world.state_changes import Rows, StateChange, apply_changes
from pytest_toolemu.core.world.toolkit_plan import ToolkitPlan, plan_of
from pytest_toolemu.errors import WorldError
from pytest_toolemu.formats.regular_expressions import SlowExpressionError, is_expression, is_linear, occurs

Plans = Mapping[str, ToolkitPlan]
CaseRows = Mapping[str, Mapping[str, Sequence[dict[str, Any]]]]
"""The rows of a case file, by toolkit and entity."""

SharedEntities = Mapping[str, Sequence[tuple[str, str]]]
"""For each toolkit, the other toolkits and the entities that both share."""


class RowError(WorldError):
    """A row cannot be added; ``place`` is its toolkit, its entity, and its index among the rows."""

    def __init__(self, message: str, place: tuple[str, str, int]) -> None:
        super().__init__(message)
        self.place = place


class WorldBeginning:
    """The rows of each toolkit that the case has rows for. Raise WorldError if a row does not fit."""

    def __init__(self, plans: Plans, rows: CaseRows) -> None:
        self.plans = plans
        self.shared = _shared_entities(plans)
        databases = {name: plan.databases.lend({}) for name, plan in plans.items()}
        try:
            for name, plan in plans.items():
                _fill(plan, databases[name], rows.get(name, {}))
            for name in plans:
                self._share(name, databases)
            self.stored = {
                kit: {name: table.stored(databases[kit]) for name, table in plan.tables.items()}
                for kit, plan in plans.items()
            }
        finally:
            for name, plan in plans.items():
                plan.databases.give_back(databases[name])

    def _share(self, source: str, databases: Mapping[str, Database]) -> None:
        for shared in self.shared[source]:
            try:
                copy_shared_rows(self.plans, databases, source, [shared])
            except sqlite3.Error as error:
                kit, name = shared
                message = f"{kit}.{name}: a row of {source}.{name}, which it shares, cannot be added"
                raise WorldError(f"{message}: {broken_rule(error)}") from None

    @functools.cached_property
    def initial(self) -> Rows:
        """The rows of all tables as JSON values, by toolkit and entity."""
        return {
            kit: {name: [*map(table.decoded, self.stored[kit][name])] for name, table in plan.tables.items()}
            for kit, plan in self.plans.items()
        }

    @functools.cached_property
    def keys(self) -> Mapping[str, Mapping[str, str]]:
        """The field that identifies a row, by toolkit and entity."""
        return {kit: {name: table.key for name, table in plan.tables.items()} for kit, plan in self.plans.items()}

    @functools.cached_property
    def database(self) -> StateDatabase:
        """A database for queries of the states of all worlds with this beginning."""
        return StateDatabase(self.plans, self.initial)


_MAX_BEGINNINGS: Final = 16
# Rows are dictionaries, so they are not hashable. They are kept, so that their id stays their own.
_beginnings: Final[dict[tuple[int, ...], tuple[CaseRows, WorldBeginning]]] = {}


def recent_beginning(plans: Plans, rows: CaseRows) -> WorldBeginning:
    """Return the beginning of the worlds with these rows, which must not change; the latest are kept.

    Raise WorldError if a row does not fit.
    """
    identity = (id(rows), *map(id, plans.values()))
    kept = _beginnings.get(identity)
    if kept is None:
        if len(_beginnings) >= _MAX_BEGINNINGS:
            # Only the oldest, because freeing all at once takes milliseconds. A list, because threads may add others.
            oldest, *_ = list(_beginnings)
            _beginnings.pop(oldest, None)
        kept = _beginnings[identity] = rows, WorldBeginning(plans, rows)
    return kept[1]


def copy_shared_rows(
    plans: Plans, databases: Mapping[str, Database], source: str, shared: Sequence[tuple[str, str]]
) -> None:
    """Give other toolkits the rows of the entities that they share with the ``source``, in all fields that both have.

    Raise sqlite3.Error if a row breaks a rule of another toolkit.
    """
    for kit, name in shared:
        origin, target, destination = plans[source].tables[name], plans[kit].tables[name], databases[kit]
        stored = databases[source].execute(f"SELECT * FROM {quote(name)} ORDER BY rowid")
        rows = {row[origin.key]: row for row in stored}
        common = [field for field in origin.fields if field in target.fields and field != origin.key]
        own = {row[target.key] for row in destination.execute(f"SELECT {quote(target.key)} FROM {quote(name)}")}
        for key in own - rows.keys():
            target.delete(destination, key)
        for key, row in rows.items():
            values = {field: row[field] for field in common}
            if key in own:
                target.update(destination, key, values)
            else:
                target.insert(destination, target.complete({target.key: key, **values}))


def _fill(plan: ToolkitPlan, database: Database, rows: Mapping[str, Sequence[dict[str, Any]]]) -> None:
    database.execute("BEGIN")
    for name, entries in rows.items():
        table = plan.tables[name]
        try:
            table.insert_all(database, [table.complete(row) for row in entries])
        except sqlite3.Error as error:
            index = len(table.stored(database))  # those before it were added
            message = (
                f"{plan.name}.{name}: the row {entries[index].get(table.key)!r} cannot be added: {broken_rule(error)}"
            )
            raise RowError(message, (plan.name, name, index)) from None
    database.execute("COMMIT")


def _shared_entities(plans: Plans) -> SharedEntities:
    shared = {kit: {name for name, table in plan.tables.items() if table.entity.shared} for kit, plan in plans.items()}
    return {
        kit: [(other, name) for other in plans if other != kit for name in sorted(shared[kit] & shared[other])]
        for kit in plans
    }


class StateHistory:
    """The rows before the first call and after each call; built from a record, so no call is executed again."""

    def __init__(self, beginning: WorldBeginning, changes: Sequence[tuple[StateChange, ...]]) -> None:
        self._beginning = beginning
        self._changes = changes
        self._rows: dict[int, Rows] = {}
        self._selected: dict[tuple[str, int], list[dict[str, Any]]] = {}
        self._lock = threading.Lock()  # the metrics of one run are judged in several threads

    def select(self, query: str, calls: int | None = None) -> list[dict[str, Any]]:
        """Return the rows that a query finds after this number of calls; after all by default. Raise WorldError."""
        calls = len(self._changes) if calls is None else calls
        with self._lock:
            # The evaluator, a report of violated checks, and lint ask the same.
            if (query, calls) not in self._selected:
                if calls not in self._rows:
                    self._rows = {calls: self._state(calls)}  # only the latest, as most queries are of the end
                self._selected[query, calls] = self._beginning.database.select(query, self._rows[calls])
            return self._selected[query, calls]

    def cause(self, query: str) -> int | None:
        """Return the index of the call since which a query finds rows until the end; None if it always found some."""
        for calls in range(len(self._changes), 0, -1):
            if self._changes[calls - 1] and not self.select(query, calls - 1):
                return calls - 1
        return None

    def _state(self, calls: int) -> Rows:
        changes = (change for step in self._changes[:calls] for change in step)
        return apply_changes(self._beginning.initial, changes, self._beginning.keys)


INITIAL: Final = "initial"
RESERVED: Final = frozenset({INITIAL, "main", "temp"})
"""Names of databases that no toolkit can have."""
MAX_TOOLKITS: Final = 9
"""Number of toolkits whose rows one query can reach; SQLite attaches ten databases, and one has the first rows."""
Place = tuple[str, str]
"""The names of a database and of a table in it."""

_MAX_ROWS: Final = 20
_QUERY: Final = re.compile(r"(?i)\s*(select|with)\b")
_INITIAL_TABLE: Final = re.compile(r"(?i)\binitial\.([A-Za-z][A-Za-z0-9]*)\.([a-z][a-z0-9_]*)")
_REPLACEMENT: Final = "\ufffd"
_NUL: Final = r"\u0000"  # as JSON text has it, unless the backslash is one of the text
_ESCAPE: Final = re.compile(r"\\(?:u0000|.)")
_TEXT: Final = "'(?:[^']|'')*'"
# A field compared with texts: status = 'open', loan.status <> 'open', status NOT IN ('open', 'paid').
_COMPARED: Final = re.compile(
    rf"(?i)\b([a-z]\w*)\s*(?:(?:=|<>|!=|\bis(?:\s+not)?\b)\s*({_TEXT})(?!\s*\|\|)"
    rf"|(?:\bnot\s+)?\bin\s*\(\s*({_TEXT}(?:\s*,\s*{_TEXT})*)\s*\))"
)
_EXPRESSION: Final = re.compile(r"(?i)\bregexp\s+'((?:[^']|'')*)'")


class StateDatabase:
    """The rows of all toolkits as tables named ``Toolkit.entity``, and the first rows as ``initial.Toolkit.entity``.

    A table is created and filled when a query names its entity, as most queries name one of many, and filled again only
    for a query of other rows.
    """

    def __init__(self, plans: Mapping[str, ToolkitPlan], initial: Rows) -> None:
        self._plans = plans
        self._too_slow: list[SlowExpressionError] = []
        self._tables: dict[Place, EntityTable] = {}
        for kit, plan in plans.items():
            for name, table in plan.tables.items():
                self._tables |= {(kit, name): table, (INITIAL, f"{kit}.{name}"): table}
        self._rows: dict[Place, Sequence[Mapping[str, Any]]] = {
            (INITIAL, f"{kit}.{name}"): rows for kit, tables in initial.items() for name, rows in tables.items()
        }
        self._created: set[Place] = set()
        self._written: dict[Place, Sequence[Mapping[str, Any]]] = {}
        self._lock = threading.Lock()
        self._database = database = Database()
        database.close_with(self)
        database.create_function("regexp", 2, _search(self._too_slow), deterministic=True)
        for kit in (*plans, INITIAL):
            database.execute(f"ATTACH ':memory:' AS {quote(kit)}")
        self._names = {f"{kit}.{name}" for kit, plan in plans.items() for name in plan.tables}
        for name in {name for plan in plans.values() for name in plan.tables}:
            of_name = [f"{kit}.{name}" for kit, plan in plans.items() if name in plan.tables]
            if len(of_name) > 1:
                # SQLite would silently choose the first toolkit's table, but prefers a temporary view to all of them.
                missing = quote(f"{name}; write {' or '.join(of_name)}")
                database.execute(f"CREATE TEMP VIEW {quote(name)} AS SELECT * FROM {missing}")
        self._protect()

    def select(self, query: str, rows: Rows) -> list[dict[str, Any]]:
        """Return the first 20 rows of a query of tables ``Toolkit.entity`` that contain these rows.

        Raise SlowExpressionError if a regular expression takes too long, and WorldError if the query fails.
        """
        with self._lock:  # runs of one case, which may be in several threads, share the database
            self._rows |= {(kit, name): entries for kit, tables in rows.items() for name, entries in tables.items()}
            self._too_slow.clear()
            try:
                self._fill_tables(query)
                selected = self._database.rows(_translated(query), most=_MAX_ROWS)
            except (sqlite3.Error, sqlite3.Warning) as error:
                if self._too_slow:
                    raise self._too_slow[0] from None
                raise WorldError(f"the query failed: {error}") from None
        return [{name: _json(row[name]) for name in row.keys() if row[name] is not None} for row in selected]  # noqa: SIM118

    def problem(self, query: str) -> str | None:
        """Return why a query is not valid, with the nearest name that exists; None if it is."""
        if not _QUERY.match(query):
            return "a query begins with SELECT"
        for literal in _EXPRESSION.findall(query):
            pattern = literal.replace("''", "'")
            if not (is_linear(pattern) or is_expression(pattern)):
                return f"SQL: {pattern!r} after REGEXP is not a regular expression; write one in Python's syntax"
        self._create_tables(query)
        try:
            self._database.execute(f"EXPLAIN {_translated(query)}")
        except (sqlite3.Error, sqlite3.Warning) as error:
            fields = {field for table in self._tables.values() for field in table.fields}
            scope = "a query is one SELECT on the tables of the case's toolkits"
            return explained(error, {*self._names, *fields, *QUERY_FUNCTIONS}, scope)
        return self._impossible_value(query)

    def _impossible_value(self, query: str) -> str | None:
        """Return which text of a query its field can never have, according to the schema; None if there is none."""
        tables = [table for table in self._tables.values() if re.search(rf"(?i)\b{table.name}\b", query)]
        for field, *texts in _COMPARED.findall(query):
            choices = [table.fields[field].get("enum", []) for table in tables if field in table.fields]
            if not choices or not all(choices) or re.search(rf"(?i)\bas\s+\W?{field}\b", query):
                continue
            known = {str(value) for values in choices for value in values}
            for text in (literal[1:-1].replace("''", "'") for literal in re.findall(_TEXT, " ".join(texts))):
                if text not in known:
                    listed = ", ".join(map(repr, sorted(known)))
                    return f"SQL: {field} is never {text!r}; its values are {listed}"
        return None

    def _create_tables(self, query: str) -> dict[Place, EntityTable]:
        """Create the tables whose entity occurs in the query, unless they exist, and return all of them."""
        words = query.casefold()
        named = {
            place: table
            for place, table in self._tables.items()
            if table.name.casefold() in words and (place[0] != INITIAL or INITIAL in words)
        }
        if missing := named.keys() - self._created:
            self._database.set_authorizer(None)
            for schema, name in missing:
                columns = ", ".join(map(quote, named[schema, name].fields))
                self._database.execute(f"CREATE TABLE {quote(schema)}.{quote(name)} ({columns})")
            self._created |= missing
            self._protect()
        return named

    def _fill_tables(self, query: str) -> None:
        """Write the rows of the tables whose entity occurs in the query, if they have others."""
        outdated = [
            (place, table, self._rows.get(place, ()))
            for place, table in self._create_tables(query).items()
            if self._written.get(place) != self._rows.get(place, ())
        ]
        if outdated:
            self._database.set_authorizer(None)
            try:
                with self._database:
                    self._database.execute("BEGIN")
                    for place, table, rows in outdated:
                        self._write(place, table, rows)
            finally:
                self._protect()

    def _write(self, place: Place, table: EntityTable, rows: Sequence[Mapping[str, Any]]) -> None:
        schema, name = place
        self._database.execute(f"DELETE FROM {quote(schema)}.{quote(name)}")
        readable = [{field: _without_nul(value) for field, value in row.items()} for row in rows]
        table.insert_all(self._database, readable, schema=schema, name=name)
        self._written[place] = rows

    def _protect(self) -> None:
        self._database.protect({name for _, name in self._tables}, read_only=True)


def query_problems(resolved_case: ResolvedCase, queries: Iterable[str]) -> list[str | None]:
    """Return why each query of a case's state is not valid; None if it is."""
    kits = [kit for kit in resolved_case.toolkits if kit.name in resolved_case.case.world]
    database = StateDatabase({kit.name: plan_of(kit) for kit in kits}, {})
    return [database.problem(query) for query in queries]


def _search(too_slow: list[SlowExpressionError]) -> Callable[[Any, Any], bool | None]:
    """Return the function for ``text REGEXP pattern``, which is NULL for a text that is NULL.

    SQLite would replace the error of a search that takes too long with one of its own, so the list keeps it. SQLite
    also keeps the function, where the garbage collector finds no cycle, so it must not refer to the database.
    """

    def search(pattern: Any, text: Any) -> bool | None:
        try:
            return None if pattern is None or text is None else occurs(str(pattern), str(text))
        except SlowExpressionError as error:
            too_slow.append(error)
            raise

    return search


def _without_nul(value: Any) -> Any:
    """Return the value of a field with another character for NUL, also in the texts of a list or an object.

    SQLite's LIKE, GLOB, and length() end at NUL, so an agent could hide the rest of a text from a check.
    """
    if isinstance(value, str):
        return value.replace("\0", _REPLACEMENT)
    if isinstance(value, list | dict) and _NUL in (text := json_text(value)):
        return _ESCAPE.sub(lambda match: _REPLACEMENT if match[0] == _NUL else match[0], text)
    return value


def _json(value: Any) -> Any:
    """Return a cell as JSON can hold it."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _translated(query: str) -> str:
    """Return the query with ``initial.Toolkit.entity`` as SQLite names it."""
    parts = TEXTS.split(query)  # every second one is a text
    return "".join(
        part if index % 2 else _INITIAL_TABLE.sub(r'initial."\1.\2"', part) for index, part in enumerate(parts)
    )
