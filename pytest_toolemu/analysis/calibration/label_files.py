"""Label files, as ``toolemu label`` writes them or a spreadsheet exports them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import Field, ValidationError

from pytest_toolemu.core.case_vocabulary import Metric, Score
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.files.regular_files import read_regular
from pytest_toolemu.formats.files.stored_json import MAX_BYTES
from pytest_toolemu.formats.validation_messages import explain
from pytest_toolemu.formats.yaml_document import Record, show

_WORDS: Final = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}


class Label(Record):
    """The label of one person for one run; fields that are None were left out.

    ``run`` is the name of the record's file without suffix, which people can read. ``trajectory`` is a hash of what a
    judge is shown of the run; it also finds the rejudged records of the run. One of the two is enough.
    """

    run: str = ""
    trajectory: str = ""
    annotator: str = ""
    safety: Score | None = None
    helpfulness: Score | None = None
    critical_issue: bool | None = Field(
        default=None, description="Whether something in the emulation could not have happened with real tools"
    )
    note: str = ""

    def score(self, metric: Metric) -> int | None:
        """Return the label of a metric."""
        return self.safety if metric == "safety" else self.helpfulness


@dataclass(frozen=True)
class _Line:
    """One label of a file: its line number, its content, and the position of each member for error messages."""

    number: int
    content: dict[str, Any]
    columns: Mapping[str, str]


def read_labels(paths: Iterable[Path]) -> list[Label]:
    """Read all labels of the files, which are ``.jsonl``, or ``.csv`` with a header.

    A label without ``annotator`` gets the name of its file. UsageError for a line that is not a label, and for a run
    that one person labeled twice.
    """
    labels: list[Label] = []
    positions: dict[tuple[str, str, str], str] = {}
    for path in paths:
        for line in _csv(path) if path.suffix == ".csv" else _json_lines(path):
            position = f"{path}:{line.number}"
            label = _label(path, line)
            # Two sessions can have records of the same name, in which different things happened.
            key = (label.annotator, label.run, label.trajectory)
            if key in positions:
                raise UsageError(
                    f"{position}: {label.annotator} labeled {label.run or label.trajectory} already in "
                    f"{positions[key]}; "
                    "remove one of them"
                )
            positions[key] = position
            labels.append(label)
    return labels


def _csv(path: Path) -> Iterator[_Line]:
    """Read the rows below the header; errors name a column by its number and name."""
    rows = csv.reader(io.StringIO(_text(path)), strict=True)
    try:
        names = next(rows, [])
        columns = {name: f" column {number} ({name}):" for number, name in enumerate(names, 1)}
        end = rows.line_num
        for cells in rows:
            number, end = end + 1, rows.line_num  # a cell may have several lines
            if len(cells) > len(names):
                problem = (
                    f"column {len(names) + 1}: {show(cells[len(names)])} has no name in the first line; add its "
                    "name there"
                )
                raise UsageError(f"{path}:{number}: {problem}, or remove the cell")
            content = {name: _cell(name, cell) for name, cell in zip(names, cells, strict=False) if cell}
            if content:
                yield _Line(number, content, columns)
    except csv.Error as error:
        raise UsageError(f"{path}:{rows.line_num}: not CSV: {error}; export the table again") from None


def _json_lines(path: Path) -> Iterator[_Line]:
    """Read an object from each line; errors name a member by the column of its name."""
    for number, line in enumerate(_text(path).splitlines(), 1):
        if not line.strip():
            continue
        try:
            content = json.loads(line)
        except json.JSONDecodeError as error:
            message = f"{path}:{number}:{error.colno}: not JSON: {error.msg}; correct or remove the line"
            raise UsageError(message) from None
        except (ValueError, RecursionError):  # numbers with thousands of digits, thousands of nested brackets
            raise UsageError(f"{path}:{number}:1: not a label; correct or remove the line") from None
        if not isinstance(content, dict):
            raise UsageError(f"{path}:{number}:1: {show(content)} is not a label; write an object")
        yield _Line(number, content, {name: f"{line.find(json.dumps(name)) + 1}:" for name in content})


def _text(path: Path) -> str:
    try:
        return read_regular(path, MAX_BYTES).decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}; name a file of labels that you can read") from None
    except UnicodeDecodeError as error:
        number = error.object.count(b"\n", 0, error.start) + 1
        column = error.start - error.object.rfind(b"\n", 0, error.start)
        byte = f"0x{error.object[error.start]:02x}"
        raise UsageError(f"{path}:{number}:{column}: byte {byte} is not UTF-8; save the file as UTF-8") from None


def _cell(name: str, text: str) -> Any:
    """Return the value of a cell; text that is not a value is returned unchanged, and refused by the validation."""
    if name in ("safety", "helpfulness") and text.strip().isdecimal() and len(text) < 9:
        return int(text)
    return _WORDS.get(text.strip().casefold(), text) if name == "critical_issue" else text


def _label(path: Path, line: _Line) -> Label:
    content = line.content | {"annotator": line.content.get("annotator") or path.stem}
    try:
        label = Label.model_validate(content)
    except ValidationError as error:
        loc, message = explain(Label, content, error.errors(include_url=False)[:1])[0]
        column = line.columns.get(str(loc[0]), "") if loc else ""
        fields = ", ".join(Label.model_fields)
        raise UsageError(f"{path}:{line.number}:{column} {message}; the fields of a label are {fields}") from None
    if not (label.run or label.trajectory):
        message = "does not name a run; give 'run', the name of the record's file without .json, or 'trajectory'"
        raise UsageError(f"{path}:{line.number}: {message}")
    return label
