"""Errors of SQLite, explained for the author of the SQL."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable
from typing import Final

from pytest_toolemu.formats.yaml_document import closest

_UNBOUND: Final = re.compile(r"You did not supply a value for binding (?:parameter )?:(\w+)")
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
        hint = closest(match[1].rpartition(".")[2], columns)
    elif match := _NO_TABLE.search(message):
        hint = closest(match[1], tables)
    elif match := _NO_FUNCTION.search(message):
        hint = closest(match[1], functions)
    elif "not authorized" in message or "prohibited" in message:
        hint = f"; {scope}"
    return f"SQL: {message}{hint}"


def broken_rule(error: sqlite3.Error) -> str:
    """Return which rule of its entity a row breaks; SQLite's message if it is about something else."""
    kind, _, rest = str(error).partition(" constraint failed: ")
    if kind == "UNIQUE":
        return f"another row has the same {', '.join(name.rpartition('.')[2] for name in rest.split(', '))}"
    return f"it breaks the rule {rest!r}" if kind == "CHECK" else str(error)
