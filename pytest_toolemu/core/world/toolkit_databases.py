"""The databases of a toolkit's tables, which worlds use one after the other.

SQLite prepares a statement once for each database, which takes several times as long as to execute it.
"""

from __future__ import annotations

import contextlib
import functools
import re
import sqlite3
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pytest_toolemu.core.world.database import Database, quote
from pytest_toolemu.core.world.entity_table import EntityTable, StoredRow
from pytest_toolemu.formats.yaml_document import Loc

_MAX_IDLE: Final = 2  # as each keeps prepared statements of about 0.3 MB
_FUNCTIONS: Final = ("new_id", "code")
_PARAMETER: Final = re.compile(r":(\w+)")
# Parameters of another form, or the end of a statement, unless they are part of a text.
_UNCERTAIN: Final = re.compile(r"[?@$;]")


class ToolkitDatabases:
    """Lends databases that execute nothing but what reads and writes the tables.

    The first of them knows the statements that ``prepare`` has accepted before it was lent.
    """

    def __init__(self, tables: Mapping[str, EntityTable]) -> None:
        self._tables = tables
        self._idle: list[Database] = []
        weakref.finalize(self, _close_all, self._idle).atexit = False

    def table_problem(self) -> tuple[str, Loc, sqlite3.Error] | None:
        """Create the first database.

        Return the first entity whose table or order SQLite refuses, with the part of the entity and the reason; None if
        it refuses none.
        """
        database = Database()
        for name, table in self._tables.items():
            part: Loc = ()
            try:
                database.execute(table.create_sql())
                if table.entity.order:
                    part = ("order",)
                    database.execute(f"SELECT 1 FROM {quote(name)} ORDER BY {table.entity.order}")
            except sqlite3.Error as error:
                database.close()
                return (name, part, error) if part else (name, *_condition_problem(table, error))
        self._idle.append(self._protected(database))
        return None

    def check(self, statement: str, parameters: Any) -> None:
        """Raise sqlite3.Error if a statement is not valid, or does more than to read and write the tables.

        The first database must have been created, and not be lent.
        """
        self._idle[0].execute(f"EXPLAIN {statement}", parameters)

    def prepare(self, statement: str, parameters: Mapping[str, Any]) -> None:
        """Check a statement, and prepare it for the first world."""
        # To prepare a single statement checks everything but its parameters.
        if _UNCERTAIN.search(statement) or not parameters.keys() >= {*_PARAMETER.findall(statement)}:
            self.check(statement, parameters)
        self._idle[0].prepare(statement)

    def lend(self, rows: Mapping[str, Sequence[StoredRow]]) -> Database:
        """Return a database whose tables contain these rows, as ``EntityTable.stored`` returns them, and no others."""
        database = self._taken(rows)
        if not database.still_contains(rows):
            database.execute("BEGIN")
            for name, table in self._tables.items():
                table.replace_all(database, rows.get(name, ()))
            database.execute("COMMIT")
            database.note_contents(rows)
        return database

    def _taken(self, rows: Mapping[str, Sequence[StoredRow]]) -> Database:
        """Return an idle database, preferably one that contains these rows, or a new one."""
        for database in [database for database in [*self._idle] if database.still_contains(rows)]:
            with contextlib.suppress(ValueError):  # another thread has taken it
                self._idle.remove(database)
                return database
        try:
            return self._idle.pop()
        except IndexError:
            return self._created()

    def give_back(self, database: Database) -> None:
        """Take back a database that nobody uses any more."""
        database.functions.clear()
        if database.in_transaction or len(self._idle) >= _MAX_IDLE:
            database.close()
        else:
            self._idle.append(database)

    @functools.cached_property
    def _empty(self) -> Database:
        """A database with the empty tables, which all but the first copy."""
        database = Database()
        database.close_with(self)
        for table in self._tables.values():
            database.execute(table.create_sql())
        return database

    def _created(self) -> Database:
        database = Database()
        self._empty.backup(database)  # in a fifth of the time that the creation of its tables takes
        return self._protected(database)

    def _protected(self, database: Database) -> Database:
        for name in _FUNCTIONS:
            database.add_function(name)
        database.protect(self._tables)
        return database


def _condition_problem(table: EntityTable, error: sqlite3.Error) -> tuple[Loc, sqlite3.Error]:
    """Return the first condition of an entity that SQLite refuses, with its reason; else the error of the table."""
    columns = ", ".join(map(quote, table.fields))
    for index, condition in enumerate(table.entity.check):
        with contextlib.closing(Database()) as database:
            try:
                # In lines of their own, because a comment ends with its line.
                database.execute(f"CREATE TABLE {quote(table.name)} ({columns}, CHECK (\n{condition}\n))")
            except sqlite3.Error as own:
                return ("check", index), own
    return (), error


def _close_all(databases: list[Database]) -> None:
    for database in databases:
        database.close()
