"""``python -m benchmarks.collect [FOLDER]``: how long pytest takes to collect cases, and where the time goes.

Without a folder, 144 cases and 38 toolkits are made up; ``toolemu import toolemu`` writes the official ones. No plugin
of others is loaded, as theirs is not our time.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from benchmarks import material

TARGET: Final = 1.5
_PYTEST: Final = ("-p", "pytest_toolemu.plugin", "-p", "no:cacheprovider", "--collect-only", "-q")


def main() -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.collect")
    parser.add_argument("folder", nargs="?", type=Path, help="with cases/ and toolkits/; made up when it is not given")
    parser.add_argument("--cases", type=int, default=material.CASES, help="made up (%(default)s)")
    parser.add_argument("--toolkits", type=int, default=material.TOOLKITS, help="made up (%(default)s)")
    parser.add_argument("--runs", type=int, default=7, help="of each kind, in turn (%(default)s)")
    options = parser.parse_args()
    # Children inherit it.
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    with tempfile.TemporaryDirectory() as name:
        empty, folder = Path(name) / "empty", options.folder or Path(name) / "full"
        empty.mkdir()
        if options.folder is None:
            material.write(folder, options.cases, options.toolkits)
        _report(folder.resolve(), empty, options.runs)


def _report(folder: Path, empty: Path, runs: int) -> None:
    cases, case_bytes = material.size(folder / "cases", "*.toolemu.yaml")
    toolkits, toolkit_bytes = material.size(folder / "toolkits", "*.toolkit.yaml")
    times = [(_seconds(folder), _seconds(empty)) for _ in range(runs)]
    full, bare = (statistics.median(column) for column in zip(*times, strict=True))
    print(f"{cases} cases ({case_bytes / 1000:.0f} kB) and {toolkits} toolkits ({toolkit_bytes / 1000:.0f} kB)")
    print(f"pytest --collect-only in a process of its own, median of {runs}:")
    print(f"  the cases        {full:6.3f} s  target: under {TARGET:g} s, {'met' if full < TARGET else 'MISSED'}")
    print(f"  an empty folder  {bare:6.3f} s")
    print(f"  ratio            {full / bare:6.2f}")
    with multiprocessing.get_context("spawn").Pool(1) as fresh:
        parts = fresh.apply(parts_of_collection, (folder,))
    print("what the cases add, in one process: " + ", ".join(f"{name} {spent:.3f} s" for name, spent in parts.items()))


def _seconds(folder: Path) -> float:
    """Wall time of one collection, from the start of Python to its end."""
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *_PYTEST, "."], cwd=folder, capture_output=True, text=True, check=False
    )
    spent = time.perf_counter() - begun
    if done.returncode not in (0, 5):  # 5: no tests collected
        raise SystemExit(f"the collection in {folder} failed:\n{done.stdout}{done.stderr}")
    return spent


class _Meter:
    """Seconds spent in functions, those they call included."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}

    def time(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, metered."""

        @functools.wraps(function)
        def metered(*args: Any, **kwargs: Any) -> Any:
            begun = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.spent[name] = self.spent.get(name, 0.0) + time.perf_counter() - begun

        return metered


def parts_of_collection(folder: Path) -> dict[str, float]:
    """Seconds of imports, YAML, records and items of one collection; for a process that has imported none of it."""
    import pytest

    meter = _Meter()
    os.chdir(folder)
    meter.time("imports", lambda: __import__("pytest_toolemu.plugin.collect"))()
    from pytest_toolemu.documents import Document
    from pytest_toolemu.plugin import collect

    Document.read = meter.time("YAML", Document.read)  # type: ignore[method-assign]
    collect.load_world = meter.time("files", collect.load_world)

    class Collection:
        @pytest.hookimpl(wrapper=True, tryfirst=True)
        def pytest_collection(self) -> Any:
            begun = time.perf_counter()
            result = yield
            meter.spent["collection"] = time.perf_counter() - begun
            return result

    with contextlib.redirect_stdout(io.StringIO()):
        pytest.main([*_PYTEST, "."], plugins=[Collection()])
    spent = meter.spent
    return {
        "imports": spent["imports"],
        "YAML": spent["YAML"],
        "records": spent["files"] - spent["YAML"],
        "items": spent["collection"] - spent["files"],
    }


if __name__ == "__main__":
    main()
