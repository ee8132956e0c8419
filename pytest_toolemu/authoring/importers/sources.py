"""Notes on what an import left out, changed, or filled in, counted by kind."""

from __future__ import annotations

import gzip
import io
import json
import re
import sys
import zlib
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.file_access import read_regular

if sys.version_info >= (3, 14):
    import zipfile

    from compression import zstd
else:  # the standard library of earlier versions does not read the compression that Inspect AI uses
    from backports import zstd
    from backports.zstd import zipfile

Notes = dict[str, list[str]]
"""The locations of each kind of change."""

VOCABULARY: Final[dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("vocabulary.yaml").read_text(encoding="utf-8")
)
"""Words and names that the importers know."""

_SHOWN: Final = 3


def add_note(notes: Notes, kind: str, location: str) -> None:
    """Add the location of a change."""
    notes.setdefault(kind, []).append(location)


def note_unread(notes: Notes, kind: str, original: Mapping[str, Any], members: Container[str], location: str) -> None:
    """Add a note for every member that the importer does not read; ``kind`` names the containing object."""
    article = "an" if kind[0] in "aeiou" else "a"
    for name in original:
        if name not in members:
            add_note(notes, f"{name!r} of {article} {kind} is left out", location)


def note_lines(notes: Notes, *, details: bool = False) -> Iterator[str]:
    """Yield one line per kind of note, with its count and some of its locations, or all of them with ``details``."""
    for kind, locations in notes.items():
        listed = locations if details else locations[:_SHOWN]
        more = f" and {len(locations) - len(listed)} more" if len(listed) < len(locations) else ""
        yield f"note: {kind}: {len(locations)} ({', '.join(listed)}{more})"


def texts(value: Any) -> Iterator[str]:
    """Yield every string in a JSON value, without the names of members."""
    stack = [value]
    while stack:
        match stack.pop():
            case str(text):
                yield text
            case list(members):
                stack += reversed(members)
            case dict(members):
                stack += reversed(members.values())


# Readers of YAML disagree on integers with so many characters or more.
_DIGITS: Final = 19
_GAP: Final = re.compile(r"[ \t\r\n]*")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


MAX_BYTES: Final = 100_000_000
"""The largest file that is read, in bytes."""


def read_values(path: Path, expected: str) -> list[Any]:
    """Return the JSON values in a file, or in the samples of a log of Inspect AI (``.eval``).

    Raise UsageError if it is missing, too large, or not valid.
    """
    texts = read_samples(path, expected) if path.suffix == ".eval" else [read_file(path, expected)]
    try:
        return [value for text in texts for value in load_values(text)]
    except json.JSONDecodeError as error:
        raise UsageError(f"{path}:{error.lineno}: is not JSON: {error.msg}; this command reads {expected}") from None
    except RecursionError:
        raise UsageError(f"{path}: is nested too deeply; this command reads {expected}") from None


def read_samples(path: Path, expected: str) -> list[str]:
    """Return the samples in a log of Inspect AI, which is a ZIP archive. Raise UsageError if it is not readable."""
    try:
        with zipfile.ZipFile(io.BytesIO(read_content(path, expected))) as archive:
            names = sorted(name for name in set(archive.namelist()) if name.startswith("samples/"))
            sizes = {name: archive.getinfo(name).file_size for name in names}
            if sum(sizes.values()) > MAX_BYTES:
                raise UsageError(f"{path}: contains samples of more than {MAX_BYTES:,} bytes; split the log")
            # Without its size, a member is decompressed as a whole, however large it is.
            return [archive.open(name).read(size).decode() for name, size in sizes.items()]
    except (zipfile.BadZipFile, OSError, EOFError, ValueError, zlib.error, RuntimeError, zstd.ZstdError) as error:
        raise UsageError(f"{path}: is not a log of Inspect AI: {error}; this command reads {expected}") from None


def read_file(path: Path, expected: str) -> str:
    """Return the text of a file. Raise UsageError if it is missing, too large, or not UTF-8."""
    try:
        return read_content(path, expected).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{path}: is not UTF-8 text; this command reads {expected}") from None


def read_content(path: Path, expected: str) -> bytes:
    """Return the content of a regular file, decompressed if its name ends in ``.gz``.

    Raise UsageError if it is missing, not complete, or too large, also if only decompression makes it so.
    """
    try:
        content = read_regular(path, MAX_BYTES)
        if path.suffix == ".gz":
            content = gzip.GzipFile(fileobj=io.BytesIO(content)).read(MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        problem = getattr(error, "strerror", None) or f"not a complete gzip file: {error}"
        raise UsageError(f"{path}: cannot be read: {problem}; this command reads {expected}") from None
    if len(content) > MAX_BYTES:
        raise UsageError(f"{path}: decompresses to more than {MAX_BYTES:,} bytes; split the file")
    return content


def load_json(text: str) -> Any:
    """Return the value of JSON text. What files of cases cannot contain is replaced. Raise ValueError."""
    value = _DECODER.decode(text)
    return _storable(value) if _may_have_surrogates(text) else value


def load_values(text: str) -> Iterator[Any]:
    """Yield the JSON values in a text, with nothing or white space between them.

    Raise ValueError for text that is not JSON, and RecursionError for a value that is nested too deeply.
    """
    replaces = _may_have_surrogates(text)
    position = _after_gap(text, 0)
    while position < len(text):
        value, position = _DECODER.raw_decode(text, position)
        yield _storable(value) if replaces else value
        position = _after_gap(text, position)


def parsed(value: Any) -> Any:
    """Return the JSON value in a text; the text itself if it is not JSON."""
    if not isinstance(value, str):
        return value
    try:
        return load_json(value)
    except (ValueError, RecursionError):
        return value


def objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects in a list; empty if the value is not a list."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _after_gap(text: str, position: int) -> int:
    match = _GAP.match(text, position)
    return match.end() if match else position


def _may_have_surrogates(text: str) -> bool:
    return "\\ud" in text or "\\uD" in text


def _storable(value: Any) -> Any:
    """Replace halves of surrogate pairs, which are valid in JSON but not in UTF-8."""
    if isinstance(value, str):
        return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", value)
    if isinstance(value, dict):
        return {_storable(key): _storable(part) for key, part in value.items()}
    return [_storable(part) for part in value] if isinstance(value, list) else value


def _number(text: str) -> Any:
    """Return a number; the text of one that files of cases cannot contain."""
    if text.lstrip("-").isdigit():
        return int(text) if len(text) < _DIGITS else text
    return text if abs(float(text)) == float("inf") else float(text)


_DECODER: Final = json.JSONDecoder(parse_int=_number, parse_float=_number, parse_constant=str)
