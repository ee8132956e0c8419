"""YAML text to plain values, with a position for every complaint.

Built on libyaml's event stream instead of PyYAML's loaders, because files come from anywhere: the loaders keep the last
of two duplicate keys, read ``no`` as false and ``1:30`` as 90, expand alias bombs, and overflow the C stack on deep
nesting. Here a plain scalar that YAML 1.1 and 1.2 read differently is an error, as are aliases, tags and duplicates.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from pytest_toolemu.errors import DocumentError
from pytest_toolemu.formats.regular_files import read_regular
from pytest_toolemu.formats.validation_messages import KEY, Loc, closest, explain, place, show, syntax_problem

__all__ = ["KEY", "Document", "Loc", "Record", "closest", "dump", "place", "read_text", "show", "too_deep"]

M = TypeVar("M", bound=BaseModel)

MAX_BYTES: Final = 1_000_000
MAX_DEPTH: Final = 60

_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
# What YAML 1.1 readers take for booleans, octal, hexadecimal, binary, grouped or base-60 numbers, dates or specials.
_AMBIGUOUS = re.compile(
    r"(?i:yes|no|on|off|=|<<"
    r"|[-+]?0[0-7_]+|[-+]?0[xob][0-9a-f_]+|[-+]?[0-9][0-9]*_[0-9_]*(\.[0-9_]*)?"
    r"|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?"
    r"|\d{4}-\d{2}-\d{2}|\d{4}-\d{1,2}-\d{1,2}([Tt]|[ \t]+)\d.*"
    r"|[-+]?\.(inf|nan)|[-+]?0[0-9]+(\.[0-9]*)?)"
)
_WORDS: Final = {"true": True, "false": False, "null": None, "~": None, "": None}


class Record(BaseModel):
    """Base of every record: frozen, exact types, no unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def read_text(path: Path) -> str:
    """The text of a YAML file; DocumentError when it is missing, too large or not UTF-8."""
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            message = f"the file has {size:,} bytes; at most {MAX_BYTES:,} are read. Check that it is the file you mean"
            raise DocumentError(path, [(1, 1, message)])
        raw = read_regular(path, MAX_BYTES)
    except OSError as error:
        raise DocumentError(path, [(1, 1, f"cannot be read: {error.strerror}")]) from None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = raw[: error.start]
        line, column = before.count(b"\n") + 1, error.start - (before.rfind(b"\n") + 1) + 1
        message = f"byte 0x{raw[error.start]:02x} is not UTF-8; save the file as UTF-8"
        raise DocumentError(path, [(line, column, message)]) from None


@dataclass(frozen=True)
class Document:
    """A parsed file: its value, and on demand the line and column of any part of it."""

    path: Path
    text: str
    value: Any = field(repr=False)

    @classmethod
    def read(cls, path: Path) -> Document:
        """Read and parse one file; DocumentError names everything that is wrong with its syntax."""
        return cls.parse(read_text(path), path)

    @classmethod
    def parse(cls, text: str, path: Path) -> Document:
        """Parse YAML text; ``path`` is only for messages."""
        return cls(path, text, _Composer(text, path).compose())

    def position(self, loc: Loc) -> tuple[int, int]:
        """Line and column, from 1, of the part at ``loc`` or of its nearest parent that exists."""
        while loc not in self._marks and loc:
            loc = loc[:-1]
        return self._marks.get(loc, (1, 1))

    @functools.cached_property
    def _marks(self) -> dict[Loc, tuple[int, int]]:
        """Found by a second pass, which only a file with problems needs."""
        marks: dict[Loc, tuple[int, int]] = {}
        _Composer(self.text, self.path, marks).compose()
        return marks

    def error(self, problems: Iterable[tuple[Loc, str]]) -> DocumentError:
        """A DocumentError for problems found later, at their positions in this file.

        A place that ends with KEY is the key itself, not its value.
        """
        return DocumentError(self.path, [(*self.position(loc), message) for loc, message in problems])

    def build(self, model: type[M], extra: Mapping[str, Any] | None = None) -> M:
        """The value as a record; every violation is reported at once, with the closest known name for a wrong one."""
        value = self.value
        if not isinstance(value, dict):
            raise self.error([((), f"{show(value)}: expected keys and values at the top level of the file")])
        try:
            return model.model_validate_json(json.dumps({**value, **(extra or {})}), strict=True)
        except ValidationError as error:
            raise self.error(explain(model, value, error.errors(include_url=False))) from None


def too_deep(value: Any, levels: int = 100) -> bool:
    """Whether a JSON value is nested deeper than this; validators and writers give up at some 200 to 1,000 levels."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels <= 0 or any(too_deep(part, levels - 1) for part in parts)


class _Dumper(yaml.SafeDumper):
    """Quotes every text that a reader could take for something else, ours and those of YAML 1.1; no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        """A value that occurs twice is written twice: aliases are not read here."""
        del data
        return True


_Dumper.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789"))


def dump(value: Any) -> str:
    """A JSON value as YAML that this module reads back as the same value; keys keep their order."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


class _Composer:
    """One pass over the events of one document. Recursion is bounded by MAX_DEPTH, unlike PyYAML's composer."""

    def __init__(self, text: str, path: Path, marks: dict[Loc, tuple[int, int]] | None = None) -> None:
        self.path = path
        self.marks = marks
        # PyYAML's wheels have libyaml; without it the pure loader is correct too, but ten times slower.
        loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        self.events: Iterator[Any] = iter(yaml.parse(text, Loader=loader))

    def compose(self) -> Any:
        try:
            self._next(), self._next()  # stream start, document start
            first = self._next()
            if isinstance(first, yaml.StreamEndEvent):
                raise self._error(first, "the file is empty")
            value = self._value(first, ())
            self._next()  # document end
            after = self._next()
        except StopIteration:
            raise DocumentError(self.path, [(1, 1, "the file is empty")]) from None
        except yaml.MarkedYAMLError as error:
            mark: Any = error.problem_mark
            if mark is None:
                mark = error.context_mark
            line, column = (1, 1) if mark is None else (mark.line + 1, mark.column + 1)
            raise DocumentError(self.path, [(line, column, syntax_problem(str(error.problem)))]) from None
        except yaml.YAMLError as error:
            raise DocumentError(self.path, [(1, 1, f"YAML syntax: {error}")]) from None
        if not isinstance(after, yaml.StreamEndEvent):
            raise self._error(after, "a second document starts here; a file holds one")
        return value

    def _next(self) -> Any:
        return next(self.events)

    def _error(self, event: Any, message: str) -> DocumentError:
        return DocumentError(self.path, [(*_start(event), message)])

    def _value(self, event: Any, loc: Loc) -> Any:
        if self.marks is not None:
            self.marks[loc] = _start(event)
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            raise self._error(event, "anchors and aliases (&name, *name) are not read here; write the value out")
        if event.tag is not None:
            raise self._error(event, f"the tag {event.tag!r} is not read here; remove it")
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event)
        if len(loc) >= MAX_DEPTH:
            raise self._error(event, f"nested deeper than {MAX_DEPTH} levels")
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(loc)
        return self._mapping(loc)

    def _sequence(self, loc: Loc) -> list[Any]:
        values: list[Any] = []
        while not isinstance(event := self._next(), yaml.SequenceEndEvent):
            values.append(self._value(event, (*loc, len(values))))
        return values

    def _mapping(self, loc: Loc) -> dict[str, Any]:
        values: dict[str, Any] = {}
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                raise self._error(event, "a key must be plain text")
            key = self._key(event)
            if key in values:
                raise self._error(event, f"the key {key!r} occurs twice in this mapping")
            if self.marks is not None:
                self.marks[(*loc, key, KEY)] = _start(event)
            values[key] = self._value(self._next(), (*loc, key))
        return values

    def _key(self, event: Any) -> str:
        if event.anchor is not None or event.tag is not None:
            raise self._error(event, "a key must be plain text")
        if event.implicit[0] and _AMBIGUOUS.fullmatch(event.value):
            raise self._error(event, _ambiguous(event.value))
        return str(event.value)

    def _scalar(self, event: Any) -> Any:
        text = event.value
        if not event.implicit[0]:  # quoted or block text
            return text
        if text.casefold() in _WORDS:
            return _WORDS[text.casefold()]
        if _INT.fullmatch(text):
            # Beyond 18 digits no consumer agrees on the value, and int() refuses very long ones.
            return int(text) if len(text) < 19 else self._long_number(event)
        if _AMBIGUOUS.fullmatch(text):
            raise self._error(event, _ambiguous(text))
        if _FLOAT.fullmatch(text):
            number = float(text)
            return number if abs(number) != float("inf") else self._long_number(event)
        return text

    def _long_number(self, event: Any) -> Any:
        raise self._error(event, f"the number {show(event.value, 40)} is too large; put it in quotes if it is text")


def _start(event: Any) -> tuple[int, int]:
    return event.start_mark.line + 1, event.start_mark.column + 1


def _ambiguous(text: str) -> str:
    remedy = "put it in quotes if it is text"
    if text.casefold() in {"yes", "on", "no", "off"}:
        word = "true" if text.casefold() in {"yes", "on"} else "false"
        remedy = f"write {word} for a truth value, or put it in quotes"
    return f"{text!r} means different things to different YAML readers; {remedy}"
