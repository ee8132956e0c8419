"""``python -m benchmarks.scale``: the memory of a running case, and whether time grows in proportion to cases."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Final

from benchmarks import server as servers
from benchmarks.sessions import agent, session
from benchmarks.small_cases import write

# Goals: MB per running case, and the time of a case among ten times as many relative to the time among few.
_MEMORY: Final = 0.5
_MAX_RATIO: Final = 1.25
_FEW: Final = 16


def main() -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale")
    parser.add_argument("--in-flight", type=int, default=144, help="cases at once, for memory (%(default)s)")
    parser.add_argument("--cases", type=int, default=1000, help="and ten times as many (%(default)s)")
    options = parser.parse_args()
    _memory(options.in_flight)
    _many(options.cases)


def _memory(cases: int) -> None:
    """Measure the same cases over HTTP, with all and with few of them at a time."""
    most = {}
    for in_flight in (cases, _FEW):
        with tempfile.TemporaryDirectory() as folder, servers.running("http", 0.1) as url:
            write(Path(folder), cases)
            arguments = ["-p", "no:xdist", f"--toolemu-concurrency={in_flight}", *agent("http", url)]
            _, most[in_flight] = session(Path(folder), cases, arguments)
    each = (most[cases] - most[_FEW]) / (cases - _FEW)
    print(f"memory: {cases} cases in flight {most[cases]:.0f} MB, {_FEW} in flight {most[_FEW]:.0f} MB")
    print(f"  a case in flight: {each:.2f} MB  goal: under {_MEMORY:g} MB, {'met' if each < _MEMORY else 'MISSED'}")


def _many(cases: int) -> None:
    """Measure cases that take no time themselves."""
    each = {}
    for count in (cases, 10 * cases):
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder), count)
            seconds, memory = session(Path(folder), count, ["-p", "no:xdist", *agent("sleep", "")])
        each[count] = seconds / count
        print(f"{count} cases: {seconds:.1f} s, {1000 * each[count]:.1f} ms each, at most {memory:.0f} MB", flush=True)
    ratio = each[10 * cases] / each[cases]
    print(f"  a case among ten times as many: {ratio:.2f} times the time  goal: {_MAX_RATIO:g}, {_verdict(ratio)}")


def _verdict(ratio: float) -> str:
    return "met" if ratio <= _MAX_RATIO else "MISSED"


if __name__ == "__main__":
    main()
