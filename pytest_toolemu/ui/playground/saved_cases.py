"""Saves a play as a case of the project: its text, with pins of its results, or with the rows at its end."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args

from pytest_toolemu.authoring.case_sections import lines_of, section
from pytest_toolemu.authoring.pin import pins_of, with_pins
from pytest_toolemu.authoring.scaffold.new_file import create_text
from pytest_toolemu.authoring.world_text import with_world
from pytest_toolemu.core.case_loading import build_case
from pytest_toolemu.core.run import Run
from pytest_toolemu.core.world.state_changes import Rows, apply_changes
from pytest_toolemu.core.world.world import World
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.yaml_document import Document
from pytest_toolemu.ui.playground.case_shelf import CaseShelf
from pytest_toolemu.ui.playground.play import Play

SavedKind = Literal["case", "pins", "world"]
KINDS: Final[tuple[SavedKind, ...]] = get_args(SavedKind)


@dataclass(frozen=True)
class SavedCase:
    """The file that was written, and notes for its author."""

    path: Path
    notes: tuple[str, ...] = ()


def save_play(shelf: CaseShelf, play: Play, kind: SavedKind, name: str) -> SavedCase:
    """Write a play as a case with this ID to the project's folder of cases. An existing file is never changed.

    ``pins`` fixes every result of the play, ``world`` begins with the rows at the end of the play. Raise UsageError if
    that is not possible, and DocumentError if the case would not be valid.
    """
    target = shelf.target(name)
    if target.exists():
        raise UsageError(f"{target} exists; choose another ID")
    document = Document.parse(play.setup.text, target)
    if kind == "case":
        return _written(target, document.text, ())
    run = play.run
    if run is None:
        raise UsageError("the play has no results yet that could be saved; end it first")
    if kind == "world":
        if not run.case.world:
            raise UsageError("the case has no rows that could be saved; save its results as pins")
        return _written(target, _with_final_rows(document, run, play), ())
    pins, notes = pins_of(run)
    text, _ = with_pins(document, [pin for pin in pins if pin not in (document.value.get("pins") or [])])
    return _written(target, text, tuple(notes))


def _written(target: Path, text: str, notes: tuple[str, ...]) -> SavedCase:
    build_case(Document.parse(text, target))
    try:
        is_new = create_text(target, text)
    except OSError as error:
        raise UsageError(f"{target}: cannot be written: {error.strerror}; correct its permissions") from None
    if not is_new:
        raise UsageError(f"{target} exists; choose another ID")
    return SavedCase(target, notes)


def _with_final_rows(document: Document, run: Run, play: Play) -> str:
    world = World.of(play.resolved_case)
    changes = (change for step in run.steps for change in step.changes)
    rows = apply_changes(world.initial, changes, world.keys())
    keys = {
        f"{kit}.{name}": {str(row[world.keys()[kit][name]]) for row in entries}
        for kit, entities in rows.items()
        for name, entries in entities.items()
    }
    unused = {
        entity: [key for key in of_entity if str(key) not in keys.get(entity, ())]
        for entity, of_entity in run.case.ids.items()
    }
    for name in ("world", "ids"):
        document = _without(document, name)
    return with_world(document, _plain(rows), {name: left for name, left in unused.items() if left}, remove=())


def _without(document: Document, name: str) -> Document:
    if name not in document.value:
        return document
    lines = lines_of(document)
    start, end = section(document, name)
    return Document.parse("".join([*lines[:start], *lines[end:]]), document.path)


def _plain(rows: Rows) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Return the rows without empty fields, which a case file leaves out."""
    return {
        kit: {
            name: [{key: value for key, value in row.items() if value is not None} for row in entries]
            for name, entries in entities.items()
        }
        for kit, entities in rows.items()
    }
