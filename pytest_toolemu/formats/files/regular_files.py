"""Read files that other programs or people may have written: only regular files, and of bounded size."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def read_regular(path: Path, limit: int) -> bytes:
    """Return the content of a regular file of at most ``limit`` bytes. Raise OSError with the reason for anything else.

    This never blocks: a FIFO, a device, or a socket in place of a file is refused before it is read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except ValueError:  # a NUL character in the path
        raise OSError(errno.EINVAL, "not a path", str(path)) from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            # Read one byte more than allowed: the file may grow while it is read.
            content = file.read(limit + 1) if status.st_size <= limit else b""
    finally:
        os.close(descriptor)
    if status.st_size > limit or len(content) > limit:
        raise OSError(errno.EFBIG, f"more than {limit:,} bytes, the limit for such a file", str(path))
    return content
