"""Writes rows into the text of a case file, and removes pins; everything else in the file stays as it is."""

from __future__ import annotations

import io
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import yaml

from pytest_toolemu.authoring.case_sections import AFTER_PINS, insertion_line, is_block, lines_of, section
from pytest_toolemu.formats.yaml_document import Document, StrictDumper, represent_text

Json = dict[str, Any]
Edit = tuple[int, int, list[str]]
"""The first line that is replaced, the line after the last one, and the lines instead."""

_WIDTH: Final = 140
_SPACE_AT_END: Final = re.compile(r"[^\S\n](?:\n|\Z)")


def with_world(
    document: Document,
    world: Mapping[str, Mapping[str, list[Json]]],
    ids: Mapping[str, list[Any]],
    *,
    remove: Collection[int],
) -> str:
    """Return the text of a case file with these rows and keys added, and without the pins of these numbers."""
    lines = lines_of(document)
    # Later lines first, so that the numbers of earlier ones stay. At the same line, the last edit comes first.
    edits = [_pins_edit(document, lines, remove), _ids_edit(document, ids), _world_edit(document, world)]
    for start, end, text in sorted(edits, key=lambda edit: edit[0], reverse=True):
        lines[start:end] = text
    return "".join(lines)


def _pins_edit(document: Document, lines: list[str], remove: Collection[int]) -> Edit:
    pins = document.value.get("pins") or []
    if "pins" not in document.value:
        return 0, 0, []
    start, end = section(document, "pins")
    starts = [document.position(("pins", index))[0] - 1 for index in range(len(pins))] + [end]
    kept = [
        line for index in range(len(pins)) if index not in remove for line in lines[starts[index] : starts[index + 1]]
    ]
    return start, end, [lines[start], *kept] if kept else []


def _world_edit(document: Document, world: Mapping[str, Mapping[str, list[Json]]]) -> Edit:
    present = document.value.get("world") or {}
    if "world" not in document.value:
        place = insertion_line(document, "pins", *AFTER_PINS)
        return place, place, ["world:\n", *_kit_lines(world)] if world else []
    start, end = section(document, "world")
    if is_block(document, "world"):
        return end, end, list(_kit_lines(world))
    return start, end, ["world:\n", *_kit_lines({**present, **world})]


def _ids_edit(document: Document, ids: Mapping[str, list[Any]]) -> Edit:
    if "ids" not in document.value:
        in_file = "world" in document.value
        place = section(document, "world")[1] if in_file else insertion_line(document, "pins", *AFTER_PINS)
        return place, place, ["ids:\n", *_key_lines(ids)] if ids else []
    start, end = section(document, "ids")
    if is_block(document, "ids"):
        return end, end, list(_key_lines(ids))
    return start, end, ["ids:\n", *_key_lines({**document.value["ids"], **ids})]


def _kit_lines(world: Mapping[str, Mapping[str, list[Json]]]) -> Iterator[str]:
    for kit, entities in world.items():
        yield f"  {kit}:\n" if entities else f"  {kit}: {{}}\n"
        for name, rows in entities.items():
            yield f"    {name}:\n" if rows else f"    {name}: []\n"
            for row in rows:
                yield from row_lines(row, 6)


def _key_lines(ids: Mapping[str, list[Any]]) -> Iterator[str]:
    for name, keys in ids.items():
        yield f"  {name}: {_flow(keys)}\n"


def row_lines(row: Json, indent: int) -> Iterator[str]:
    """Yield the lines of one row: on one line if it fits, otherwise a line for each field."""
    space = " " * indent
    one_line = _flow(row)
    if len(one_line) + indent + 2 <= _WIDTH and not any(
        "\n" in value for value in row.values() if isinstance(value, str)
    ):
        yield f"{space}- {one_line}\n"
        return
    first = True
    for name, value in row.items():
        text = _block({name: value})
        for line in text.splitlines():
            yield f"{space}{'- ' if first else '  '}{line}\n" if line else "\n"
            first = False


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
    stream = io.StringIO()
    yaml.dump(
        value,
        stream,
        Dumper=_RowDumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=flow,
        width=10**6 if flow else _WIDTH - 10,
    )
    return stream.getvalue()


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
