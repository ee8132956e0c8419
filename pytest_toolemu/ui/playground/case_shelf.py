"""The cases that a person can choose, and cases that a person writes."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Final

from pytest_toolemu.authoring.scaffold.new_file import case_template
from pytest_toolemu.core.case import SUFFIX, SUFFIXES, ResolvedCase
from pytest_toolemu.core.case_loading import build_case, case_id
from pytest_toolemu.core.toolkit import benchmark_folder
from pytest_toolemu.core.toolkit_files import known_toolkits
from pytest_toolemu.errors import DocumentError, UsageError
from pytest_toolemu.formats.identifiers import case_id_problem
from pytest_toolemu.formats.yaml_document import MAX_BYTES, Document, closest, read_text, show

NEW_CASE: Final = "my-case"
"""The ID of a case that a person begins to write."""


class CaseShelf:
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
