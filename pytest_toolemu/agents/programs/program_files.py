"""The files that belong to an agent's identity: its scripts, and the files that it watches."""

from __future__ import annotations

from pathlib import Path


def script_in(word: str, folder: Path) -> Path | None:
    """Return the path of the file that a word of a command names, relative to the folder; None if there is none there.

    Files elsewhere, such as the interpreter, differ between machines, so they are no part of an identity.
    """
    try:
        path = (folder / word).resolve()
        return path if path.is_file() and path.is_relative_to(folder.resolve()) else None
    except (OSError, ValueError):  # a word can be longer than any path, or contain a null character
        return None
