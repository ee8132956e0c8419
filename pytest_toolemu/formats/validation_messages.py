"""Error messages for files that people write: location, value, and what to write instead.

pydantic finds the violations, but its messages and type names mean nothing to the author of a YAML file, so none of
them is shown.
"""

from __future__ import annotations

import difflib
import functools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, get_args

import yaml
from pydantic import BaseModel
from pydantic_core import ErrorDetails

from pytest_toolemu.formats.text import truncated

Loc = tuple[str | int, ...]
"""Keys and indexes from the root of a document to one of its parts."""

KEY: Final = "\0key"
"""The last part of a location that refers to the key itself, not to its value."""

_BOUNDS: Final = {
    "greater_than_equal": ("ge", "at least"),
    "less_than_equal": ("le", "at most"),
    "greater_than": ("gt", "more than"),
    "less_than": ("lt", "less than"),
}


@functools.cache
def message_texts() -> dict[str, dict[str, str]]:
    """Return the texts of error messages: examples and forms of fields, kinds of values, and hints at YAML syntax."""
    path = Path(__file__).with_name("validation_texts.yaml")
    texts: dict[str, dict[str, str]] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return texts


def show(value: object, limit: int = 80) -> str:
    """Return a value as error messages show it: as JSON, cut at ``limit`` characters."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return truncated(text, limit)


def format_location(loc: Loc) -> str:
    """Return a location in a file as text, such as ``checks[0].never``; that of a key like that of its value."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc if part != KEY).lstrip(".")


def closest(name: str, valid: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?``, or the valid names if none is similar."""
    names = sorted(valid)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6) or [
        n for n in names if n.casefold() == name.casefold()
    ]
    if near:
        return f"; did you mean {near[0]!r}?"
    listed = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
    return f"; known: {listed}" if names else ""


def syntax_problem(problem: str) -> str:
    """Return libyaml's message, with a hint at the most frequent cause."""
    hint = next((f"; {hint}" for part, hint in message_texts()["syntax"].items() if part in problem), "")
    return f"YAML syntax: {problem}{hint}"


def explain(model: type[BaseModel], value: Any, details: Sequence[ErrorDetails]) -> list[tuple[Loc, str]]:
    """Return the violations that pydantic reports for a document's value, each with its location and a message."""
    problems: dict[tuple[Loc, str], None] = {}
    relevant = [detail for detail in details if not _follows_from_another(value, detail)]
    for detail in relevant or details:
        loc, rest = _within(value, tuple(detail["loc"]))
        problems[_message(model, value, loc, rest, detail)] = None
    return list(problems)


def _within(value: Any, loc: Loc) -> tuple[Loc, Loc]:
    """Split pydantic's location into the one in the document and the rest: types it tried, missing and unknown keys."""
    inside: list[str | int] = []
    rest: list[str | int] = []
    for part in loc:
        is_there = (
            part in value
            if isinstance(value, dict)
            else isinstance(value, list) and isinstance(part, int) and part < len(value)
        )
        if is_there:
            inside.append(part)
            value = value[part]
        else:
            rest.append(part)
    return tuple(inside), tuple(rest)


def _follows_from_another(value: Any, detail: ErrorDetails) -> bool:
    """Return whether pydantic reports a more specific error at the same location.

    It does not count entries that are not valid, so it also reports their list as too short. For a field that accepts
    text or a list, it reports the problems of the value as either of them.
    """
    if detail["type"] == "too_short":
        return bool(detail["input"])
    loc = tuple(detail["loc"])
    _, rest = _within(value, loc)
    tried = str(rest[0]).partition("[")[0] if rest else ""
    if tried in ("int", "float", "bool"):
        return True  # a field that accepts numbers also accepts text, whose problem is the same
    if tried not in ("tuple", "constrained-str", "str"):
        return False
    return (tried == "tuple") != isinstance(_part(value, loc[: loc.index(rest[0])]), list)


def _message(model: type[BaseModel], value: Any, loc: Loc, rest: Loc, detail: ErrorDetails) -> tuple[Loc, str]:
    kind = detail["type"]
    if kind == "extra_forbidden":
        return (*loc, KEY), _unknown_key(model, loc)
    if kind == "missing":
        name = str(rest[-1])
        return loc, f"the key {name!r} is missing{_at(loc)}{_example(_field(model, (*loc, name)))}"
    name = f"{format_location(loc)}: " if loc else ""
    at = (*loc, KEY) if rest[-1:] == ("[key]",) else loc
    actual = loc[-1] if rest[-1:] == ("[key]",) else _part(value, loc)
    return at, f"{name}{show(actual)}{_problem(model, loc, actual, detail)}"


def _problem(model: type[BaseModel], loc: Loc, actual: Any, detail: ErrorDetails) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind in ("literal_error", "enum"):
        choices = re.findall(r"'([^']*)'", str(context["expected"]))
        return f" is not one of the known values{closest(actual if isinstance(actual, str) else '', choices)}"
    if kind == "value_error":
        return f": {context['error']}"
    if kind in _BOUNDS:
        key, words = _BOUNDS[kind]
        return f": expected a number that is {words} {context[key]:g}"
    field = _field(model, loc)
    return f": expected {_size(kind, context) or _form(kind, field) or _expected(kind, actual)}{_example(field)}"


def _size(kind: str, context: dict[str, Any]) -> str:
    """Return the required length of text or a list; empty for another violation."""
    if kind == "string_too_short":
        least = context["min_length"]
        return "text that is not empty" if least == 1 else f"at least {least} characters"
    if kind == "string_too_long":
        return f"at most {context['max_length']} characters"
    return "at least one entry" if kind == "too_short" else ""


def _form(kind: str, field: tuple[str, str] | None) -> str:
    """Return the required form of a text in words; empty for another violation."""
    form = message_texts()["forms"].get(".".join(field or ()), "")
    return form if kind == "string_pattern_mismatch" or "or a list" in form else ""


def _expected(kind: str, actual: Any) -> str:
    """Return the expected kind of value, with a hint at the most frequent mistake."""
    if kind.startswith("datetime"):
        return "a date and time with an offset from UTC, in quotes"
    expected = message_texts()["kinds"].get(kind, "another value")
    if expected == "text" and isinstance(actual, bool | int | float):
        return f"text; put it in quotes: {show(json.dumps(actual))}"
    if expected == "text" and isinstance(actual, dict) and len(actual) == 1:
        return "text; put text that contains ': ' in quotes"
    if expected == "a list" and isinstance(actual, str) and actual:
        return f"a list, also of a single entry: [{show(actual)}]"
    return expected


def _unknown_key(model: type[BaseModel], loc: Loc) -> str:
    """Return a message with the closest key of this mapping, the locations where the key is valid, or all keys."""
    name, around = str(loc[-1]), _descend(model, loc[:-1])[1]
    fields = [field for field, info in around.model_fields.items() if not info.exclude] if around else []
    hint = closest(name, fields)
    homes = list(dict.fromkeys(_homes(model, name, "")))
    is_similar = "did you mean" in hint
    if homes:  # before a similar name, because a misplaced key is spelled correctly
        hint = hint.replace("; did", "; or did")
        hint = f"; {name!r} belongs in {' or '.join(homes[:3])}{_example_with(model, name, homes[0])}{hint}"
    return f"unknown key {name!r}{'' if is_similar else _at(loc[:-1])}{hint}"


def _homes(model: type[BaseModel], name: str, path: str) -> Iterator[str]:
    """Yield the locations of a file at which a key is valid."""
    if name in model.model_fields and not model.model_fields[name].exclude:
        yield path or "the top level of the file"
    for field, info in model.model_fields.items():
        if inner := _record_in(info.annotation):
            yield from _homes(inner, name, f"{path}.{field}".lstrip("."))


def _example_with(model: type[BaseModel], name: str, home: str) -> str:
    """Return an example of the part of a file to which a misplaced key belongs; empty if it does not show the key."""
    example = _example(_field(model, tuple(home.split("."))))
    return example if f"{name}:" in example.partition("{")[2] else ""


def _at(loc: Loc) -> str:
    return f" in {format_location(loc)}" if loc else ""


def _part(value: Any, loc: Loc) -> Any:
    for part in loc:
        value = value[part]
    return value


def _example(field: tuple[str, str] | None) -> str:
    """Return a text such as ``; for example, toolkits: [BankManager]`` for a field of a record."""
    record, name = field or ("", "")
    text = message_texts()["examples"].get(f"{record}.{name}")
    return f"; for example, {name}: {text}" if text else ""


def _field(model: type[BaseModel], loc: Loc) -> tuple[str, str] | None:
    """Return the names of the record and the field that a location is in."""
    return _descend(model, loc)[0]


def _descend(model: type[BaseModel], loc: Loc) -> tuple[tuple[str, str] | None, type[BaseModel] | None]:
    """Return the record and the field that a location is in, by name, and the type of record that is expected there."""
    field: tuple[str, str] | None = None
    current: type[BaseModel] | None = model
    for part in loc:
        if current is not None and isinstance(part, str) and part in current.model_fields:
            field = current.__name__, part
            current = _record_in(current.model_fields[part].annotation)
    return field, current


def _record_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((record for part in get_args(annotation) if (record := _record_in(part))), None)
