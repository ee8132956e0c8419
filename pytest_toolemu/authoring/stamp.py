"""Writes a dataset's split and canary into its files, without changing any other character."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pytest_toolemu.core.case import DATASET_FILE, Dataset, DatasetFiles, find_dataset, load_dataset
from pytest_toolemu.core.case_loading import load_case, load_toolkit
from pytest_toolemu.errors import DocumentError, UsageError
from pytest_toolemu.formats.file_access import write_atomically
from pytest_toolemu.formats.yaml_document import KEY, Document, Loc

# A scalar on one line, and the comment after it.
_SCALAR: Final = re.compile(
    r"(\"(?:[^\"\\]|\\.)*\"|'(?:[^']|'')*'|(?:[^#\s]|[ \t]+(?=[^#\s]))*)(\s+#.*|\s*)\Z", re.DOTALL
)


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
    texts = {file: (_text(file), with_values(_text(file), values, file)) for file, values in stamps.items()}
    changed = tuple(file for file, (before, after) in texts.items() if before != after)
    for file in changed:
        write_atomically(file.resolve(), texts[file][1])
    return StampResult(dataset, len(files.cases), heldout, len(files.toolkits), changed)


def _text(path: Path) -> str:
    # Not yaml_document.read_text: a byte order mark must be kept.
    return path.read_bytes().decode()


def with_values(text: str, values: dict[str, str], path: Path) -> str:
    """Return the text of a YAML mapping with these top-level values replaced, or added at the end.

    Raise DocumentError with the lines to write by hand if the layout of the file is too unusual.
    """
    document = Document.parse(text.removeprefix("\ufeff"), path)
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)
    end = "\r\n" if lines[0].endswith("\r\n") else "\n"
    for key, value in values.items():
        if key not in document.value:
            lines[-1] = lines[-1] if lines[-1].endswith("\n") else lines[-1] + end
            lines.append(f"{key}: {_scalar(value)}{end}")
        elif document.value[key] != value:
            line, column = document.position((key,))
            before, after = lines[line - 1][: column - 1], lines[line - 1][column - 1 :]
            comment = scalar[2] if (scalar := _SCALAR.match(after)) else ""
            lines[line - 1] = before + _scalar(value) + comment
    changed = "".join(lines)
    if not _has_value(changed, {**document.value, **values}, path):
        by_hand = "; ".join(f"{key}: {_scalar(value)}" for key, value in values.items())
        message = f"keys cannot be inserted safely into a file with this layout; insert them yourself: {by_hand}"
        present: list[Loc] = [(key, KEY) for key in values if key in document.value]
        raise document.error([(present[0] if present else (), message)])
    return changed


def _scalar(value: str) -> str:
    return value if value.isalpha() else json.dumps(value, ensure_ascii=False)


def _has_value(text: str, value: object, path: Path) -> bool:
    try:
        return bool(Document.parse(text.removeprefix("\ufeff"), path).value == value)
    except DocumentError:
        return False
