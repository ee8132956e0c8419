"""Queries of the rows at the end of a run, next to the rows at its beginning."""

from __future__ import annotations

import re
import sqlite3
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.world.database import TEXTS, Database, explained, quote
from pytest_toolemu.core.world.entity_table import EntityTable
from pytest_toolemu.core.world.sql_functions import QUERY_FUNCTIONS, json_text
from pytest_toolemu.core.world.state_changes import Rows
from pytest_toolemu.core.world.toolkit_plan import ToolkitPlan, plan_of
from pytest_toolemu.errors import WorldError
from pytest_toolemu.formats.regular_expressions import SlowExpressionError, is_expression, is_linear, occurs

INITIAL: Final = "initial"
RESERVED: Final = frozenset({INITIAL, "main", "temp"})
"""Names of databases that no toolkit can have."""
MAX_TOOLKITS: Final = 9
"""Number of toolkits whose rows one query can reach; SQLite attaches ten databases, and one has the first rows."""
_Place = tuple[str, str]
"""The names of a database and of a table in it."""

_MAX_ROWS: Final = 20
_QUERY: Final = re.compile(r"(?i)\s*(select|with)\b")
_INITIAL_TABLE: Final = re.compile(r"(?i)\binitial\.([A-Za-z][A-Za-z0-9]*)\.([a-z][a-z0-9_]*)")
_MISSING: Final = "a table of which toolkit?"
_REPLACEMENT: Final = "\ufffd"
_NUL: Final = r"\u0000"  # as JSON text has it, unless the backslash is one of the text
_ESCAPE: Final = re.compile(r"\\(?:u0000|.)")
_EXPRESSION: Final = re.compile(r"(?i)\bregexp\s+'((?:[^']|'')*)'")


class StateDatabase:
    """The rows of all toolkits as tables named ``Toolkit.entity``, and the first rows as ``initial.Toolkit.entity``.

    A table is created, and filled, when a query names its entity, as most queries name one of many. It is filled again
    only for a query of other rows.
    """

    def __init__(self, plans: Mapping[str, ToolkitPlan], initial: Rows) -> None:
        self._plans = plans
        self._expressions = _Expressions()
        self._tables: dict[_Place, EntityTable] = {}
        for kit, plan in plans.items():
            for name, table in plan.tables.items():
                self._tables |= {(kit, name): table, (INITIAL, f"{kit}.{name}"): table}
        self._rows: dict[_Place, Sequence[Mapping[str, Any]]] = {
            (INITIAL, f"{kit}.{name}"): rows for kit, tables in initial.items() for name, rows in tables.items()
        }
        self._written: dict[_Place, Sequence[Mapping[str, Any]]] = {}
        self._lock = threading.Lock()
        self._database = database = Database()
        database.close_with(self)
        database.create_function("regexp", 2, self._expressions.occurs, deterministic=True)
        for kit in (*plans, INITIAL):
            database.execute(f"ATTACH ':memory:' AS {quote(kit)}")
        self._names = {f"{kit}.{name}" for kit, plan in plans.items() for name in plan.tables}
        self._protect()

    def select(self, query: str, rows: Rows) -> list[dict[str, Any]]:
        """Return the first 20 rows of a query of tables ``Toolkit.entity`` that contain these rows.

        Raise SlowExpressionError if a regular expression takes too long, and WorldError if the query fails.
        """
        with self._lock:  # runs of one case, which may be in several threads, share the database
            self._rows |= {(kit, name): entries for kit, tables in rows.items() for name, entries in tables.items()}
            self._expressions.too_slow = None
            try:
                self._fill_tables(query)
                selected = self._database.execute(_translated(query)).fetchmany(_MAX_ROWS)
            except (sqlite3.Error, sqlite3.Warning) as error:
                if self._expressions.too_slow is not None:
                    raise self._expressions.too_slow from None
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
        try:
            self._fill_tables(query)
            self._database.execute(f"EXPLAIN {_translated(query)}")
        except (sqlite3.Error, sqlite3.Warning) as error:
            return explained(
                error,
                tables=self._names,
                columns={field for table in self._tables.values() for field in table.fields},
                functions=QUERY_FUNCTIONS,
                scope="a query is one SELECT on the tables of the case's toolkits",
            )
        return self._ambiguity(query)

    def _ambiguity(self, query: str) -> str | None:
        """Return why a valid query is ambiguous: it reads a table that several toolkits have, without saying whose.

        SQLite would silently choose the first toolkit's. As it prefers a temporary view to both, the query fails with a
        view of a missing table exactly where the name of the toolkit is missing.
        """
        words = query.casefold()
        for name in dict.fromkeys(name for plan in self._plans.values() for name in plan.tables):
            kits = [kit for kit, plan in self._plans.items() if name in plan.tables]
            if len(kits) == 1 or name.casefold() not in words:
                continue
            self._database.set_authorizer(None)
            try:
                self._database.execute(f"CREATE TEMP VIEW {quote(name)} AS SELECT * FROM {quote(_MISSING)}")
                self._database.execute(f"EXPLAIN {_translated(query)}")
            except sqlite3.Error as error:
                if _MISSING in str(error):
                    first, second = kits[:2]
                    return f"SQL: {len(kits)} toolkits have a table {name!r}; write {first}.{name} or {second}.{name}"
                raise
            finally:
                self._database.execute(f"DROP VIEW temp.{quote(name)}")
                self._protect()
        return None

    def _fill_tables(self, query: str) -> None:
        """Create the tables whose entity occurs in the query, and write their rows if they have others."""
        words = query.casefold()
        outdated = [
            (place, table, self._rows.get(place, ()))
            for place, table in self._tables.items()
            if table.name.casefold() in words
            and (place[0] != INITIAL or INITIAL in words)
            and self._written.get(place) != self._rows.get(place, ())
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

    def _write(self, place: _Place, table: EntityTable, rows: Sequence[Mapping[str, Any]]) -> None:
        schema, name = place
        where = f"{quote(schema)}.{quote(name)}"
        if place in self._written:
            self._database.execute(f"DELETE FROM {where}")
        else:
            self._database.execute(f"CREATE TABLE {where} ({', '.join(map(quote, table.fields))})")
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


class _Expressions:
    """Searches for the regular expressions of queries, and keeps the error of a search that took too long.

    SQLite would replace this error with one of its own. It also keeps the functions that it calls, where the garbage
    collector finds no cycle, so this object must not refer to the database.
    """

    def __init__(self) -> None:
        self.too_slow: SlowExpressionError | None = None

    def occurs(self, pattern: Any, text: Any) -> bool | None:
        """Execute ``text REGEXP pattern``; NULL for a text that is NULL."""
        if pattern is None or text is None:
            return None
        try:
            return occurs(str(pattern), str(text))
        except SlowExpressionError as error:
            self.too_slow = error
            raise


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
