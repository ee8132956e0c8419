"""Folders that only their owner may enter: records hold prompts, personal data of test users, and texts of errors."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path


def make_folder(folder: Path, *, private: bool) -> None:
    """Make a folder, and those above it that do not exist; ``private`` ones have mode 0700 whatever the umask is.

    A folder that exists keeps its mode. OSError where it cannot be made.
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
    """Make a folder in a folder, with the same privacy, unless it exists; return its path.

    OSError if the parent does not exist: it is never created again after somebody has deleted it.
    """
    folder = parent / name
    if not folder.is_dir():
        private = is_private(parent)
        folder.mkdir(mode=0o700 if private else 0o777, exist_ok=True)
        if private:
            folder.chmod(0o700)
    return folder


def is_private(folder: Path) -> bool:
    """Tell whether only its owner may enter a folder. Always False on systems without such modes."""
    return os.name == "posix" and not folder.stat().st_mode & 0o077


def opener_in(folder: Path) -> Callable[[str, int], int]:
    """Return the ``opener`` for a new file in a folder: in one that only its owner may enter, it has mode 0600."""
    private = is_private(folder)

    def opener(path: str, flags: int) -> int:
        descriptor = os.open(path, flags, 0o600 if private else 0o666)
        if private:
            os.fchmod(descriptor, 0o600)
        return descriptor

    return opener
