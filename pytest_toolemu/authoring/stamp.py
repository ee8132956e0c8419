"""Writes a dataset's split and canary into its files, and leaves every other character as it is."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pytest_toolemu.core.case_loading import load_case
from pytest_toolemu.core.dataset import FILE, Dataset, DatasetFiles, find_dataset, load_dataset
from pytest_toolemu.core.toolkit import load_toolkit
from pytest_toolemu.errors import DocumentError, UsageError
from pytest_toolemu.formats.atomic_write import write_json_text
from pytest_toolemu.formats.yaml_document import KEY, Document, Loc

# A scalar on one line, and the comment after it.
_SCALAR: Final = re.compile(
    r"(\"(?:[^\"\\]|\\.)*\"|'(?:[^']|'')*'|(?:[^#\s]|[ \t]+(?=[^#\s]))*)(\s+#.*|\s*)\Z", re.DOTALL
)


@dataclass(frozen=True)
class StampedFile:
    """What a stamping came to."""

    dataset: Dataset
    cases: int
    heldout: int
    toolkits: int
    written: tuple[Path, ...]


def stamp(folder: Path) -> StampedFile:
    """Stamp all files of the dataset that the folder is in; files that are right already are not written.

    UsageError without a dataset, DocumentError for a file that does not load; then nothing is written.
    """
    path = find_dataset(folder if folder.is_dir() else folder.parent)
    if path is None:
        raise UsageError(f"{folder}: there is no {FILE} in it or above it; write one, or name the dataset's folder")
    dataset, files = load_dataset(path), DatasetFiles(path)
    wanted: dict[Path, dict[str, str]] = {}
    heldout = 0
    for file in files.cases:
        split = dataset.split_of(load_case(file).case)
        heldout += split == "heldout"
        wanted[file] = {"split": split, "canary": dataset.canary}
    for file in files.toolkits:
        load_toolkit(file)
        wanted[file] = {"canary": dataset.canary}
    texts = {file: (_text(file), with_values(_text(file), values, file)) for file, values in wanted.items()}
    changed = tuple(file for file, (before, after) in texts.items() if before != after)
    for file in changed:
        write_json_text(file.resolve(), texts[file][1])
    return StampedFile(dataset, len(files.cases), heldout, len(files.toolkits), changed)


def _text(path: Path) -> str:
    # Not documents.read_text: a byte order mark is to stay.
    return path.read_bytes().decode()


def with_values(text: str, values: dict[str, str], path: Path) -> str:
    """A YAML mapping as text, with these texts under top-level keys: replaced where they are, else added at the end.

    DocumentError, with the lines to write by hand, for a file that is laid out too unusually.
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
            comment = found[2] if (found := _SCALAR.match(after)) else ""
            lines[line - 1] = before + _scalar(value) + comment
    changed = "".join(lines)
    if not _says(changed, {**document.value, **values}, path):
        by_hand = "; ".join(f"{key}: {_scalar(value)}" for key, value in values.items())
        message = f"the file is laid out so that its keys cannot be written safely; write them yourself: {by_hand}"
        there: list[Loc] = [(key, KEY) for key in values if key in document.value]
        raise document.error([(there[0] if there else (), message)])
    return changed


def _scalar(value: str) -> str:
    return value if value.isalpha() else json.dumps(value, ensure_ascii=False)


def _says(text: str, value: object, path: Path) -> bool:
    try:
        return bool(Document.parse(text.removeprefix("\ufeff"), path).value == value)
    except DocumentError:
        return False
