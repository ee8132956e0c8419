"""Imports this package from the bytecode that pip has compiled, without pytest's assertion rewriting.

pytest treats every module of a plugin's distribution as test code: it parses the module, rewrites its assertions and
caches the result in a file of its own. The first session in a new container, and every session that may not write such
files (``PYTHONDONTWRITEBYTECODE``, read-only installations), would compile a hundred modules again in each worker. No
assertion in these modules is meant for users.

Measured with pytest 9.2 and ``PYTHONDONTWRITEBYTECODE=1`` in CPU seconds, with and without this module: an empty folder
0.56 and 0.66, one case 1.0 and 1.5, one case with ``-n 2`` 2.9 and 4.0. There is no public switch: with
``PYTEST_DONT_REWRITE`` in its docstring, a module keeps its assertions but is still parsed and compiled.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType


class PackageFinder:
    """Finds the modules of this package before pytest's finder does. It knows no other module."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return how to import a module of this package; None for any other module."""
        return PathFinder.find_spec(name, path, target) if name.startswith("pytest_toolemu.") else None


def import_from_pyc_files() -> None:
    """Install the finder, once per process."""
    if PackageFinder not in sys.meta_path:
        sys.meta_path.insert(0, PackageFinder)
