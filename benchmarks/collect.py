"""``python -m benchmarks.collect [FOLDER]``: how long pytest takes to collect cases, and where the time goes.

Without a folder, 144 cases and 38 toolkits are made up; ``toolemu import toolemu`` writes the official ones. No plugin
of others is loaded, as theirs is not our time.
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
    """Wall time of one collection, from the start of Python to its end."""
    begun = time.perf_counter()
    _output([sys.executable, "-m", "pytest", *COLLECT, "."], folder)
    return time.perf_counter() - begun


def _output(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 5):  # 5: pytest found no tests
        raise SystemExit(f"{' '.join(command)} failed in {folder}:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
