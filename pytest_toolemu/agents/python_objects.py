"""Load objects that a user names as ``module:object`` or ``path.py:object``."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import pkgutil
import re
import sys
from pathlib import Path
from typing import Any

from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.yaml_document import closest


def load_object(target: str, role: str) -> Any:
    """Return the object ``package.module:object`` or ``path.py:object``. Raise UsageError, which names its role.

    Modules, and relative paths that do not exist below the current folder, are searched on ``sys.path``.
    """
    module_name, _, path = target.rpartition(":")
    label = f"{role} {target!r}"
    loaded: Any = _file(Path(module_name), label) if module_name.endswith(".py") else _module(module_name, label)
    for name in path.split("."):
        if not hasattr(loaded, name):
            public = [member for member in dir(loaded) if not member.startswith("_")]
            raise UsageError(f"{label}: {module_name} has no {name!r}{closest(name, public)}")
        loaded = getattr(loaded, name)
    return loaded


def _module(name: str, label: str) -> Any:
    parent: Any = None
    parts = name.split(".")
    for index, part in enumerate(parts):
        current = ".".join(parts[: index + 1])
        try:
            parent = importlib.import_module(current)
        except ImportError as error:
            if getattr(error, "name", None) != current:
                raise UsageError(f"{label}: importing {current} failed: {error}") from error
            siblings = pkgutil.iter_modules(getattr(parent, "__path__", None if index == 0 else ()))
            names = [module.name for module in siblings if not module.name.startswith("_")]
            # So many modules can be imported that one with a faintly similar name is unrelated.
            near = difflib.get_close_matches(part, names, n=1, cutoff=0.75)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise UsageError(
                f"{label}: there is no module {current!r}{hint}; check the name, and that its folder is on "
                "the import path (PYTHONPATH)"
            ) from None
        except (Exception, SystemExit) as error:
            raise _broken(label, current, error) from error
    return parent


def _broken(label: str, module: str, error: BaseException) -> UsageError:
    return UsageError(f"{label}: importing {module} failed: {type(error).__name__}: {error}")


def _file(path: Path, label: str) -> Any:
    """Import the module in a file: as part of its package if that can be imported, or else by itself."""
    file = next((file for base in ("", *sys.path) if (file := Path(base, path).resolve()).is_file()), None)
    if file is None:
        raise UsageError(
            f"{label}: there is no file {path}; a path is relative to the current folder or the project's root"
        )
    for base in map(Path, sys.path):
        if file.is_relative_to(base.resolve()) and base.is_absolute():
            parts = file.relative_to(base.resolve()).with_suffix("").parts
            if all(part.isidentifier() for part in parts) and _is_found(".".join(parts), file):
                return _module(".".join(parts), label)
    name = re.sub(r"\W", "_", str(file.with_suffix("")))
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise _broken(label, str(path), error) from error
    return module


def _is_found(module: str, file: Path) -> bool:
    """Return whether importing a module loads this file, and not another one with the same name."""
    try:
        spec = importlib.util.find_spec(module)
    except Exception:  # raised by a parent package, whose own import reports the problem later
        return False
    return spec is not None and spec.origin is not None and Path(spec.origin).resolve() == file
