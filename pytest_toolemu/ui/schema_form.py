"""The fields of a form for a JSON value, from its JSON Schema. ``filled_form`` reads what a person has written."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from pytest_toolemu.agents.specification import kind_text
from pytest_toolemu.formats.json_schema_refs import inlined

FieldKind = Literal["line", "text", "number", "choice", "lines", "json", "group", "rows"]

NEW_ROW: Final = "-"
"""The index of a row that is not in the list yet, as in JSON pointers."""

_MAX_LEVELS: Final = 4
_MAX_ROWS: Final = 50
"""Lists with more entries are edited as JSON."""

_LONG: Final = 200
"""Texts that may have this many characters get a field of several lines."""

_NUMBERS: Final = ("integer", "number")
_ABSENT: Final = object()


@dataclass(frozen=True)
class FormField:
    """One field of a form, or a group of fields. ``pointer`` is the JSON pointer of its value.

    A field of the kind ``rows`` is a list of objects: each of its ``fields`` is the group of one row, and ``new_row``
    is the group of a row to be added.
    """

    pointer: str
    label: str
    kind: FieldKind
    hint: str
    description: str
    is_required: bool
    level: int
    text: str = ""
    choices: tuple[str, ...] = ()
    fields: tuple[FormField, ...] = ()
    new_row: FormField | None = None


def form_fields(schema: dict[str, Any], value: Any = None) -> tuple[FormField, ...]:
    """Return the fields for an object of this schema, filled with the members of ``value``."""
    return tuple(_fields(inlined(schema), value if isinstance(value, dict) else {}, "", 1))


def row_field(rows: FormField, schema: dict[str, Any], index: int | str, value: Any = None) -> FormField:
    """Return the group of the fields of one row; ``schema`` is the one of the list, without references."""
    pointer, level = f"{rows.pointer}/{index}", rows.level + 1
    inner = tuple(_fields(schema["items"], value if isinstance(value, dict) else {}, pointer, level))
    return FormField(pointer, str(index), "group", "", "", True, level, fields=inner)


def choices_of(part: Any) -> dict[str, Any]:
    """Return the values that a schema allows by the text that shows each; empty if they cannot be listed."""
    if part.get("type") == "boolean":
        return {"true": True, "false": False}
    values = part.get("enum", [part["const"]] if "const" in part else [])
    texts = {_text(each, "choice"): each for each in values}
    # The text of a choice must say which value it is.
    return texts if len(texts) == len(values) else {}


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
    kind = _kind(name, part, level, value)
    hint = kind_text(part) if kind not in ("choice", "rows") else ""
    description = str(part.get("description", ""))
    plain = FormField(pointer, name, kind, hint, description, is_required, level)
    if kind == "rows":
        return _with_rows(plain, part, value)
    if kind == "group":
        inner = _fields(part, value if isinstance(value, dict) else {}, pointer, level + 1)
        return replace(plain, fields=tuple(inner))
    return replace(plain, text="" if value is _ABSENT else _text(value, kind), choices=tuple(choices_of(part)))


def _with_rows(field: FormField, part: dict[str, Any], value: Any) -> FormField:
    return replace(
        field,
        # Tells an empty list from none.
        text="" if value is _ABSENT else "[]",
        fields=tuple(row_field(field, part, index, row) for index, row in enumerate(() if value is _ABSENT else value)),
        new_row=row_field(field, part, NEW_ROW),
    )


def _kind(name: str, part: dict[str, Any], level: int, value: Any) -> FieldKind:
    kind = part.get("type")
    if choices_of(part):
        return "choice"
    if kind == "string":
        is_line = "format" in part or "pattern" in part or part.get("maxLength", _LONG) < _LONG
        return "line" if is_line or name.endswith("id") else "text"
    if kind in _NUMBERS:
        return "number"
    return _structure_kind(part, level, value)


def _structure_kind(part: dict[str, Any], level: int, value: Any) -> FieldKind:
    items = part.get("items")
    if part.get("type") == "array" and isinstance(items, dict):
        if items.get("type") == "string" and "enum" not in items:
            return "lines"
        if level < _MAX_LEVELS and _is_object(items) and (value is _ABSENT or _is_table(items, value)):
            return "rows"
    if level < _MAX_LEVELS and _is_object(part) and (value is _ABSENT or _has_fields(part, value)):
        return "group"
    return "json"


def _is_object(part: dict[str, Any]) -> bool:
    return part.get("type") == "object" and bool(part.get("properties"))


def _has_fields(part: dict[str, Any], value: Any) -> bool:
    """Return whether each member of a value has a field; a form would lose the others."""
    return isinstance(value, dict) and all(part["properties"].get(name, False) is not False for name in value)


def _is_table(items: dict[str, Any], value: Any) -> bool:
    return isinstance(value, list) and len(value) <= _MAX_ROWS and all(_has_fields(items, row) for row in value)


def _text(value: Any, kind: FieldKind) -> str:
    if kind == "lines" and isinstance(value, list):
        return "\n".join(map(str, value))
    if isinstance(value, str) and kind != "json":
        return value
    return json.dumps(value, ensure_ascii=False, indent=2 if kind == "json" else None)
