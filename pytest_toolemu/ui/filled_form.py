"""The JSON value that the filled fields of a form describe, and what is wrong with it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pytest_toolemu.formats.json_schema import violations
from pytest_toolemu.formats.json_schema_refs import inlined
from pytest_toolemu.ui.schema_form import FormField, choices_of, form_fields, row_field

_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?")
_INDEX: Final = re.compile(r"[0-9]{1,6}")
_ABSENT: Final = object()


@dataclass(frozen=True)
class FilledForm:
    """The value of a filled form, and what is wrong with it by the JSON pointer of a field; "" is the whole value."""

    value: Any
    problems: dict[str, str] = field(default_factory=dict)


def read_form(schema: dict[str, Any], texts: Mapping[str, str]) -> FilledForm:
    """Return the object that the texts of the fields describe, by JSON pointer. Empty optional fields are absent.

    A list of objects has a row for each index that occurs in a pointer, whatever indexes are left out.
    """
    reading = _Reading(texts)
    value = reading.group(form_fields(schema), inlined(schema), "")
    if not reading.problems:
        for violation in violations(schema, value):
            pointer, message = reading.place(violation)
            reading.problems.setdefault(pointer, message)
    return FilledForm(value, reading.problems)


class _Reading:
    """What reading a form has found: problems by pointer, and the pointer of each part of the value by its location."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.problems: dict[str, str] = {}
        self._texts = texts
        self._pointers: dict[str, str] = {}

    def group(self, fields: tuple[FormField, ...], schema: dict[str, Any], location: str) -> dict[str, Any]:
        """Return the object of a group of fields. ``location`` is as in messages of the validator: ``rows[0].id``."""
        value: dict[str, Any] = {}
        for each in fields:
            inner = f"{location}.{each.label}".removeprefix(".")
            self._pointers[inner] = each.pointer
            try:
                read = self._read(each, schema["properties"][each.label], inner)
            except ValueError as error:
                self.problems[each.pointer] = str(error)
                continue
            if read is not _ABSENT:
                value[each.label] = read
        return value

    def place(self, violation: str) -> tuple[str, str]:
        """Return the pointer of the innermost field that a violation (``rows[0].id: ...``) is about, and its text."""
        for location in sorted(self._pointers, key=len, reverse=True):
            rest = violation.removeprefix(location)
            if rest != violation and rest.startswith(": "):
                return self._pointers[location], rest[2:]
            if rest != violation and rest.startswith((".", "[")):
                return self._pointers[location], violation
        return "", violation

    def _read(self, each: FormField, part: Any, location: str) -> Any:
        """Return the value of a field; ``_ABSENT`` if it is empty. ValueError says what to write instead."""
        text = self._texts.get(each.pointer, "")
        if each.kind == "rows" and (indexes := self._indexes(each.pointer)):
            return [self._row(each, part, index, f"{location}[{at}]") for at, index in enumerate(indexes)]
        if each.kind == "group" and not text.strip():
            is_given = each.is_required or self._has_text(each.pointer)
            return self.group(each.fields, part, location) if is_given else _ABSENT
        if each.kind == "rows" and each.is_required and not text.strip():
            return []
        return _value(each, part, text)

    def _row(self, rows: FormField, part: Any, index: int, location: str) -> dict[str, Any]:
        row = row_field(rows, part, index)
        self._pointers[location] = row.pointer
        return self.group(row.fields, part["items"], location)

    def _indexes(self, pointer: str) -> list[int]:
        """Return the indexes of the rows of a list."""
        below = (each.removeprefix(f"{pointer}/") for each in self._texts if each.startswith(f"{pointer}/"))
        return sorted({int(name) for name in (each.partition("/")[0] for each in below) if _INDEX.fullmatch(name)})

    def _has_text(self, pointer: str) -> bool:
        return any(text.strip() for each, text in self._texts.items() if each.startswith(f"{pointer}/"))


def _value(each: FormField, part: Any, text: str) -> Any:
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


def _chosen(part: Any, text: str) -> Any:
    values = choices_of(part)
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
