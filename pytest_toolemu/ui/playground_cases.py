"""The cases that a person can choose, and cases that a person writes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, get_args

from pytest_toolemu.authoring.case_text import lines_of, section, with_world
from pytest_toolemu.authoring.pin import pins_of, with_pins
from pytest_toolemu.authoring.starter import case_template, create_text
from pytest_toolemu.core.case import SUFFIX, SUFFIXES, ResolvedCase
from pytest_toolemu.core.case_loading import build_case, case_id
from pytest_toolemu.core.run import Run
from pytest_toolemu.core.toolkit import benchmark_folder
from pytest_toolemu.core.toolkit_files import known_toolkits
from pytest_toolemu.core.world.state_changes import Rows, apply_changes
from pytest_toolemu.core.world.world import World
from pytest_toolemu.errors import DocumentError, UsageError
from pytest_toolemu.formats.identifiers import case_id_problem
from pytest_toolemu.formats.yaml_document import MAX_BYTES, Document, closest, read_text, show
from pytest_toolemu.ui.play import Play

NEW_CASE: Final = "my-case"
"""The ID of a case that a person begins to write."""


class PlaygroundCases:
    """Finds cases of the project, which are in ``folder``, and those of the benchmark."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def of_project(self) -> dict[str, Path]:
        """Return the project's case files by ID, sorted; empty if the folder does not exist."""
        return _cases_below(self.folder)

    @cached_property
    def of_benchmark(self) -> dict[str, Path]:
        """The case files of the benchmark by ID, sorted."""
        return _cases_below(benchmark_folder() / "cases")

    def toolkits(self) -> list[str]:
        """Return the names of the toolkits that a case of the project can use."""
        return sorted(known_toolkits(self.folder.resolve()))

    def text(self, name: str) -> str:
        """Return the text of the case with this ID. Raise UsageError if there is none, DocumentError if unreadable."""
        path = self._path(name)
        if path is None:
            hint = closest(name, {**self.of_benchmark, **self.of_project()})
            raise UsageError(f"there is no case {show(name)}{hint or '; choose one from the list'}")
        return read_text(path)

    def template(self, toolkit: str) -> str:
        """Return the text of a new case for a toolkit. Raise UsageError if it is unknown."""
        return case_template((toolkit,), self.target(NEW_CASE))

    def target(self, name: str) -> Path:
        """Return the file of a case of the project. Raise UsageError for an ID that is not valid."""
        if problem := case_id_problem(name):
            raise UsageError(f"{show(name)} cannot be the ID of a case: {problem}")
        return self.of_project().get(name) or self.folder / f"{name}{SUFFIX}"

    def document(self, name: str, text: str) -> Document:
        """Return the parsed text, as the file of the chosen case if it is unchanged, else as a file of the project.

        Only then, the run may claim to be of the dataset of that file.
        """
        path = self._path(name)
        if path is None or read_text(path).replace("\r\n", "\n") != text:
            path = self.target(name)
        if len(text.encode("utf-8", "replace")) > MAX_BYTES:
            raise DocumentError(path, [(1, 1, f"the text is longer than {MAX_BYTES:,} bytes; shorten it")])
        return Document.parse(text, path)

    def case(self, name: str, text: str) -> ResolvedCase:
        """Return the case in a text. Raise DocumentError with all problems, and UsageError for an ID not valid."""
        return build_case(self.document(name, text))

    def _path(self, name: str) -> Path | None:
        return self.of_project().get(name) or self.of_benchmark.get(name)


def _cases_below(folder: Path) -> dict[str, Path]:
    files = sorted(path for path in folder.rglob("*.toolemu.y*ml") if path.name.endswith(SUFFIXES) and path.is_file())
    return {case_id(path): path for path in sorted(files, key=lambda path: path.name)}


SavedKind = Literal["case", "pins", "world"]
KINDS: Final[tuple[SavedKind, ...]] = get_args(SavedKind)


@dataclass(frozen=True)
class SavedCase:
    """The file that was written, and notes for its author."""

    path: Path
    notes: tuple[str, ...] = ()


def save_play(cases: PlaygroundCases, play: Play, kind: SavedKind, name: str) -> SavedCase:
    """Write a play as a case with this ID to the project's folder of cases. An existing file is never changed.

    ``pins`` fixes every result of the play, ``world`` begins with the rows at the end of the play. Raise UsageError if
    that is not possible, and DocumentError if the case would not be valid.
    """
    target = cases.target(name)
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
    text = with_pins(document, [pin for pin in pins if pin not in (document.value.get("pins") or [])])
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
    rows = apply_changes(world.beginning.initial, changes, world.beginning.keys)
    keys = {
        f"{kit}.{name}": {str(row[world.beginning.keys[kit][name]]) for row in entries}
        for kit, entities in rows.items()
        for name, entries in entities.items()
    }
    unused = {
        entity: [key for key in of_entity if str(key) not in keys.get(entity, ())]
        for entity, of_entity in run.case.ids.items()
    }
    for name in ("world", "ids"):
        document = _without(document, name)
    return with_world(document, _plain(rows), {name: left for name, left in unused.items() if left})


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
