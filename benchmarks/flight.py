"""``python -m benchmarks.flight``: how close a session comes to the physical limit, as ratios.

144 cases of 12 model calls in a row of 0.25 s each, 64 in flight: three waves of 3 s, so no session can take less than
9 s. Three ways to wait: an agent that sleeps; the OpenAI SDK over HTTP to a server in a process of its own; and the
same server failing one request in ten. Each is run several times and the best is taken, as other work on the machine
can only add. ``--small`` is what CI runs, and compares with ``ratios.json``.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks import server as servers
from benchmarks.small_cases import write

RATIOS: Final = Path(__file__).with_name("ratios.json")
# A fall below the committed ratio by more than this fails.
_ALLOWED: Final = 1.25
_CALLS: Final = 12


@dataclass(frozen=True)
class Load:
    """So many cases at once, of calls that take so long, in seconds."""

    cases: int
    in_flight: int
    latency: float

    @property
    def limit(self) -> float:
        """Seconds that no session can be quicker than."""
        return math.ceil(self.cases / self.in_flight) * _CALLS * self.latency


FULL: Final = Load(144, 64, 0.25)
SMALL: Final = Load(48, 24, 0.1)
WAYS: Final[dict[str, tuple[str, Sequence[str], float]]] = {
    "sleeps, one process": ("sleep", ["-p", "no:xdist"], 1.10),
    "sleeps, -n 2": ("sleep", ["-p", "xdist.plugin", "-n", "2"], 1.10),
    "sleeps, -n 8": ("sleep", ["-p", "xdist.plugin", "-n", "8"], 1.35),
    "openai over HTTP, one process": ("http", ["-p", "no:xdist"], 1.25),
    "openai over HTTP, -n 2": ("http", ["-p", "xdist.plugin", "-n", "2"], math.inf),
    "openai over HTTP, 10 % faults": ("faults", ["-p", "no:xdist"], math.inf),
}


def main() -> None:
    """Print the report; exit 1 when ``--small`` finds a fall."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.flight")
    parser.add_argument("--small", action="store_true", help="one process only, and compare with ratios.json")
    parser.add_argument("--runs", type=int, default=3, help="of each kind, of which the best counts (%(default)s)")
    parser.add_argument("--only", default="", metavar="TEXT", help="ways whose name contains this")
    parser.add_argument("--write", action="store_true", help="write what was measured to ratios.json")
    options = parser.parse_args()
    load = SMALL if options.small else FULL
    ways = [name for name in WAYS if options.only in name and not (options.small and "-n" in name)]
    print(f"{load.cases} cases of {_CALLS} calls of {load.latency:g} s, {load.in_flight} in flight:")
    print(f"  the limit                        {load.limit:6.2f} s")
    known = json.loads(RATIOS.read_text()) if RATIOS.exists() else {}
    size = "small" if options.small else "full"
    found = {name: measure(name, load, options.runs, known.get(size, {}).get(name)) for name in ways}
    if "openai over HTTP, 10 % faults" in found and "openai over HTTP, one process" in found:
        kept = found["openai over HTTP, one process"] / found["openai over HTTP, 10 % faults"]
        print(f"  throughput with faults, of that without: {kept:.0%}  goal: at least 80 %")
    if options.write:
        known.setdefault(size, {}).update({name: round(ratio, 3) for name, ratio in found.items()})
        RATIOS.write_text(json.dumps(known, indent=1) + "\n")
    elif options.small:
        fallen = [name for name, ratio in found.items() if name in known[size] and ratio > _ALLOWED * known[size][name]]
        if fallen:
            raise SystemExit(f"slower by more than 25 % than {RATIOS.name} says: {', '.join(fallen)}")


def measure(name: str, load: Load, runs: int, known: float | None) -> float:
    """The best ratio of several runs to the limit; no more runs than it takes to be as good as known."""
    kind, arguments, goal = WAYS[name]
    best, seconds = math.inf, 0.0
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), load.cases)
        for _ in range(runs):
            with servers.running(kind, load.latency) as url:
                taken = _session(Path(folder), load, kind, url, arguments)
            if taken / load.limit < best:
                best, seconds = taken / load.limit, taken
            if known is not None and best <= known * 1.05:
                break
    wish = f"  goal: {goal:g}, {'met' if best <= goal else 'MISSED'}" if goal < math.inf else ""
    was = f"  committed: {known:g}" if known is not None else ""
    print(f"  {name:32} {seconds:6.2f} s  ratio {best:5.3f}{wish}{was}", flush=True)
    return best


def _session(folder: Path, load: Load, kind: str, url: str, arguments: Sequence[str]) -> float:
    """Seconds of a whole pytest command."""
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "pytest_toolemu.plugin"]
    command += ["-p", "no:cacheprovider", f"--toolemu-concurrency={load.in_flight}", *arguments]
    if kind == "sleep":
        command += ["--toolemu-agent=sleeper:agent", "--toolemu-helpfulness=none"]
    else:
        command += [f"--toolemu-agent=openai:gpt-4o@{url}/v1", "--toolemu-min-safety=0", "--toolemu-min-helpfulness=0"]
        command += [f"--toolemu-request-timeout={8 * load.latency}"]
    environ: dict[str, Any] = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "LATENCY": str(load.latency)}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)  # users have bytecode
    begun = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    taken = time.perf_counter() - begun
    if done.returncode != 0 or f"{load.cases} passed" not in done.stdout:
        raise SystemExit(f"the session did not go well:\n{done.stdout[-3000:]}{done.stderr[-1000:]}")
    return taken


if __name__ == "__main__":
    main()
