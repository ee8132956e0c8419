"""``python -m benchmarks.flight``: the duration of a session as a multiple of the physical minimum.

144 cases make 12 successive model calls of 0.25 s each, 64 cases at a time: three waves of 3 s, so no session can take
less than 9 s. Requests either sleep in the agent, or are sent with the OpenAI SDK over HTTP to a server in another
process. Each measurement is repeated and the best value counts, as other work on the machine can only slow it down.

The cost of faults is measured over three times as many cases, and medians count: with one request in ten failing at
random, a session ends when its unluckiest case does, so the duration of a short one depends on chance. CI runs
``benchmarks.flight_small``.
"""

from __future__ import annotations

import argparse
import math
import statistics
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
    """The number of cases, how many run at a time, and the duration of a call in seconds."""

    cases: int
    in_flight: int
    latency: float

    @property
    def limit(self) -> float:
        """The minimum duration of a session, in seconds."""
        return math.ceil(self.cases / self.in_flight) * CALLS * self.latency


FULL: Final = Load(144, 64, 0.25)
LONG: Final = Load(432, 64, 0.25)
FAULTS: Final = "openai over HTTP, 10 % faults"
THROUGHPUT_GOAL: Final = 0.80
WAYS: Final[dict[str, tuple[str, Sequence[str], float]]] = {
    "sleeps, one process": ("sleep", ["-p", "no:xdist"], 1.10),
    "sleeps, -n 2": ("sleep", ["-p", "xdist.plugin", "-n", "2"], 1.10),
    "sleeps, -n 8": ("sleep", ["-p", "xdist.plugin", "-n", "8"], 1.35),
    "openai over HTTP, one process": ("http", ["-p", "no:xdist"], 1.25),
    "openai over HTTP, -n 2": ("http", ["-p", "xdist.plugin", "-n", "2"], math.inf),
}


def main() -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.flight")
    parser.add_argument("--runs", type=int, default=3, help="of each kind (%(default)s)")
    parser.add_argument("--only", default="", metavar="TEXT", help="ways whose name contains this; of faults too")
    options = parser.parse_args()
    print(f"{FULL.cases} cases of {CALLS} calls of {FULL.latency:g} s, {FULL.in_flight} in flight:")
    print(f"  {'the limit':30} {FULL.limit:6.2f} s")
    for name in WAYS:
        if options.only in name:
            _measure(name, options.runs)
    if options.only in FAULTS:
        _measure_faults(options.runs)


def _measure(name: str, runs: int) -> None:
    """Print the best of several runs, as a ratio to the limit."""
    kind, arguments, goal = WAYS[name]
    best = math.inf
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), FULL.cases)
        for _ in range(runs):
            with servers.running(kind, FULL.latency) as url:
                best = min(best, run_load(Path(folder), FULL, kind, url, arguments))
    ratio = best / FULL.limit
    wish = f"  goal: {goal:g}, {_verdict(ratio <= goal)}" if goal < math.inf else ""
    print(f"  {name:30} {best:6.2f} s  ratio {ratio:5.3f}{wish}", flush=True)


def _measure_faults(runs: int) -> None:
    """Print the throughput with one failing request in ten as a share of that without failures, from medians."""
    durations_by_kind: dict[str, list[float]] = {"http": [], "faults": []}
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), LONG.cases)
        for _ in range(runs):
            for kind, seconds in durations_by_kind.items():
                with servers.running(kind, LONG.latency) as url:
                    seconds.append(run_load(Path(folder), LONG, kind, url, ["-p", "no:xdist"]))
    print(f"{LONG.cases} cases of the same, openai over HTTP, one process:")
    for kind, seconds in durations_by_kind.items():
        durations = " ".join(f"{each:.2f}" for each in sorted(seconds))
        print(f"  {kind:30} {statistics.median(seconds):6.2f} s  of {durations}")
    throughput = statistics.median(durations_by_kind["http"]) / statistics.median(durations_by_kind["faults"])
    verdict = _verdict(throughput >= THROUGHPUT_GOAL)
    print(f"  throughput with 10 % faults, of that without: {throughput:.1%}  goal: {THROUGHPUT_GOAL:.0%}, {verdict}")


def _verdict(good: bool) -> str:
    return "met" if good else "MISSED"


def run_load(folder: Path, load: Load, kind: str, url: str, arguments: Sequence[str]) -> float:
    """Return the duration of a whole pytest command, in seconds."""
    options = [f"--toolemu-concurrency={load.in_flight}", *arguments, *agent(kind, url)]
    options += [f"-otoolemu_request_timeout={8 * load.latency}"]
    return session(folder, load.cases, options, load.latency)[0]


if __name__ == "__main__":
    main()
