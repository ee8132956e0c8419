"""``python -m benchmarks.parts FOLDER``: the parts of the time that one collection takes, including all imports."""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import os
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import pytest

COLLECT: Final = ("-p", "pytest_toolemu.plugin", "-p", "no:cacheprovider", "--collect-only", "-q")


def main() -> None:
    """Print the seconds of each part in one line."""
    os.chdir(sys.argv[1])
    print(", ".join(f"{name} {seconds:.3f} s" for name, seconds in parts().items()))


def parts() -> dict[str, float]:
    """Return the seconds of imports, YAML, records and items when pytest collects the current folder."""
    seconds: dict[str, float] = {}
    collect: Any = _timed("imports", importlib.import_module, seconds)("pytest_toolemu.plugin.collection.collect")
    documents: Any = importlib.import_module("pytest_toolemu.formats.yaml_document")
    documents.Document.read = _timed("YAML", documents.Document.read, seconds)
    collect.load_case = _timed("files", collect.load_case, seconds)
    with contextlib.redirect_stdout(io.StringIO()):
        pytest.main([*COLLECT, "."], plugins=[_Collection(seconds)])
    return {
        "imports": seconds["imports"],
        "YAML": seconds["YAML"],
        "records": seconds["files"] - seconds["YAML"],
        "items": seconds["collection"] - seconds["files"],
    }


class _Collection:
    """Measure pytest's collection, during which the files are read."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self._seconds = seconds

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection(self) -> Any:
        begun = time.perf_counter()
        result = yield
        self._seconds["collection"] = time.perf_counter() - begun
        return result


def _timed(name: str, function: Callable[..., Any], seconds: dict[str, float]) -> Callable[..., Any]:
    """Wrap a function so that its seconds, including those of its callees, are added up under a name."""

    @functools.wraps(function)
    def timed(*args: Any, **kwargs: Any) -> Any:
        begun = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - begun

    return timed


if __name__ == "__main__":
    main()
