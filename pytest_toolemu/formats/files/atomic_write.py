"""Write a file completely or not at all."""

from __future__ import annotations

import contextlib
import os
from os import fsync, replace
from pathlib import Path
from secrets import token_hex

from pytest_toolemu.formats.files.private_folders import opener_in
from pytest_toolemu.formats.redaction import redact

# People write these files, and ``dump`` redacts values: in YAML text, a label would be read as a list.
_REDACTED_BEFORE = (".yaml", ".yml")

# Bound at import, as are `fsync` and `replace`: an agent in this process may replace the built-in function.
_open = open


def write_json_text(path: Path, text: str, *, durable: bool = True) -> None:
    """Write a file completely or not at all, without secrets: to a temporary file next to it, then rename.

    A ``durable`` file survives a power failure. In a folder that only its owner can enter, only its owner can read the
    file.
    """
    if path.suffix not in _REDACTED_BEFORE:
        text = redact(text)
    # The temporary name does not contain the file's name, which may have the maximum length.
    temporary = path.with_name(f".toolemu-{os.getpid()}-{token_hex(4)}.tmp")
    try:
        # Line ends are not translated on Windows either: parts are named by the hash of their bytes.
        with _open(temporary, "w", encoding="utf-8", newline="", opener=opener_in(path.parent)) as file:
            file.write(text)
            if durable:
                file.flush()
                fsync(file.fileno())
        replace(temporary, path)  # noqa: PTH105 - Path.replace looks the function up again
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Write a folder's entries to the disk, so that a renamed file survives a power failure. Not all systems can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            fsync(descriptor)
        finally:
            os.close(descriptor)
