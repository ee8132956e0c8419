"""A lock that one process at a time holds, and that the operating system releases when the process ends."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def lock_file(path: Path, *, wait: bool = False) -> int:
    """Create a file if necessary, lock it, and return its descriptor; closing that releases the lock.

    If another process holds the lock, ``wait`` until it releases it, on Windows for at most 10 seconds, or raise
    BlockingIOError. Raise another OSError if the file system has no locks.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _lock(descriptor, wait)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int, wait: bool) -> None:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
        except PermissionError as error:  # another process holds the lock; the other errors are those of other systems
            raise BlockingIOError(error.errno, error.strerror) from None
else:
    import fcntl

    def _lock(descriptor: int, wait: bool) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
