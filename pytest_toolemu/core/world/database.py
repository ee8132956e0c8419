"""Databases in memory that execute untrusted SQL: limited in what it may do, in time and in size, and deterministic."""

from __future__ import annotations

import functools
import itertools
import json
import math
import re
import sqlite3
import time
import unicodedata
import weakref
from collections.abc import Callable, Collection
from typing import Any, Final

from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.yaml_document import closest

MIN_VERSION: Final = (3, 38)  # JSON functions are part of every build since then
_STEP: Final = 1000  # instructions of SQLite's virtual machine between two checks of the limits
_MAX_STEPS: Final = 500_000 // _STEP
_MAX_SECONDS: Final = 10.0  # of one statement, whose steps may each work on long texts
_MAX_LENGTH: Final = 1_000_000  # of a text, in bytes
_MAX_SELECTED: Final = 32_000_000  # characters of all rows that a statement returns
_LIMITS: Final = {
    sqlite3.SQLITE_LIMIT_LENGTH: _MAX_LENGTH,
    # The time of a comparison is the product of the lengths of pattern and text, and nothing interrupts it.
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 500,
    sqlite3.SQLITE_LIMIT_COLUMN: 200,
}
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
        for name, (arity, function) in (FUNCTIONS | _LINEAR).items():
            self.create_function(name, arity, function, deterministic=True)
        for name in _CLOCKS:
            self.create_function(name, -1, _clock(name, self.impossible_dates), deterministic=True)
        # Also while tables are created: their conditions and orders are untrusted SQL.
        self.set_authorizer(_authorize_creation)
        for limit, value in _LIMITS.items():
            self.setlimit(limit, value)
        self.set_progress_handler(self._step, _STEP)

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        """Execute one statement."""
        self._begin_steps()
        return super().execute(*arguments)

    def rows(self, statement: str, parameters: Any = (), most: int | None = None) -> list[sqlite3.Row]:
        """Return the selected rows, or the first ones. Raise sqlite3.DataError if they are too large."""
        rows, size = [], 0
        for row in itertools.islice(self.execute(statement, parameters), most):
            size += sum(len(value) for value in row if isinstance(value, str | bytes))
            if size > _MAX_SELECTED:
                raise sqlite3.DataError("string or blob too big")
            rows.append(row)
        return rows

    def executemany(self, *arguments: Any) -> sqlite3.Cursor:
        """Execute one statement for each of several bindings, which share its number of steps."""
        self._begin_steps()
        return super().executemany(*arguments)

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


_plain: Final = sqlite3.connect(":memory:", check_same_thread=False)


def _clock(name: str, impossible: list[str]) -> Callable[..., Any]:
    """Return SQLite's function of date and time, but with NULL for the time of the machine, which differs per run.

    Arguments without a NULL for which it returns NULL, such as a date in the year 20000, are added to ``impossible``.
    """
    least = 2 if name == "strftime" else 1

    def clock(*arguments: Any) -> Any:
        if len(arguments) < least or any(str(value).strip().casefold() == "now" for value in arguments):
            return None
        marks = ", ".join("?" * len(arguments))
        result = _plain.execute(f"SELECT {name}({marks})", arguments).fetchone()[0]
        if result is None and None not in arguments and not impossible:
            impossible.append(", ".join(map(str, arguments))[:_MAX_SHOWN])
        return result

    return clock


_UNBOUND: Final = re.compile(r"You did not supply a value for binding (?:parameter )?:(\w+)")
# Texts, quoted names, and comments, in which nothing is a parameter or the name of a table.
TEXTS: Final = re.compile(r"""('(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|/\*.*?\*/)""", re.DOTALL)
_UNKNOWN: Final = re.compile(r"no such (?:column|table|function): (?:initial\.)?(\S+)$")


def explained(error: Exception, names: Collection[str], scope: str) -> str:
    """Return SQLite's message with the nearest of the names, or what the SQL may do if SQLite refused something else.

    ``scope`` is a sentence on what it may do.
    """
    message = str(error)
    if match := _UNBOUND.search(message):
        return f"SQL refers to :{match[1]}, and the tool has no such argument{closest(match[1], names)}"
    hint = f"; {scope}" if "not authorized" in message or "prohibited" in message else ""
    if match := _UNKNOWN.search(message):
        hint = closest(match[1], names)
    return f"SQL: {message}{hint}"


def broken_rule(error: sqlite3.Error) -> str:
    """Return which rule of its entity a row breaks; SQLite's message if it is about something else."""
    kind, _, rest = str(error).partition(" constraint failed: ")
    if kind == "UNIQUE":
        return f"another row has the same {', '.join(name.rpartition('.')[2] for name in rest.split(', '))}"
    return f"it breaks the rule {rest!r}" if kind == "CHECK" else str(error)


_MAX_WORDS: Final = 200  # of a query that a text is searched for


# Accents that follow their letters; marks of other scripts, such as Japanese ones, make other letters.
_ACCENTS: Final = re.compile("[\u0300-\u036f]")
# Letters that Unicode does not decompose into a plain letter and an accent.
_PLAIN_LETTERS: Final = str.maketrans(
    {"\u0131": "i", "ł": "l", "ø": "o", "đ": "d", "ð": "d", "ħ": "h", "þ": "th", "æ": "ae", "œ": "oe"}
)


def fold(text: str) -> str:
    """Return the text without case and accents, as most search fields compare it."""
    if text.isascii():
        return text.casefold()
    # Some characters decompose into capital letters, such as the sign of a trademark.
    plain = _ACCENTS.sub("", unicodedata.normalize("NFKD", text.casefold()).casefold()).translate(_PLAIN_LETTERS)
    # Put together again what is no letter with an accent: otherwise half a Korean syllable would be found.
    return unicodedata.normalize("NFC", plain)


def _phrases(query: Any) -> list[list[str]]:
    """Return the words of each item of a query that is a JSON list, and else each word on its own."""
    items = _items(query)
    if len(items) == 1 and items[0] is query:
        items = str(query or "").split()
    phrases: list[list[str]] = []
    room = _MAX_WORDS
    for item in dict.fromkeys(fold(str(item)) for item in items):
        if phrase := item.split()[:room]:
            phrases.append(phrase)
            room -= len(phrase)
    return phrases


def _text(cells: tuple[Any, ...]) -> str:
    return fold(" ".join(str(value) for value in cells if value is not None))


def _has(query: Any = None, *cells: Any) -> int:
    text = _text(cells)
    return int(all(word in text for phrase in _phrases(query) for word in phrase))


def _has_any(query: Any = None, *cells: Any) -> int:
    text, phrases = _text(cells), _phrases(query)
    return int(not phrases or any(all(word in text for word in phrase) for phrase in phrases))


def _items(text: Any) -> list[Any]:
    if not isinstance(text, str) or text[:1] != "[":
        return [] if text is None else [text]
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):  # a text that an agent wrote, such as "[urgent"
        return [text]
    return value if isinstance(value, list) else [value]


def _identity(item: Any) -> Any:
    """Return a value that can be hashed and is equal for equal items."""
    return ("", json.dumps(item, sort_keys=True)) if isinstance(item, list | dict) else item


def _list_add(items: Any, more: Any) -> str:
    united = _items(items)
    known = {*map(_identity, united)}
    for item in _items(more):
        if (identity := _identity(item)) not in known:
            known.add(identity)
            united.append(item)
    return json_text(united)


def _list_remove(items: Any, fewer: Any) -> str:
    gone = {*map(_identity, _items(fewer))}
    return json_text([item for item in _items(items) if _identity(item) not in gone])


FUNCTIONS: Final[dict[str, tuple[int, Callable[..., Any]]]] = {
    "has": (-1, _has),
    "has_any": (-1, _has_any),
    "includes": (2, lambda items, item: int(item in _items(items))),
    "list_add": (2, _list_add),
    "list_remove": (2, _list_remove),
    "fold": (1, lambda text: None if text is None else fold(str(text))),
    "decimal": (1, lambda number: decimal(number) if isinstance(number, float) else number),
}


def _text_of(value: Any) -> str:
    """Return a value as SQLite converts it to text."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if isinstance(value, str) else str(_plain.execute("SELECT CAST(? AS TEXT)", (value,)).fetchone()[0])


def _on_texts(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return an SQL function of texts, which is NULL if an argument is."""
    return lambda *values: None if None in values else function(*map(_text_of, values))


def _trimmed(text: str, characters: str = " ", *, start: bool = True, end: bool = True) -> str:
    is_removed = set(characters).__contains__
    for is_wanted in (start, end):
        text = "".join(itertools.dropwhile(is_removed, text) if is_wanted else text)[::-1]
    return text


# SQLite needs time in proportion to the product of the lengths, in one step that nothing can interrupt.
_LINEAR: Final[dict[str, tuple[int, Callable[..., Any]]]] = {
    "instr": (2, _on_texts(lambda text, part: text.find(part) + 1)),
    "replace": (3, _on_texts(lambda text, old, new: text.replace(old, new) if old else text)),
    "trim": (-1, _on_texts(_trimmed)),
    "ltrim": (-1, _on_texts(functools.partial(_trimmed, end=False))),
    "rtrim": (-1, _on_texts(functools.partial(_trimmed, start=False))),
}
QUERY_FUNCTIONS: Final = tuple(FUNCTIONS)
"""The functions that queries of the state can use in addition to those of SQLite."""
FUNCTION_NAMES: Final = (*QUERY_FUNCTIONS, "code", "new_id")
"""The functions that operations can use in addition to those of SQLite."""


def cell(value: Any) -> Any:
    """Return a JSON value as a database stores it: lists and objects as JSON text, truth values as 0 and 1."""
    if value is None or isinstance(value, str):  # most values
        return value
    if isinstance(value, dict | list):
        return json_text(value)
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float):
        return decimal(value)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return float(value) if abs(value) < 2**1000 else math.inf if value > 0 else -math.inf
    return value


def json_text(value: list[Any] | dict[str, Any]) -> str:
    """Return a list or an object as JSON text."""
    return json.dumps(value, ensure_ascii=False)


_DECIMALS: Final = 6
"""The decimals that remain of a number with many digits, such as 10 / 3."""
_DIGITS: Final = 6
"""The digits that remain of a small number with many digits, of which the decimals could be zeros only."""
_LEAST: Final = 1e-9
"""Smaller numbers with many digits are what a subtraction of equal numbers leaves."""
_SMALL: Final = 1e-3
_LARGE: Final = 1e9
"""Larger numbers with six decimals have more than 15 digits."""


def decimal(number: float) -> float:
    """Return a number without the digits that only binary arithmetic leaves.

    A number with up to 15 digits is exact, and stays as it is: nobody computed it, or nothing was lost.
    """
    if abs(number) < _LARGE and round(number, _DECIMALS) == number:  # most numbers, in a fifth of the time
        return number or 0.0  # no negative zero
    text = f"{number:.15g}"
    if float(text) == number or not math.isfinite(number):
        return number
    if float(short := f"{number:.13g}") == float(text):
        return float(short)
    if abs(number) >= _SMALL:
        return round(number, _DECIMALS)
    return float(f"{number:.{_DIGITS}g}") if abs(number) >= _LEAST else 0.0
