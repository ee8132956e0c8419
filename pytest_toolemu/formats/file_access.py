"""Write a file completely or not at all."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import stat
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from secrets import token_hex
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.redaction import redact
from pytest_toolemu.formats.validation_messages import KEY, explain, format_location

# People write these files, and ``dump`` redacts values: in YAML text, a label would be read as a list.
_REDACTED_BEFORE = (".yaml", ".yml")


def write_atomically(path: Path, text: str, *, durable: bool = True) -> None:
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
        with open(temporary, "w", encoding="utf-8", newline="", opener=opener_in(path.parent)) as file:
            file.write(text)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        _sync_folder(path.parent)


def write_for_user(path: Path, text: str, remedy: str) -> None:
    """Write a file and the folders above it. Raise UsageError with the remedy if that is not possible."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}; {remedy}") from None


def _sync_folder(folder: Path) -> None:
    """Write a folder's entries to the disk, so that a renamed file survives a power failure. Not all systems can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


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
        make_folder(folder, private=is_private(parent))
    return folder


def is_private(folder: Path) -> bool:
    """Return whether only its owner can enter a folder; always False on systems without file modes."""
    return not folder.stat().st_mode & 0o077 and os.name == "posix"


def opener_in(folder: Path) -> Callable[[str, int], int]:
    """Return the ``opener`` for a new file in a folder; in a private folder, the file has mode 0600."""
    private = is_private(folder)

    def opener(path: str, flags: int) -> int:
        descriptor = os.open(path, flags, 0o600 if private else 0o666)
        if private:
            os.fchmod(descriptor, 0o600)
        return descriptor

    return opener


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


M = TypeVar("M", bound=BaseModel)

MAX_BYTES: Final = 64 * 1024 * 1024
"""The maximum size of a manifest, baseline, calibration etc. The manifest of 100,000 merged runs has about 10 MB."""

_POSITION: Final = re.compile(r"^Invalid JSON: (.*) at line (\d+) column (\d+)$")


def read_record(path: Path, model: type[M], *, expected: str, remedy: str) -> M:
    """Return a JSON file as a record. Raise FileNotFoundError if it does not exist.

    Raise UsageError if it cannot be read: one sentence with the path, the location in the file, the problem, and the
    ``remedy``. ``expected`` names the expected content, such as ``a baseline``.
    """
    try:
        raw = read_regular(path, MAX_BYTES)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}; {remedy}") from None
    try:
        return model.model_validate_json(raw)
    except ValidationError as error:
        reason = first_problem(model, raw, error.errors(include_url=False))
        raise UsageError(f"{path}: not {expected} that this version reads: {reason}; {remedy}") from None


def first_problem(model: type[BaseModel], raw: bytes | str, details: Sequence[ErrorDetails]) -> str:
    """Return the first problem that pydantic reports for JSON text, with its line and column or its location."""
    if details[0]["type"] == "json_invalid":
        position = _POSITION.match(details[0]["msg"])
        return f"line {position[2]}, column {position[3]}: {position[1]}" if position else details[0]["msg"]
    loc, message = explain(model, _value(raw), details[:1])[0]
    location = format_location(tuple(part for part in loc if part != KEY))
    return message if not location or message.startswith(location) else f"{location}: {message}"


def _value(raw: bytes | str) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):  # pydantic's parser accepts slightly more
        return None
