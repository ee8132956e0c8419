"""The folder that a merge writes: replaced only where it holds what an earlier merge wrote, and nothing else."""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Literal

from pytest_toolemu.core.run_file import MAX_RUN_BYTES, PARTS
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.files.atomic_write import write_json_text
from pytest_toolemu.formats.files.private_folders import make_folder
from pytest_toolemu.formats.files.regular_files import read_regular
from pytest_toolemu.formats.files.stored_json import read_record
from pytest_toolemu.formats.identifiers import ContentHash
from pytest_toolemu.formats.yaml_document import Record
from pytest_toolemu.settings import REPORT

CONTENTS: Final = "merge.json"
"""File in a merged folder: the other files that the merge wrote, each with a hash of its content."""

_REMEDY: Final = "name another folder with --into, or delete this one"


class Contents(Record):
    """The files of a merged session, by their names in its folder, each with the SHA-256 of its content."""

    version: Literal[1] = 1
    files: dict[str, ContentHash]


def refuse_foreign(into: Path) -> None:
    """Raise UsageError unless the folder may be replaced: it is new or empty, or holds what an earlier merge wrote.

    Reports of the earlier merge may be there too; they are kept.
    """
    if into.is_symlink():
        raise UsageError(f"--into: {into} is a link; name the folder itself")
    if not into.exists():
        return
    if not into.is_dir():
        raise UsageError(f"--into: {into} is not a folder; name a folder with --into")
    names = list(_entries(into))
    if not names:
        return
    hashes = _written(into)
    if foreign := [name for name in names if name not in hashes and not _is_report(into / name)]:
        raise UsageError(f"--into: {into} contains {foreign[0]}, which 'toolemu merge' did not write; {_REMEDY}")
    for name in names:
        if name in hashes and name != CONTENTS and _hash(into / name) != hashes[name]:
            raise UsageError(f"--into: {into / name} has changed since the earlier merge; {_REMEDY}")


def replace_folder(into: Path, fill: Callable[[Path], None], *, private: bool) -> None:
    """Write the new content next to the folder with ``fill``, then replace the folder: whole or not at all.

    Raise OSError if the disk refuses. Only files of the earlier merge are deleted.
    """
    mark = secrets.token_hex(4)
    new, former = into.with_name(f".toolemu-{mark}.tmp"), into.with_name(f".toolemu-{mark}.old.tmp")
    try:
        make_folder(new, private=private)
        fill(new)
        files = {name: _hash(new / name) for name in _entries(new)}
        write_json_text(new / CONTENTS, Contents(files=files).model_dump_json(indent=1) + "\n")
        if into.exists():
            into.rename(former)
        new.rename(into)
        if former.exists():
            _take_over(former, into)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _take_over(former: Path, into: Path) -> None:
    """Delete what the earlier merge wrote, and keep everything else."""
    names = list(_entries(former))
    hashes = _written(former) if names else {}
    for name in names:
        if name in hashes:
            (former / name).unlink()
        else:
            (former / name).rename(into / name)
    for folder in (former / PARTS, former):
        with contextlib.suppress(OSError):
            folder.rmdir()


def _entries(folder: Path) -> Iterator[str]:
    """Yield the names of everything in a folder, sorted; of the folder of parts, the names of the files in it."""
    for path in sorted(folder.iterdir()):
        inside = sorted(path.iterdir()) if path.name == PARTS and path.is_dir() and not path.is_symlink() else []
        yield from (f"{PARTS}/{part.name}" for part in inside) if inside else (path.name,)


def _written(folder: Path) -> dict[str, str]:
    """Return the files that a merge wrote into the folder, with their hashes; empty where no merge did."""
    try:
        contents = read_record(folder / CONTENTS, Contents, expected="the list of merged files", remedy=_REMEDY)
    except FileNotFoundError:
        raise UsageError(f"--into: {folder} exists and was not created by 'toolemu merge'; {_REMEDY}") from None
    return {**contents.files, CONTENTS: ""}


def _is_report(path: Path) -> bool:
    return path.name.startswith(f"{REPORT}.") and path.is_file() and not path.is_symlink()


def _hash(path: Path) -> str:
    try:
        return hashlib.sha256(read_regular(path, MAX_RUN_BYTES)).hexdigest()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}; {_REMEDY}") from None
