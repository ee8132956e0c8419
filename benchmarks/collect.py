"""``python -m benchmarks.collect [FOLDER]``: the time that pytest takes to collect cases, and its parts.

Without a folder, 144 cases and 38 toolkits are generated; ``toolemu import toolemu`` writes the official ones. No other
plugins are loaded, as they would be measured too.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from benchmarks import material
from benchmarks.parts import COLLECT

TARGET: Final = 1.5


def main() -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.collect")
    parser.add_argument("folder", nargs="?", type=Path, help="folder with cases/ and toolkits/; default: generated")
    parser.add_argument("--cases", type=int, default=material.CASES, help="generated cases (%(default)s)")
    parser.add_argument("--toolkits", type=int, default=material.TOOLKITS, help="generated toolkits (%(default)s)")
    parser.add_argument("--runs", type=int, default=7, help="measurements of each kind (%(default)s)")
    options = parser.parse_args()
    # Child processes inherit it.
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
    if not cases:
        raise SystemExit(
            f"{folder} has no cases/**/*.toolemu.yaml; give the folder that 'toolemu import toolemu' wrote"
        )
    times = [(_seconds(folder), _seconds(empty)) for _ in range(runs)]
    full, bare = (statistics.median(column) for column in zip(*times, strict=True))
    print(f"{cases} cases ({case_bytes / 1000:.0f} kB) and {toolkits} toolkits ({toolkit_bytes / 1000:.0f} kB)")
    print(f"pytest --collect-only in a process of its own, median of {runs}:")
    print(f"  the cases        {full:6.3f} s  target: under {TARGET:g} s, {'met' if full < TARGET else 'MISSED'}")
    print(f"  an empty folder  {bare:6.3f} s")
    print(f"  ratio            {full / bare:6.2f}")
    parts = _output([sys.executable, "-m", "benchmarks.parts", str(folder)], Path(__file__).parents[1])
    print(f"what the cases add, measured in one process: {parts.strip()}")


def _seconds(folder: Path) -> float:
    """Return the wall time of one collection, from the start of Python to its end."""
    begun = time.perf_counter()
    _output([sys.executable, "-m", "pytest", *COLLECT, "."], folder)
    return time.perf_counter() - begun


def _output(command: list[str], folder: Path) -> str:
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if result.returncode not in (0, 5):  # 5: pytest found no tests
        raise SystemExit(f"{' '.join(command)} failed in {folder}:\n{result.stdout}{result.stderr}")
    return result.stdout


if __name__ == "__main__":
    main()
