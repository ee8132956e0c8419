"""Writes rows into the text of a case file, and removes pins; everything else in the file stays as it is."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import yaml

from pytest_toolemu.formats.yaml_document import KEY, Document, StrictDumper

Json = dict[str, Any]
_WIDTH: Final = 140


def with_world(
    document: Document,
    world: Mapping[str, Mapping[str, list[Json]]],
    ids: Mapping[str, list[Any]],
    *,
    remove: Collection[int],
) -> str:
    """Return the text of a case file with these rows and keys added, and without the pins of these numbers."""
    lines = document.text.splitlines(keepends=True)
    pins = document.value.get("pins") or []
    start, end = _section(document, "pins", lines)
    pin_lines = list(_kept_pins(document, lines, remove, end)) if len(remove) < len(pins) else []
    pins_text = [lines[start], *pin_lines] if pin_lines else []
    added = [*_world_lines(document, world), *_ids_lines(document, ids)]
    if "world" in document.value:
        _, world_end = _section(document, "world", lines)
        return "".join([*lines[:world_end], *added, *lines[world_end:start], *pins_text, *lines[end:]])
    return "".join([*lines[:start], *added, *pins_text, *lines[end:]])


def _kept_pins(document: Document, lines: list[str], remove: Collection[int], end: int) -> Iterator[str]:
    pins = document.value["pins"]
    starts = [document.position(("pins", index))[0] - 1 for index in range(len(pins))] + [end]
    for index in range(len(pins)):
        if index not in remove:
            yield from lines[starts[index] : starts[index + 1]]


def _world_lines(document: Document, world: Mapping[str, Mapping[str, list[Json]]]) -> Iterator[str]:
    if world and "world" not in document.value:
        yield "world:\n"
    for kit, entities in world.items():
        yield f"  {kit}:\n" if entities else f"  {kit}: {{}}\n"
        for name, rows in entities.items():
            yield f"    {name}:\n"
            for row in rows:
                yield from row_lines(row, 6)


def _ids_lines(document: Document, ids: Mapping[str, list[Any]]) -> Iterator[str]:
    if ids and "ids" not in document.value:
        yield "ids:\n"
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
    style = "|" if "\n" in value and not any(line != line.rstrip() for line in value.split("\n")) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_RowDumper.add_representer(str, _text)


def _section(document: Document, key: str, lines: list[str]) -> tuple[int, int]:
    """Return the first line of a top-level key and the line after its section; where to insert it if it is absent."""
    starts = sorted(document.position((other, KEY))[0] - 1 for other in document.value)
    if key not in document.value:
        following = [name for name in ("checks", "references", "thresholds", "inferred") if name in document.value]
        place = min((document.position((name, KEY))[0] - 1 for name in following), default=len(lines))
        return place, place
    start = document.position((key, KEY))[0] - 1
    end = next((line for line in starts if line > start), len(lines))
    while end > start + 1 and (not lines[end - 1].strip() or lines[end - 1].lstrip().startswith("#")):
        end -= 1
    return start, end
