"""A form for a JSON value: its fields from a JSON Schema, and the value that filled fields describe."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from pytest_toolemu.agents.specification import kind_text
from pytest_toolemu.formats.json_schema import violations
from pytest_toolemu.formats.json_schema_refs import inlined

FieldKind = Literal["line", "text", "number", "choice", "lines", "json", "group"]

_MAX_LEVELS: Final = 4
_LONG: Final = 200
"""Texts that may have this many characters get a field of several lines."""

_NUMBERS: Final = ("integer", "number")
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?")
_ABSENT: Final = object()


@dataclass(frozen=True)
class FormField:
    """One field of a form, or a group of fields. ``pointer`` is the JSON pointer of its value."""

    pointer: str
    label: str
    kind: FieldKind
    hint: str
    description: str
    is_required: bool
    text: str = ""
    choices: tuple[str, ...] = ()
    fields: tuple[FormField, ...] = ()


@dataclass(frozen=True)
class FilledForm:
    """The value of a filled form, and what is wrong with it by the JSON pointer of a field; "" is the whole value."""

    value: Any
    problems: dict[str, str] = field(default_factory=dict)


def form_fields(schema: dict[str, Any], value: Any = None) -> tuple[FormField, ...]:
    """Return the fields for an object of this schema, filled with the members of ``value``."""
    return tuple(_fields(inlined(schema), value if isinstance(value, dict) else {}, "", 1))


def read_form(schema: dict[str, Any], texts: Mapping[str, str]) -> FilledForm:
    """Return the object that the texts of the fields describe, by JSON pointer. Empty optional fields are absent."""
    problems: dict[str, str] = {}
    value = _read_group(form_fields(schema), inlined(schema), texts, problems)
    if not problems:
        for violation in violations(schema, value):
            place, message = _place(violation, schema)
            problems.setdefault(place, message)
    return FilledForm(value, problems)


def _fields(schema: dict[str, Any], value: Mapping[str, Any], pointer: str, level: int) -> Iterator[FormField]:
    required = schema.get("required", ())
    for name, part in schema.get("properties", {}).items():
        if part is not False:
            yield _field(name, part if isinstance(part, dict) else {}, value, pointer, level, name in required)


def _field(
    name: str, part: dict[str, Any], values: Mapping[str, Any], parent: str, level: int, is_required: bool
) -> FormField:
    pointer = f"{parent}/{name.replace('~', '~0').replace('/', '~1')}"
    value = values.get(name, part.get("default", _ABSENT))
    kind = _kind(name, part, level)
    inner = value if isinstance(value, dict) else {}
    return FormField(
        pointer,
        name,
        kind,
        kind_text(part) if kind != "choice" else "",
        str(part.get("description", "")),
        is_required,
        "" if value is _ABSENT else _text(value, kind),
        tuple(_text(each, kind) for each in _choices(part)),
        tuple(_fields(part, inner, pointer, level + 1)) if kind == "group" else (),
    )


def _kind(name: str, part: dict[str, Any], level: int) -> FieldKind:
    kind = part.get("type")
    if _choices(part):
        return "choice"
    if kind == "string":
        is_line = "format" in part or "pattern" in part or part.get("maxLength", _LONG) < _LONG
        return "line" if is_line or name.endswith("id") else "text"
    if kind in _NUMBERS:
        return "number"
    if kind == "object" and part.get("properties") and level < _MAX_LEVELS:
        return "group"
    items = part.get("items")
    if kind == "array" and isinstance(items, dict) and items.get("type") == "string" and "enum" not in items:
        return "lines"
    return "json"


def _choices(part: dict[str, Any]) -> list[Any]:
    if part.get("type") == "boolean":
        return [True, False]
    choices: list[Any] = part.get("enum", [part["const"]] if "const" in part else [])
    # The text of a choice must say which value it is.
    return choices if len({_text(each, "choice") for each in choices}) == len(choices) else []


def _text(value: Any, kind: FieldKind) -> str:
    if kind == "lines" and isinstance(value, list):
        return "\n".join(map(str, value))
    if isinstance(value, str) and kind != "json":
        return value
    return json.dumps(value, ensure_ascii=False, indent=2 if kind == "json" else None)


def _read_group(
    fields: tuple[FormField, ...], schema: dict[str, Any], texts: Mapping[str, str], problems: dict[str, str]
) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for each in fields:
        part = schema["properties"][each.label]
        if each.kind == "group":
            if each.is_required or _has_text(each.fields, texts):
                value[each.label] = _read_group(each.fields, part, texts, problems)
            continue
        try:
            read = _read(each, part, texts.get(each.pointer, ""))
        except ValueError as error:
            problems[each.pointer] = str(error)
            continue
        if read is not _ABSENT:
            value[each.label] = read
    return value


def _has_text(fields: tuple[FormField, ...], texts: Mapping[str, str]) -> bool:
    return any(texts.get(each.pointer, "").strip() or _has_text(each.fields, texts) for each in fields)


def _read(each: FormField, part: Any, text: str) -> Any:
    """Return the value of a field; ``_ABSENT`` if it is empty. ValueError says what to write instead."""
    if each.kind in ("line", "text"):
        return text if text or each.is_required else _ABSENT
    if each.kind == "lines":
        return text.splitlines() if text.strip() or each.is_required else _ABSENT
    if not text.strip():
        if each.is_required:
            raise ValueError("a value is required")
        return _ABSENT
    if each.kind == "choice":
        return _chosen(part, text)
    return _number(text) if each.kind == "number" else _json(text)


def _chosen(part: dict[str, Any], text: str) -> Any:
    values = {_text(each, "choice"): each for each in _choices(part)}
    if text not in values:
        raise ValueError(f"{text!r} is none of {', '.join(values)}")
    return values[text]


def _number(text: str) -> int | float:
    if _NUMBER.fullmatch(text.strip()) is None:
        raise ValueError(f"{text[:40]!r} is not a number; write one such as 12 or 3.5")
    value: int | float = json.loads(text)
    return value


def _json(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"this is not JSON: {error}; write text in quotation marks") from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON value")


def _place(violation: str, schema: dict[str, Any]) -> tuple[str, str]:
    """Return the pointer of the field that a violation such as ``address.city: ...`` is about, and its message."""
    place, separator, message = violation.partition(": ")
    pointer, fields = "", form_fields(schema)
    for name in place.split("[")[0].split(".") if separator else ():
        each = next((one for one in fields if one.label == name), None)
        if each is None:
            break
        pointer, fields = each.pointer, each.fields
    return (pointer, message) if pointer and place.replace(".", "/") == pointer[1:] else (pointer, violation)
