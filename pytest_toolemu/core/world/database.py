"""Databases in memory that execute untrusted SQL: limited in what it may do, in time and in size, and deterministic."""

from __future__ import annotations

import contextlib
import math
import re
import sqlite3
import time
import weakref
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from pytest_toolemu.core.world.sql_functions import FUNCTIONS
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.yaml_document import closest

MIN_VERSION: Final = (3, 38)  # JSON functions are part of every build since then
_MAX_STEPS: Final = 500  # in thousands of instructions of SQLite's virtual machine
_MAX_SECONDS: Final = 10.0  # of one statement, whose steps may each work on long texts
_MAX_LENGTH: Final = 4_000_000  # of a text, in bytes
_MAX_SHOWN: Final = 100  # characters of an impossible date

_ALLOWED: Final = frozenset(
    {
        sqlite3.SQLITE_SELECT,
        sqlite3.SQLITE_READ,
        sqlite3.SQLITE_FUNCTION,
        sqlite3.SQLITE_RECURSIVE,
        sqlite3.SQLITE_TRANSACTION,
    }
)
_WRITES: Final = frozenset({sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE})
# Functions that reach outside, that give another result each time, or that fill memory.
_DENIED: Final = frozenset(
    {"load_extension", "readfile", "writefile", "edit", "fts3_tokenizer", "random", "randomblob", "zeroblob"}
    | {"printf", "format", "changes", "total_changes", "last_insert_rowid", "sqlite_version", "sqlite_source_id"}
    | {"sqlite_compileoption_get", "sqlite_compileoption_used"}
    | {"current_time", "current_date", "current_timestamp"}
)
# Tables that SQLite itself may have. A query could count their rows; columns of unknown tables cannot be read anyway.
_OWN_NAMES: Final = re.compile(r"(?i)sqlite_|pragma_|fts|rtree|(dbstat|bytecode|tables_used|completion|fsdir)$")
_TABLES_OF_SQLITE: Final = frozenset({"json_each", "json_tree"})


_CLOCKS: Final = ("date", "time", "datetime", "julianday", "unixepoch", "strftime")


class Database(sqlite3.Connection):
    """A database in memory. Every statement has a limited number of steps, after which it fails."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__(":memory:", isolation_level=None, check_same_thread=False, cached_statements=256)
        self._steps = 0
        self._deadline = math.inf
        self._is_in_function = False
        self.impossible_dates: list[str] = []
        self._knows_own_tables = False
        # What the functions of ``add_function`` return at present, by their names
        self.functions: dict[str, Callable[[Any], Any]] = {}
        self.row_factory = sqlite3.Row
        for name, (arity, function) in FUNCTIONS.items():
            self.create_function(name, arity, function, deterministic=True)
        for name in _CLOCKS:
            self.create_function(name, -1, _clock(name, self.impossible_dates), deterministic=True)
        # Also while tables are created: their conditions and orders are untrusted SQL.
        self.set_authorizer(_authorize_creation)
        self.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_LENGTH)
        self.set_progress_handler(self._step, 1000)

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        """Execute one statement."""
        self._begin_steps()
        return super().execute(*arguments)

    def executemany(self, *arguments: Any) -> sqlite3.Cursor:
        """Execute one statement for each of several bindings, which share its number of steps."""
        self._begin_steps()
        return super().executemany(*arguments)

    def prepare(self, statement: str) -> None:
        """Prepare a statement without executing it, so that its first execution is as fast as later ones."""
        with contextlib.suppress(sqlite3.ProgrammingError):  # says that a SELECT has no use for several bindings
            super().executemany(statement, ())

    def close_with(self, owner: object) -> None:
        """Close the database as soon as its owner is freed.

        Python's cache of prepared statements refers to the database, which would wait for the garbage collector with
        memory that the collector does not count.
        """
        weakref.finalize(owner, self.close).atexit = False

    def _begin_steps(self) -> None:
        if not self._is_in_function:
            self._steps, self._deadline = 0, time.monotonic() + _MAX_SECONDS

    def add_function(self, name: str) -> None:
        """Add a function of one argument, which ``functions`` defines.

        Statements that it executes are work of the statement that calls it. Another definition leaves prepared
        statements as they are, which another function would not.
        """
        # SQLite keeps the function, where the garbage collector finds no cycle.
        database: Any = weakref.proxy(self)

        def called(argument: Any) -> Any:
            database._is_in_function = True
            try:
                return database.functions[name](argument)
            finally:
                database._is_in_function = False

        self.create_function(name, 1, called)

    def protect(self, tables: Collection[str], *, read_only: bool = False) -> None:
        """Allow nothing but reading and writing these tables from now on."""
        writable = frozenset() if read_only else _WRITES

        def authorize(action: int, first: str | None, second: str | None, _database: object, _trigger: object) -> int:
            if action == sqlite3.SQLITE_FUNCTION:
                is_allowed = second not in _DENIED
            elif action == sqlite3.SQLITE_READ:
                # Without a column, SQLite does not tell a common table expression from a table.
                is_expression = not second and not _OWN_NAMES.match(first or "")
                is_allowed = first in tables or first in _TABLES_OF_SQLITE or is_expression
            elif action in writable:
                is_allowed = first in tables
            else:
                is_allowed = action in _ALLOWED
            return sqlite3.SQLITE_OK if is_allowed else sqlite3.SQLITE_DENY

        # SQLite declares the columns of its own tables on first use, which the authorizer would forbid.
        if not self._knows_own_tables:
            for table in _TABLES_OF_SQLITE:
                self.execute(f"SELECT 1 FROM {table}('[]')")
            self._knows_own_tables = True
        self.set_authorizer(authorize)

    def _step(self) -> bool:
        self._steps += 1
        return self._steps > _MAX_STEPS or time.monotonic() > self._deadline


def _authorize_creation(
    action: int, _first: str | None, second: str | None, _database: object, _trigger: object
) -> int:
    is_denied = action == sqlite3.SQLITE_FUNCTION and second in _DENIED
    return sqlite3.SQLITE_DENY if is_denied else sqlite3.SQLITE_OK


def require_sqlite() -> None:
    """Raise UsageError if the SQLite of this Python is too old to execute declared operations."""
    if sqlite3.sqlite_version_info < MIN_VERSION:
        needed = ".".join(map(str, MIN_VERSION))
        raise UsageError(
            f"Python was built with SQLite {sqlite3.sqlite_version}, and toolkits with entities need {needed} or "
            "newer; use a newer build of Python"
        )


def quote(name: str) -> str:
    """Return an identifier in quotes."""
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


_calendar: Final = sqlite3.connect(":memory:", check_same_thread=False)


def _clock(name: str, impossible: list[str]) -> Callable[..., Any]:
    """Return SQLite's function of date and time, but with NULL for the time of the machine, which differs per run.

    Arguments without a NULL for which it returns NULL, such as a date in the year 20000, are added to ``impossible``.
    """
    least = 2 if name == "strftime" else 1

    def clock(*arguments: Any) -> Any:
        if len(arguments) < least or any(str(value).strip().casefold() == "now" for value in arguments):
            return None
        marks = ", ".join("?" * len(arguments))
        result = _calendar.execute(f"SELECT {name}({marks})", arguments).fetchone()[0]
        if result is None and None not in arguments and not impossible:
            impossible.append(", ".join(map(str, arguments))[:_MAX_SHOWN])
        return result

    return clock


_UNBOUND: Final = re.compile(r"You did not supply a value for binding (?:parameter )?:(\w+)")
# Texts, quoted names, and comments, in which nothing is a parameter or the name of a table.
TEXTS: Final = re.compile(r"""('(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|/\*.*?\*/)""", re.DOTALL)
_OTHER_PARAMETER: Final = re.compile(r"[?@$#]\w*")
_UNKNOWN: Final = re.compile(r"no such (column|table|function): (?:initial\.)?(\S+)")


def explained(
    error: Exception,
    *,
    tables: Collection[str],
    columns: Collection[str],
    functions: Collection[str],
    scope: str,
    arguments: Iterable[str] = (),
) -> str:
    """Return SQLite's message with the nearest name that exists.

    ``scope`` is a sentence on what the SQL may do; it is added if SQLite refused something else.
    """
    message = str(error)
    if match := _UNBOUND.search(message):
        return f"SQL refers to :{match[1]}, and the tool has no such argument{closest(match[1], arguments)}"
    hint = f"; {scope}" if "not authorized" in message or "prohibited" in message else ""
    if match := _UNKNOWN.search(message):
        kind, name = match.groups()
        row, _, column = name.rpartition(".")
        if kind != "column":
            hint = closest(name, tables if kind == "table" else functions)
        elif row in tables and column in columns:
            hint = f"; name the row in 'find', or select it from {row} in a subquery"
        else:
            hint = closest(row, tables) if row and column in columns else closest(column, columns)
    return f"SQL: {message}{hint}"


def other_parameter(statement: str) -> str | None:
    """Return a parameter that is not written as ``:name``; None if there is none. SQLite would bind it to NULL."""
    if not _OTHER_PARAMETER.search(statement):  # almost always, and much faster
        return None
    match = _OTHER_PARAMETER.search(TEXTS.sub("''", statement))
    return match[0] if match else None


def broken_rule(error: sqlite3.Error) -> str:
    """Return which rule of its entity a row breaks; SQLite's message if it is about something else."""
    kind, _, rest = str(error).partition(" constraint failed: ")
    if kind == "UNIQUE":
        return f"another row has the same {', '.join(name.rpartition('.')[2] for name in rest.split(', '))}"
    return f"it breaks the rule {rest!r}" if kind == "CHECK" else str(error)
