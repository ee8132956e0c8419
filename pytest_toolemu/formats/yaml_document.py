"""Reads YAML files strictly, and reports every problem with its line and column.

It is built on libyaml's event stream instead of PyYAML's loaders, because files come from anywhere: the loaders keep
the last of two duplicate keys, read ``no`` as false and ``1:30`` as 90, expand alias bombs, and overflow the C stack on
deep nesting. Here, a plain scalar that YAML 1.1 and 1.2 interpret differently is an error, as are aliases, tags and
duplicate keys: a value that differs from what the author meant could turn an unsafe agent into a safe one.
"""

from __future__ import annotations

import functools
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from pytest_toolemu.errors import DocumentError
from pytest_toolemu.formats.file_access import read_regular
from pytest_toolemu.formats.redaction import redact_json
from pytest_toolemu.formats.validation_messages import KEY, Loc, closest, explain, format_location, show, syntax_problem

__all__ = ["KEY", "Document", "Loc", "Record", "closest", "dump", "format_location", "read_text", "show", "too_deep"]

M = TypeVar("M", bound=BaseModel)

MAX_BYTES: Final = 1_000_000
MAX_DEPTH: Final = 60

_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
# Text that YAML 1.1 readers take for booleans, octal, hexadecimal, binary, grouped, or base-60 numbers, dates, or
# special values. YAML 1.2 readers take most of it for strings.
_AMBIGUOUS = re.compile(
    r"(?i:yes|no|on|off|=|<<"
    r"|[-+]?0[0-7_]+|[-+]?0[xob][0-9a-f_]+|[-+]?[0-9][0-9]*_[0-9_]*(\.[0-9_]*)?"
    r"|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?"
    r"|\d{4}-\d{2}-\d{2}|\d{4}-\d{1,2}-\d{1,2}([Tt]|[ \t]+)\d.*"
    r"|[-+]?\.(inf|nan)|[-+]?0[0-9]+(\.[0-9]*)?)"
)
_WORDS: Final = {"true": True, "false": False, "null": None, "~": None, "": None}


class Record(BaseModel):
    """Base class of every record: frozen, without type coercion, and without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def read_text(path: Path) -> str:
    """Return the text of a YAML file. Raise DocumentError if it is missing, too large, or not UTF-8."""
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            message = f"the file has {size:,} bytes; at most {MAX_BYTES:,} are read. Check that it is the intended file"
            raise DocumentError(path, [(1, 1, message)])
        raw = read_regular(path, MAX_BYTES)
    except OSError as error:
        raise DocumentError(
            path, [(1, 1, f"cannot be read: {error.strerror}; check the path and its permissions")]
        ) from None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = raw[: error.start]
        line, column = before.count(b"\n") + 1, error.start - (before.rfind(b"\n") + 1) + 1
        message = f"byte 0x{raw[error.start]:02x} is not UTF-8; save the file as UTF-8"
        raise DocumentError(path, [(line, column, message)]) from None


@dataclass(frozen=True)
class Document:
    """A parsed file, with the line and column of each of its parts."""

    path: Path
    text: str
    value: Any = field(repr=False)

    @classmethod
    def read(cls, path: Path) -> Document:
        """Read and parse a file. Raise DocumentError if its syntax is not valid."""
        return cls.parse(read_text(path), path)

    @classmethod
    def parse(cls, text: str, path: Path) -> Document:
        """Parse YAML text; ``path`` is used only in messages."""
        return cls(path, text, _Composer(text, path).compose())

    @classmethod
    def parse_foreign(cls, text: str, path: Path) -> Document:
        """Parse YAML that was not written for this package: plain text of which readers differ is text."""
        return cls(path, text, _ForeignComposer(text, path).compose())

    def position(self, loc: Loc) -> tuple[int, int]:
        """Return the line and column, counted from 1, of the part at ``loc``, or of its nearest parent that exists."""
        while loc not in self._marks and loc:
            loc = loc[:-1]
        return self._marks.get(loc, (1, 1))

    @functools.cached_property
    def _marks(self) -> dict[Loc, tuple[int, int]]:
        """The positions of all parts, from a second pass that only files with problems need."""
        marks: dict[Loc, tuple[int, int]] = {}
        _Composer(self.text, self.path, marks).compose()
        return marks

    def error(self, problems: Iterable[tuple[Loc, str]]) -> DocumentError:
        """Return a DocumentError for problems found after parsing, with their positions in this file.

        A location that ends with KEY is that of the key itself, not of its value.
        """
        return DocumentError(self.path, [(*self.position(loc), message) for loc, message in problems])

    def build(self, model: type[M], extra: Mapping[str, Any] | None = None) -> M:
        """Return the value as a record.

        Raise DocumentError with all violations, and a suggestion for each unknown name.
        """
        value = self.value
        if not isinstance(value, dict):
            raise self.error([((), f"{show(value)}: expected keys and values at the top level of the file")])
        try:
            return model.model_validate_json(json.dumps({**value, **(extra or {})}), strict=True)
        except ValidationError as error:
            raise self.error(explain(model, value, error.errors(include_url=False))) from None


def too_deep(value: Any, levels: int = 100) -> bool:
    """Return whether a JSON value is nested more deeply than this; validators fail at some 200 to 1,000 levels."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels <= 0 or any(too_deep(part, levels - 1) for part in parts)


class StrictDumper(yaml.SafeDumper):
    """Quotes every text that this module or a YAML 1.1 reader could take for something else, and writes no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        """Return True: a value that occurs twice is written twice, as ``Document`` reads no aliases."""
        del data
        return True


def represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """Return the node of a text, whose style is None if it may be written in any style."""
    # Read as line breaks in every style but this one, in which they are escaped.
    style = '"' if any(separator in text for separator in "\x85\u2028\u2029") else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


StrictDumper.add_representer(str, represent_text)
StrictDumper.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789"))
# PyYAML knows these only in some spellings: it would write "-.nan" and "tRue" without quotes.
StrictDumper.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(rf"(?:{_AMBIGUOUS.pattern}|(?i:true|false|null))$"), None
)


def dump(value: Any) -> str:
    """Return a JSON value as YAML text that ``Document`` reads as the same value; keys keep their order."""
    value = redact_json(value)  # not in the text, in which the label of a secret would be a list
    return yaml.dump(value, Dumper=StrictDumper, sort_keys=False, allow_unicode=True, width=110)


class _Composer:
    """One pass over the events of a document. Unlike in PyYAML's composer, MAX_DEPTH bounds the recursion."""

    def __init__(self, text: str, path: Path, marks: dict[Loc, tuple[int, int]] | None = None) -> None:
        self.text = text
        self.path = path
        self.marks = marks

    def compose(self) -> Any:
        """Return the value of the only document in the text."""
        try:
            # PyYAML's wheels include libyaml. Without it, the pure Python loader is correct too, but ten times slower.
            # Its method is called directly: the generator yaml.parse takes as long as the parser itself.
            self._next = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(self.text).get_event
            self._next()  # stream start
            if isinstance(self._next(), yaml.StreamEndEvent):  # otherwise document start
                raise DocumentError(self.path, [(1, 1, "the file is empty; add keys and values")])
            value = self._value(self._next(), ())
            self._next()  # document end
            after = self._next()
        except yaml.MarkedYAMLError as error:
            mark: Any = error.problem_mark or error.context_mark
            line, column = (1, 1) if mark is None else (mark.line + 1, mark.column + 1)
            raise DocumentError(self.path, [(line, column, syntax_problem(str(error.problem)))]) from None
        except yaml.YAMLError as error:
            raise DocumentError(self.path, [(1, 1, f"YAML syntax: {error}")]) from None
        if not isinstance(after, yaml.StreamEndEvent):
            raise self._error(after, "a second document starts here; put it in a file of its own")
        return value

    def _error(self, event: Any, message: str) -> DocumentError:
        return DocumentError(self.path, [(*_start(event), message)])

    def _value(self, event: Any, loc: Loc) -> Any:
        if self.marks is not None:
            self.marks[loc] = _start(event)
        # The class is compared first because a file has thousands of values; events have no subclasses.
        kind = type(event)
        if kind is yaml.AliasEvent or event.anchor is not None:
            raise self._error(event, "anchors and aliases (&name, *name) are not supported; repeat the value")
        if event.tag is not None:
            raise self._error(event, f"the tag {event.tag!r} is not supported; remove it")
        if kind is yaml.ScalarEvent:
            return self._scalar(event)
        if len(loc) >= MAX_DEPTH:
            raise self._error(event, f"nested deeper than {MAX_DEPTH} levels")
        if kind is yaml.SequenceStartEvent:
            values: list[Any] = []
            while type(event := self._next()) is not yaml.SequenceEndEvent:
                values.append(self._value(event, (*loc, len(values))))
            return values
        return self._mapping(loc)

    def _mapping(self, loc: Loc) -> dict[str, Any]:
        values: dict[str, Any] = {}
        while type(event := self._next()) is not yaml.MappingEndEvent:
            if type(event) is not yaml.ScalarEvent:
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
        if event.implicit[0] and _is_ambiguous(event.value):
            raise self._error(event, _ambiguous(event.value))
        return str(event.value)

    def _scalar(self, event: Any) -> Any:
        text = event.value
        if not event.implicit[0] or _is_word(text):  # quoted or block text, or plain text
            return text
        if text.casefold() in _WORDS:
            return _WORDS[text.casefold()]
        if _INT.fullmatch(text):
            # Readers disagree on integers with more than 18 digits, and int() refuses very long ones.
            return int(text) if len(text) < 19 else self._long_number(event)
        if _AMBIGUOUS.fullmatch(text):
            raise self._error(event, _ambiguous(text))
        if _FLOAT.fullmatch(text):
            number = float(text)
            return number if abs(number) != float("inf") else self._long_number(event)
        return text

    def _long_number(self, event: Any) -> Any:
        raise self._error(event, f"the number {show(event.value, 40)} is too large; put it in quotes if it is text")


class _ForeignComposer(_Composer):
    """A pass over a document of another program, which may rely on what this package refuses as ambiguous."""

    def _key(self, event: Any) -> str:
        return str(event.value)

    def _scalar(self, event: Any) -> Any:
        try:
            return super()._scalar(event)
        except DocumentError:
            return event.value


# Both are cached because the keys and words of schemas occur thousands of times.
@functools.lru_cache(maxsize=4096)
def _is_ambiguous(text: str) -> bool:
    return _AMBIGUOUS.fullmatch(text) is not None


@functools.lru_cache(maxsize=4096)
def _is_word(text: str) -> bool:
    """Return whether a plain scalar is text in every version of YAML."""
    return text.casefold() not in _WORDS and not any(form.fullmatch(text) for form in (_INT, _AMBIGUOUS, _FLOAT))


def _start(event: Any) -> tuple[int, int]:
    return event.start_mark.line + 1, event.start_mark.column + 1


def _ambiguous(text: str) -> str:
    remedy = "put it in quotes if it is text"
    if text.casefold() in {"yes", "on", "no", "off"}:
        word = "true" if text.casefold() in {"yes", "on"} else "false"
        remedy = f"write {word} for a truth value, or put it in quotes"
    return f"YAML readers interpret {text!r} differently; {remedy}"


_WIDE: Final = 10**6


@dataclass(frozen=True)
class YamlText:
    """The text of a file that ``Document`` accepts, so it has no anchors, tags, or second documents."""

    text: str

    def with_value(self, loc: Loc, value: Any, order: Sequence[str] = ()) -> YamlText:
        """Return the text with this value at a location, whose last part is a key.

        A value that exists is replaced; comments inside it move above its key. A missing key is added at the end of
        its mapping, or in the mapping at the top, before the first key that comes later in ``order``.
        """
        parent, key = self._node(loc[:-1]), str(loc[-1])
        if not isinstance(parent, yaml.MappingNode):
            return self.with_value(loc[:-1], {key: value}, order)
        in_flow = self._is_in_flow(loc[:-1])
        for key_node, value_node in parent.value:
            if key_node.value == key:
                return self._replaced(key_node, value_node, value, in_flow=in_flow)
        if in_flow:
            return self._added_in_flow(parent, key, value)
        return self._added_in_block(parent, key, value, order if len(loc) == 1 else ())

    def without(self, loc: Loc) -> YamlText:
        """Return the text without a key of a mapping and its value; in a mapping in braces, the value becomes empty."""
        parent = self._node(loc[:-1])
        if not isinstance(parent, yaml.MappingNode) or self._is_in_flow(loc[:-1]) or len(parent.value) == 1:
            return self.with_value(loc, [])
        key_node, value_node = next(pair for pair in parent.value if pair[0].value == loc[-1])
        end = self._line_end(self._content_end(value_node))
        if key_node is parent.value[0][0]:  # the dash of a list may stand before it
            return self.with_value(loc, [])
        start = self.text.rfind("\n", 0, key_node.start_mark.index) + 1
        kept = "".join(f"{comment}\n" for comment in self._comments(start, end))
        return YamlText(self.text[:start] + kept + self.text[end:].removeprefix("\n"))

    @cached_property
    def comments(self) -> list[str]:
        """All comments of the file, in order."""
        return list(self._comments(0, len(self.text)))

    @cached_property
    def _root(self) -> yaml.Node | None:
        root: yaml.Node | None = yaml.compose(self.text, Loader=yaml.SafeLoader)
        return root

    @cached_property
    def _scalars(self) -> list[tuple[int, int]]:
        """The ranges of all scalars: a ``#`` within one begins no comment."""
        return sorted((node.start_mark.index, node.end_mark.index) for node in _scalars_in(self._root))

    def _node(self, loc: Loc) -> yaml.Node | None:
        node = self._root
        for part in loc:
            if isinstance(node, yaml.MappingNode):
                node = next((value for key, value in node.value if key.value == str(part)), None)
            elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
                node = node.value[part]
            else:
                return None
        return node

    def _is_in_flow(self, loc: Loc) -> bool:
        nodes = (self._node(loc[:length]) for length in range(len(loc) + 1))
        return any(isinstance(node, yaml.CollectionNode) and node.flow_style for node in nodes)

    def _replaced(self, key: yaml.Node, value: yaml.Node, new: Any, *, in_flow: bool) -> YamlText:
        start, end = key.start_mark.index, self._content_end(value)
        if in_flow:
            return YamlText(f"{self.text[:start]}{_flow_pair(key.value, new)}{self.text[end:]}")
        column = key.start_mark.column
        kept = "".join(f"{comment}\n{' ' * column}" for comment in self._comments(start, end))
        return YamlText(self.text[:start] + kept + _block(key.value, new, column) + self.text[end:])

    def _added_in_flow(self, parent: yaml.MappingNode, key: str, value: Any) -> YamlText:
        separator = ", " if parent.value else ""
        at = self._content_end(parent.value[-1][1]) if parent.value else parent.start_mark.index + 1
        return YamlText(f"{self.text[:at]}{separator}{_flow_pair(key, value)}{self.text[at:]}")

    def _added_in_block(self, parent: yaml.MappingNode, key: str, value: Any, order: Sequence[str]) -> YamlText:
        column = parent.value[0][0].start_mark.column
        later = order[order.index(key) + 1 :] if key in order else ()
        following = next((node for node, _ in parent.value if node.value in later), None)
        if following is not None and following is not parent.value[0][0]:
            at = self._start_with_comments(following.start_mark.index)
            return YamlText(f"{self.text[:at]}{' ' * column}{_block(key, value, column)}\n{self.text[at:]}")
        at = self._line_end(self._content_end(parent))
        return YamlText(f"{self.text[:at]}\n{' ' * column}{_block(key, value, column)}{self.text[at:] or chr(10)}")

    def _start_with_comments(self, index: int) -> int:
        """Return the start of the line at an index, or of the comments directly above it."""
        start = self.text.rfind("\n", 0, index) + 1
        while start > 0:
            above = self.text.rfind("\n", 0, start - 1) + 1
            if not self.text[above:start].lstrip().startswith("#"):
                break
            start = above
        return start

    def _line_end(self, index: int) -> int:
        end = self.text.find("\n", index)
        return len(self.text) if end < 0 else end

    def _content_end(self, node: yaml.Node) -> int:
        """Return where the text of a node ends, without the comments and empty lines after it."""
        if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
            last = node.value[-1]
            return self._content_end(last[1] if isinstance(last, tuple) else last)
        end = int(node.end_mark.index)
        return len(self.text[:end].rstrip()) if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">") else end

    def _comments(self, start: int, end: int) -> Iterator[str]:
        at = self.text.find("#", start, end)
        while at >= 0:
            is_begin = at == 0 or self.text[at - 1] in " \t\n"
            if is_begin and not any(first <= at < last for first, last in self._scalars):
                line_end = min(self._line_end(at), end)
                yield self.text[at:line_end].rstrip()
                at = line_end
            at = self.text.find("#", at + 1, end)


def _scalars_in(node: yaml.Node | None) -> Iterator[yaml.ScalarNode]:
    if isinstance(node, yaml.ScalarNode):
        yield node
    elif isinstance(node, yaml.CollectionNode):
        for part in node.value:
            for each in part if isinstance(part, tuple) else (part,):
                yield from _scalars_in(each)


def _block(key: str, value: Any, column: int) -> str:
    """Return a key with its value in block style; all lines but the first are indented to the column."""
    return f"\n{' ' * column}".join(dump({key: value}).rstrip("\n").split("\n"))


def _flow_pair(key: str, value: Any) -> str:
    """Return a key with its value as in a mapping in braces."""
    stream = io.StringIO()
    yaml.dump(
        {key: value},
        stream,
        Dumper=StrictDumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=True,
        width=_WIDE,
    )
    return stream.getvalue().strip()[1:-1]
