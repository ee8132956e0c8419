"""Turns the pins of a case into rows of its world."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_toolemu.agents.reference import ReferenceAgent
from pytest_toolemu.authoring.play_references import play
from pytest_toolemu.authoring.rows_of_pins import answer_of_rows, plan_of_tool, rows_of_pins, shortened_json
from pytest_toolemu.authoring.world_text import with_world
from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.case_loading import build_case, load_case
from pytest_toolemu.core.case_parts.case_rules import Pin
from pytest_toolemu.core.trajectory import Step
from pytest_toolemu.core.world.toolkit_plan import plan_of
from pytest_toolemu.errors import DocumentError, ToolemuError, UsageError
from pytest_toolemu.formats.files.atomic_write import write_json_text
from pytest_toolemu.formats.yaml_document import Document

Json = dict[str, Any]


@dataclass(frozen=True)
class MigratedCase:
    """The file, how many rows it gained, how many pins it lost and kept, and notes for the author."""

    path: Path
    rows: int
    removed: int
    kept: int
    notes: tuple[str, ...]


def migrate_pins(path: Path, *, drop_all: bool = False) -> MigratedCase:
    """Write rows instead of pins for the toolkits of a case that declare entities.

    Pins that the rows answer equally are removed; with ``drop_all``, all pins of tools with an operation. Raise
    DocumentError if the case is not valid, and UsageError if its pins do not make valid rows.
    """
    document = Document.read(path)
    resolved_case = load_case(path)
    case = resolved_case.case
    plans = {kit.name: plan_of(kit) for kit in resolved_case.toolkits if kit.entities and kit.name not in case.world}
    if not plans:
        note = "the case already has rows for all entities that its toolkits declare"
        return MigratedCase(path, 0, 0, len(case.pins), (note,))
    rows = rows_of_pins(case, plans)
    rows.complete(case)
    world, ids = rows.world, {name: keys for name, keys in rows.ids.items() if keys}
    migrated = {index for index, pin in enumerate(case.pins) if plan_of_tool(plans, pin.tool) is not None}
    try:
        without = build_case(Document.parse(with_world(document, world, ids, remove=migrated), path))
    except DocumentError as error:
        raise UsageError(f"{path}: the pins do not make valid rows; migrate this case by hand:\n{error}") from None
    different = _differences(resolved_case, without, migrated)
    removed = migrated if drop_all else migrated - different.keys()
    text = with_world(document, world, ids, remove=removed)
    build_case(Document.parse(text, path))
    write_json_text(path, text)
    verb = "removed, although" if drop_all else "kept:"
    notes = [f"pins[{index}] {case.pins[index].tool}: {verb} {text}" for index, text in sorted(different.items())]
    count = sum(len(entries) for tables in world.values() for entries in tables.values())
    return MigratedCase(path, count, len(removed), len(case.pins) - len(removed), (*rows.notes, *notes))


def _differences(before: ResolvedCase, after: ResolvedCase, migrated: set[int]) -> dict[int, str]:
    """Return how the rows answer differently, by the number of the pin; pins that cannot be compared count as such."""
    compared: set[int] = set()
    different: dict[int, str] = {}
    for label in before.case.references:
        try:
            old = asyncio.run(play(before, ReferenceAgent(label))).steps
            new = asyncio.run(play(after, ReferenceAgent(label))).steps
        except ToolemuError as error:
            return dict.fromkeys(migrated, f"the reference {label!r} cannot be played: {error}")
        for one, other in zip(old, new, strict=False):
            index = _pin_of(before, one)
            if index in migrated:
                compared.add(index)
                if one.observation.content != other.observation.content:
                    texts = (shortened_json(step.observation.content) for step in (other, one))
                    different.setdefault(index, "rows return {}, and the pin returns {}".format(*texts))
    for index in migrated - compared:
        text = _compare(after, before.case.pins[index])
        if text:
            different[index] = text
    return different


def _pin_of(resolved_case: ResolvedCase, step: Step) -> int:
    """Return the number of the pin that answered a call, also of pins with ``nth``; -1 if none did."""
    for index, pin in enumerate(resolved_case.case.pins):
        if step.observation.source != "pinned" or step.call.tool is None:
            break
        if pin.content == step.observation.content and resolved_case.matches(pin, step.call.tool, step.call.arguments):
            return index
    return -1


def _compare(resolved_case: ResolvedCase, pin: Pin) -> str:
    """Return how the rows answer the call that a pin describes differently; empty if they answer it equally."""
    content = answer_of_rows(resolved_case, pin)
    if content is None:
        return "it was not compared, because no reference makes such a call and the pin does not state all arguments"
    if content == pin.content:
        return ""
    return f"rows return {shortened_json(content)}, and the pin returns {shortened_json(pin.content)}"
