"""Folders that only their owner can enter, as records contain prompts, personal data of test users, and error texts."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path


def make_folder(folder: Path, *, private: bool) -> None:
    """Create a folder and its missing parents. With ``private``, they have mode 0700, whatever the umask is.

    A folder that exists keeps its mode. Raise OSError if a folder cannot be created.
    """
    if folder.is_dir():
        return
    if folder.parent != folder:
        make_folder(folder.parent, private=private)
    try:
        folder.mkdir(mode=0o700 if private else 0o777)
    except FileExistsError:
        if not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)) from None
        return  # another process was faster
    if private:
        folder.chmod(0o700)


def make_subfolder(parent: Path, name: str) -> Path:
    """Create a folder in a folder with the same privacy, unless it exists, and return its path.

    Raise OSError if the parent does not exist: a folder that a user has deleted is not created again.
    """
    folder = parent / name
    if not folder.is_dir():
        private = is_private(parent)
        folder.mkdir(mode=0o700 if private else 0o777, exist_ok=True)
        if private:
            folder.chmod(0o700)
    return folder


def is_private(folder: Path) -> bool:
    """Return whether only its owner can enter a folder; always False on systems without file modes."""
    return os.name == "posix" and not folder.stat().st_mode & 0o077


def opener_in(folder: Path) -> Callable[[str, int], int]:
    """Return the ``opener`` for a new file in a folder; in a private folder, the file has mode 0600."""
    private = is_private(folder)

    def opener(path: str, flags: int) -> int:
        descriptor = os.open(path, flags, 0o600 if private else 0o666)
        if private:
            os.fchmod(descriptor, 0o600)
        return descriptor

    return opener
