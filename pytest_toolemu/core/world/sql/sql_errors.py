"""Errors of SQLite, explained for the author of the SQL."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable
from typing import Final

from pytest_toolemu.formats.yaml_document import closest

_UNBOUND: Final = re.compile(r"You did not supply a value for binding (?:parameter )?:(\w+)")
# Texts, quoted names, and comments, in which nothing is a parameter or the name of a table.
TEXTS: Final = re.compile(r"""('(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|/\*.*?\*/)""", re.DOTALL)
_OTHER_PARAMETER: Final = re.compile(r"[?@$#]\w*")
_NO_COLUMN: Final = re.compile(r"no such column: (\S+)")
_NO_TABLE: Final = re.compile(r"no such table: (?:initial\.)?(\S+)")
_NO_FUNCTION: Final = re.compile(r"no such function: (\S+)")


def explained(
    error: Exception,
    *,
    tables: Iterable[str],
    columns: Iterable[str],
    functions: Iterable[str],
    scope: str,
    arguments: Iterable[str] = (),
) -> str:
    """Return SQLite's message with the nearest name that exists.

    ``scope`` is a sentence on what the SQL may do; it is added if SQLite refused something else.
    """
    message = str(error)
    if match := _UNBOUND.search(message):
        return f"SQL refers to :{match[1]}, and the tool has no such argument{closest(match[1], arguments)}"
    hint = ""
    if match := _NO_COLUMN.search(message):
        hint = _column_hint(match[1], [*tables], [*columns])
    elif match := _NO_TABLE.search(message):
        hint = closest(match[1], tables)
    elif match := _NO_FUNCTION.search(message):
        hint = closest(match[1], functions)
    elif "not authorized" in message or "prohibited" in message:
        hint = f"; {scope}"
    return f"SQL: {message}{hint}"


def other_parameter(statement: str) -> str | None:
    """Return a parameter that is not written as ``:name``; None if there is none. SQLite would bind it to NULL."""
    if not _OTHER_PARAMETER.search(statement):  # almost always, and much faster
        return None
    match = _OTHER_PARAMETER.search(TEXTS.sub("''", statement))
    return match[0] if match else None


def _column_hint(name: str, tables: list[str], columns: list[str]) -> str:
    row, _, column = name.rpartition(".")
    if row in tables and column in columns:
        return f"; name the row in 'find', or select it from {row} in a subquery"
    if row and column in columns:
        return closest(row, tables)
    return closest(column, columns)


def broken_rule(error: sqlite3.Error) -> str:
    """Return which rule of its entity a row breaks; SQLite's message if it is about something else."""
    kind, _, rest = str(error).partition(" constraint failed: ")
    if kind == "UNIQUE":
        return f"another row has the same {', '.join(name.rpartition('.')[2] for name in rest.split(', '))}"
    return f"it breaks the rule {rest!r}" if kind == "CHECK" else str(error)
