"""``python -m benchmarks.flight``: how close a session comes to the physical limit, as ratios.

144 cases of 12 model calls in a row of 0.25 s each, 64 in flight: three waves of 3 s, so no session can take less than
9 s. Three ways to wait: an agent that sleeps; the OpenAI SDK over HTTP to a server in a process of its own; and the
same server failing one request in ten. Each is run several times and the best is taken, as other work on the machine
can only add. ``benchmarks.flight_small`` is what CI runs.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks import server as servers
from benchmarks.sessions import agent, session
from benchmarks.small_cases import write

CALLS: Final = 12


@dataclass(frozen=True)
class Load:
    """So many cases at once, of calls that take so long, in seconds."""

    cases: int
    in_flight: int
    latency: float

    @property
    def limit(self) -> float:
        """Seconds that no session can be quicker than."""
        return math.ceil(self.cases / self.in_flight) * CALLS * self.latency


FULL: Final = Load(144, 64, 0.25)
WAYS: Final[dict[str, tuple[str, Sequence[str], float]]] = {
    "sleeps, one process": ("sleep", ["-p", "no:xdist"], 1.10),
    "sleeps, -n 2": ("sleep", ["-p", "xdist.plugin", "-n", "2"], 1.10),
    "sleeps, -n 8": ("sleep", ["-p", "xdist.plugin", "-n", "8"], 1.35),
    "openai over HTTP, one process": ("http", ["-p", "no:xdist"], 1.25),
    "openai over HTTP, -n 2": ("http", ["-p", "xdist.plugin", "-n", "2"], math.inf),
    "openai over HTTP, 10 % faults": ("faults", ["-p", "no:xdist"], math.inf),
}


def main() -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.flight")
    parser.add_argument("--runs", type=int, default=3, help="of each kind, of which the best counts (%(default)s)")
    parser.add_argument("--only", default="", metavar="TEXT", help="ways whose name contains this")
    options = parser.parse_args()
    print(f"{FULL.cases} cases of {CALLS} calls of {FULL.latency:g} s, {FULL.in_flight} in flight:")
    print(f"  {'the limit':30} {FULL.limit:6.2f} s")
    found = {name: _measure(name, options.runs) for name in WAYS if options.only in name}
    if len(found) == len(WAYS):
        kept = found["openai over HTTP, one process"] / found["openai over HTTP, 10 % faults"]
        print(
            f"  throughput with faults, of that without: {kept:.0%}  goal: 80 %, {'met' if kept >= 0.8 else 'MISSED'}"
        )


def _measure(name: str, runs: int) -> float:
    """The best ratio of several runs to the limit."""
    kind, arguments, goal = WAYS[name]
    best = math.inf
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), FULL.cases)
        for _ in range(runs):
            with servers.running(kind, FULL.latency) as url:
                best = min(best, fly(Path(folder), FULL, kind, url, arguments))
    ratio = best / FULL.limit
    wish = f"  goal: {goal:g}, {_verdict(ratio <= goal)}" if goal < math.inf else ""
    print(f"  {name:30} {best:6.2f} s  ratio {ratio:5.3f}{wish}", flush=True)
    return ratio


def _verdict(good: bool) -> str:
    return "met" if good else "MISSED"


def fly(folder: Path, load: Load, kind: str, url: str, arguments: Sequence[str]) -> float:
    """Seconds of a whole pytest command."""
    options = [f"--toolemu-concurrency={load.in_flight}", *arguments, *agent(kind, url)]
    options += [f"--toolemu-request-timeout={8 * load.latency}"]
    return session(folder, load.cases, options, load.latency)[0]


if __name__ == "__main__":
    main()
