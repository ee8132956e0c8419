"""What takes long to build, such as the docs site or the wheel, is built once for all workers of a session."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from pathlib import Path

import pytest


def built_once(factory: pytest.TempPathFactory, name: str, build: Callable[[Path], None]) -> Path:
    """Return the folder that ``build`` fills in the first worker that needs it; tests must not change it."""
    root = factory.getbasetemp()
    # Each worker of xdist has a folder of its own in that of the session.
    root = root.parent if root.name.startswith("popen-") else root
    folder, complete = root / name, root / f"{name}.complete"
    with (root / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not complete.exists():
            folder.mkdir()
            build(folder)
            complete.touch()
    return folder
