"""Importing this package's modules from the bytecode that pip has compiled.

pytest takes whatever a plugin's distribution contains for test code: it parses each module, rewrites its asserts and
keeps the result under a name of its own, if it may write. So the first session of every fresh container, and each one
that runs with ``PYTHONDONTWRITEBYTECODE``, would compile a hundred modules in each of its workers, which takes longer
than all else that they do to start. No assertion in these modules is for users to read.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType


class PlainFinder:
    """Finds the modules of this package before pytest's own finder is asked."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Where a module of this package is; nothing for any other."""
        return PathFinder.find_spec(name, path, target) if name.startswith("pytest_toolemu.") else None


def import_from_pyc_files() -> None:
    """From now on."""
    if PlainFinder not in sys.meta_path:
        sys.meta_path.insert(0, PlainFinder)
