"""The files that belong to an agent's identity: its scripts, and the files that it watches."""

from __future__ import annotations

from pathlib import Path

from pytest_toolemu.core.identity import file_hash
from pytest_toolemu.errors import UsageError


def script_in(word: str, folder: Path) -> Path | None:
    """Return the path of the file that a word of a command names, relative to the folder; None if there is none there.

    Files elsewhere, such as the interpreter, differ between machines, so they are not part of an identity.
    """
    try:
        path = (folder / word).resolve()
        return path if path.is_file() and path.is_relative_to(folder.resolve()) else None
    except (OSError, ValueError):  # a word can be longer than any path, or contain a null character
        return None


def file_hashes(names: tuple[str, ...], folder: Path, source: str) -> dict[str, str]:
    """Return the hash of each file by its name, and of all files in folders. Raise UsageError if one does not exist."""
    hashes: dict[str, str] = {}
    for name in names:
        path = folder / name
        if not path.exists():
            raise UsageError(f"{source}: there is no file or folder {name!r} in {folder}; correct 'watch'")
        files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
        hashes |= {file.relative_to(folder).as_posix(): file_hash(str(file.resolve())) for file in files}
    return hashes
