"""Inserts text into a case file without moving comments: finds where its sections begin and end, and writes rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import yaml

from pytest_toolemu.formats.yaml_document import KEY, Document, StrictDumper, represent_text

Json = dict[str, Any]

AFTER_PINS: Final = ("checks", "references", "unlabeled", "conversation", "proof", "thresholds", "inferred")
"""The keys before which rows and pins are inserted, as in the documented order."""


def lines_of(document: Document) -> list[str]:
    """Return the lines of a file with their ends; the last one has an end, too."""
    lines = document.text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    return lines


def section(document: Document, key: str) -> tuple[int, int]:
    """Return the first line of a top-level key, counted from 0, and the line after its last one.

    Comments and empty lines before the next key belong to that key.
    """
    lines = lines_of(document)
    starts = sorted(document.position((other, KEY))[0] - 1 for other in document.value)
    start = document.position((key, KEY))[0] - 1
    end = next((line for line in starts if line > start), len(lines))
    while end > start + 1 and (not lines[end - 1].strip() or lines[end - 1].lstrip().startswith("#")):
        end -= 1
    return start, end


def insertion_line(document: Document, *keys: str) -> int:
    """Return the line before the first of these top-level keys and its comments; the end if the file has none."""
    lines = lines_of(document)
    line = min((document.position((key, KEY))[0] - 1 for key in keys if key in document.value), default=len(lines))
    while line < len(lines) and line > 0 and lines[line - 1].lstrip().startswith("#"):
        line -= 1
    return line


_WIDTH: Final = 140
_SPACE_AT_END: Final = re.compile(r"[^\S\n](?:\n|\Z)")


def with_world(document: Document, world: Mapping[str, Mapping[str, list[Json]]], ids: Mapping[str, list[Any]]) -> str:
    """Return the text of a case file with these rows and keys added; everything else stays as it is."""
    added = ["world:\n"] if world else []
    for kit, entities in world.items():
        added.append(f"  {kit}:\n" if entities else f"  {kit}: {{}}\n")
        for name, rows in entities.items():
            added.append(f"    {name}:\n" if rows else f"    {name}: []\n")
            added += [line for row in rows for line in row_lines(row, 6)]
    if ids and "ids" not in document.value:
        added += ["ids:\n", *(f"  {name}: {_flow(keys)}\n" for name, keys in ids.items())]
    lines = lines_of(document)
    place = insertion_line(document, "pins", *AFTER_PINS)
    return "".join([*lines[:place], *added, *lines[place:]])


def row_lines(row: Json, indent: int) -> Iterator[str]:
    """Yield the lines of one row: on one line if it fits, otherwise a line for each field."""
    space = " " * indent
    one_line = _flow(row)
    if len(one_line) + indent + 2 <= _WIDTH and not any(
        "\n" in value for value in row.values() if isinstance(value, str)
    ):
        yield f"{space}- {one_line}\n"
        return
    lines = [line for name, value in row.items() for line in _block({name: value}).splitlines()]
    for number, line in enumerate(lines):
        yield f"{space}{'  ' if number else '- '}{line}\n" if line else "\n"


def _flow(value: Any) -> str:
    return _dumped(value, flow=True).strip().removesuffix("...").strip()


def _block(value: Json) -> str:
    (content,) = value.values()
    if isinstance(content, dict | list):
        (name,) = value
        flow = f"{_dumped(name, flow=True).strip().removesuffix('...').strip()}: {_flow(content)}"
        if len(flow) <= _WIDTH:
            return flow
    return _dumped(value, flow=False)


def _dumped(value: Any, *, flow: bool) -> str:
    width = 10**6 if flow else _WIDTH - 10
    return str(
        yaml.dump(value, Dumper=_RowDumper, sort_keys=False, allow_unicode=True, default_flow_style=flow, width=width)
    )


class _RowDumper(StrictDumper):
    """Writes text of several lines as a block."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    node = represent_text(dumper, value)
    if "\n" in value:
        # In a block that is indented like a row, other texts would be read with other spaces or line breaks.
        is_plain = value[:1].strip() and not value.endswith("\n\n") and not _SPACE_AT_END.search(value)
        node.style = "|" if node.style is None and is_plain else '"'
    return node


_RowDumper.add_representer(str, _text)
