"""Writes a dataset's split and canary into its files, without changing any other character."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

from pytest_toolemu.core.case import DATASET_FILE, Dataset, DatasetFiles, find_dataset, load_dataset
from pytest_toolemu.core.case_loading import load_case, load_toolkit
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.file_access import write_atomically
from pytest_toolemu.formats.yaml_document import YamlText


@dataclass(frozen=True)
class StampResult:
    """The result of stamping a dataset: counts of its files, and the files that were written."""

    dataset: Dataset
    cases: int
    heldout: int
    toolkits: int
    written: tuple[Path, ...]


def stamp(folder: Path) -> StampResult:
    """Stamp all files of the dataset that the folder is in. Files that have the right values are not written.

    Raise UsageError if there is no dataset, and DocumentError if a file is not valid; then nothing is written.
    """
    path = find_dataset(folder if folder.is_dir() else folder.parent)
    if path is None:
        raise UsageError(
            f"{folder}: neither this folder nor one above it contains {DATASET_FILE}; create one, or name its folder"
        )
    dataset, files = load_dataset(path), DatasetFiles(path)
    stamps: dict[Path, dict[str, str]] = {}
    heldout = 0
    for file in files.cases:
        split = dataset.split_of(load_case(file).case)
        heldout += split == "heldout"
        stamps[file] = {"split": split, "canary": dataset.canary}
    for file in files.toolkits:
        load_toolkit(file)
        stamps[file] = {"canary": dataset.canary}
    texts = {file: (_text(file), with_values(_text(file), values)) for file, values in stamps.items()}
    changed = tuple(file for file, (before, after) in texts.items() if before != after)
    for file in changed:
        write_atomically(file.resolve(), texts[file][1])
    return StampResult(dataset, len(files.cases), heldout, len(files.toolkits), changed)


def _text(path: Path) -> str:
    # Not yaml_document.read_text: a byte order mark and line ends must be kept.
    return path.read_bytes().decode()


def with_values(text: str, values: dict[str, str]) -> str:
    """Return the text of a YAML mapping with these top-level values replaced, or added at the end."""
    mark, end = "\ufeff" * text.startswith("\ufeff"), "\r\n" if "\r\n" in text else "\n"
    edited = YamlText(text.removeprefix(mark).replace("\r\n", "\n"))
    before = yaml.safe_load(edited.text)
    for key, value in values.items():
        if before.get(key) != value:
            edited = edited.with_value((key,), value)
    return mark + edited.text.replace("\n", end)
