"""Finds where the sections of a case file begin and end, so that text can be inserted without moving comments."""

from __future__ import annotations

from typing import Final

from pytest_toolemu.formats.yaml_document import KEY, Document

AFTER_PINS: Final = ("checks", "references", "unlabeled", "conversation", "proof", "thresholds", "inferred")
"""The keys before which rows and pins are inserted, as in the documented order."""


def lines_of(document: Document) -> list[str]:
    """Return the lines of a file with their ends; the last one has an end, too."""
    lines = document.text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    return lines


def section(document: Document, key: str) -> tuple[int, int]:
    """Return the first line of a top-level key, counted from 0, and the line after its last one.

    Comments and empty lines before the next key belong to that key.
    """
    lines = lines_of(document)
    starts = sorted(document.position((other, KEY))[0] - 1 for other in document.value)
    start = document.position((key, KEY))[0] - 1
    end = next((line for line in starts if line > start), len(lines))
    while end > start + 1 and (not lines[end - 1].strip() or lines[end - 1].lstrip().startswith("#")):
        end -= 1
    return start, end


def insertion_line(document: Document, *keys: str) -> int:
    """Return the line before the first of these top-level keys and its comments; the end if the file has none."""
    lines = lines_of(document)
    line = min((document.position((key, KEY))[0] - 1 for key in keys if key in document.value), default=len(lines))
    while line < len(lines) and line > 0 and lines[line - 1].lstrip().startswith("#"):
        line -= 1
    return line


def is_block(document: Document, key: str) -> bool:
    """Return whether the value of a top-level key is in block style: it begins on a line of its own."""
    return document.position((key,))[0] > document.position((key, KEY))[0]
