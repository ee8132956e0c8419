"""Write a file whole or not at all."""

from __future__ import annotations

import contextlib
import os
from os import fsync
from pathlib import Path
from secrets import token_hex

from pytest_toolemu.formats.private_folders import opener_in

# Bound now: an agent may replace it.
_open = open


def write_json_text(path: Path, text: str) -> None:
    """Write a file whole or not at all: into a sibling, to the disk, then renamed over it. It outlasts a power cut.

    In a folder that only its owner may enter, only its owner may read it.
    """
    # Not named by the file, whose name may be as long as a name can be.
    temporary = path.with_name(f".toolemu-{os.getpid()}-{token_hex(4)}.tmp")
    try:
        with _open(temporary, "w", encoding="utf-8", opener=opener_in(path.parent)) as file:
            file.write(text)
            file.flush()
            fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _settle(path.parent)


def _settle(folder: Path) -> None:
    """Have a folder's names on the disk too: a power cut after this takes no file away. Not every system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            fsync(descriptor)
        finally:
            os.close(descriptor)
