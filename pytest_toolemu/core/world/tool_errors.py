"""Which of the errors that a tool declares stands for an unknown key, a conflict, or a request that leads nowhere.

Operations need not name these errors: their names, such as ``NotFound``, say what they mean.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pytest_toolemu.core.toolkit import Tool
from pytest_toolemu.core.world.database import Database
from pytest_toolemu.core.world.operation_plan import Plan

_NOT_FOUND: Final = re.compile(r"(?i).*not_?found.*|no_?such.*|unknown.*")

# Limits of the database, which no toolkit can prevent.
_TOO_LARGE: Final = frozenset({"integer overflow", "LIKE or GLOB pattern too complex"})
# An argument as the document of a function that reads JSON, or of an operator.
_READ_AS_JSON: Final = (
    r"(?i:\bjson(?!_array\s*\(|_object|_quote|_valid|_group)\w*\s*\(\s*(?:(?:coalesce|ifnull|nullif)\s*\(\s*)?):{0}\b"
    r"|:{0}\s*->"
)
_BAD_PATH: Final = re.compile(r"JSON path error|bad JSON path")


def not_found_error(tool: Tool) -> str | None:
    """Return the error of a tool for an unknown key; None if it declares none."""
    return next((name for name in tool.errors if _NOT_FOUND.fullmatch(name)), None) or _request_error(tool)


def conflict_error(tool: Tool) -> str:
    """Return the error of a tool for a row that would break a rule of its table."""
    words = ("conflict", "exists", "duplicate")
    return next((name for name in tool.errors if any(word in name.casefold() for word in words)), None) or (
        _request_error(tool) or "Conflict"
    )


def request_error(tool: Tool) -> str:
    """Return the error of a tool for arguments that lead to no result."""
    return _request_error(tool) or conflict_error(tool)


def error_of_request(plan: Plan, error: sqlite3.Error, arguments: Mapping[str, Any]) -> str | None:
    """Return what an agent reads about an error that its arguments have caused; None if the declaration is wrong."""
    tool = plan.tool
    kind, _, names = str(error).partition(": ")
    # The table's own rules. A row without a key is no conflict: an agent cannot know what is missing.
    if isinstance(error, sqlite3.IntegrityError) and not kind.startswith("NOT NULL"):
        fields = ", ".join(name.rpartition(".")[2] for name in names.split(", "))
        is_repeated = kind.startswith("UNIQUE")
        return f"{conflict_error(tool)}: " + (
            f"another entry has the same {fields}" if is_repeated else "the values are not possible"
        )
    if isinstance(error, sqlite3.DataError) or kind in _TOO_LARGE:
        return f"{request_error(tool)}: the request is too large"
    paths = (value for value in arguments.values() if isinstance(value, str) and value.startswith("$"))
    if _BAD_PATH.match(kind) and (path := next(paths, None)) is not None:
        return f"{request_error(tool)}: {path!r} is not possible"
    if kind == "malformed JSON" and (name := next(_malformed_arguments(plan, arguments), None)) is not None:
        return f"{request_error(tool)}: {name} is not JSON"
    return None


def _malformed_arguments(plan: Plan, arguments: Mapping[str, Any]) -> Iterator[str]:
    """Yield the arguments with texts that the operation reads as JSON and that are none."""
    statements = " ".join(statement for _, statement in plan.parts())
    for name, value in arguments.items():
        # Most texts are no JSON, so one of them explains the error only if it is what SQLite reads.
        if isinstance(value, str) and re.search(_READ_AS_JSON.format(re.escape(name)), statements):
            with contextlib.closing(Database()) as database:
                try:
                    database.execute("SELECT json(?)", (value,))
                except sqlite3.Error:
                    yield name


def _request_error(tool: Tool) -> str | None:
    return next((name for name in tool.errors if name.casefold().startswith("invalid")), None)
