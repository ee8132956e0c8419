"""``python -m benchmarks.flight_small``: a session beside the same waiting without it; fails on a fall.

The ratio is to what the machine needs for the same, measured in turn in the same run: collecting the cases, and then
sleeping or sending the same requests by the bare SDK. So a busy machine slows both. The best of several attempts
counts, and no more are made than it takes to be good enough. ``ratios.json`` is written on a machine that does nothing
else.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any, Final

from benchmarks import server as servers
from benchmarks.flight import CALLS, Load, fly
from benchmarks.sessions import session
from benchmarks.small_cases import write

RATIOS: Final = Path(__file__).with_name("ratios.json")
ALLOWED: Final = 1.25
_LOAD: Final = Load(48, 24, 0.25)
_KINDS: Final = ("sleep", "http", "faults")


def main() -> None:
    """Print the ratios; exit 1 when one has risen by more than 25 %."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.flight_small")
    parser.add_argument("--attempts", type=int, default=4, help="at most, of each kind (%(default)s)")
    parser.add_argument("--write", action="store_true", help="make what is measured now the ratio to be compared with")
    options = parser.parse_args()
    known: dict[str, float] = {} if options.write else json.loads(RATIOS.read_text())
    found = {kind: _best(kind, options.attempts, known.get(kind)) for kind in _KINDS}
    if options.write:
        RATIOS.write_text(json.dumps({kind: round(ratio, 2) for kind, ratio in found.items()}, indent=1) + "\n")
    fallen = [kind for kind in known if found[kind] > ALLOWED * known[kind]]
    if fallen:
        raise SystemExit(f"slower by more than 25 % than {RATIOS.name} says: {', '.join(fallen)}")


def _best(kind: str, attempts: int, known: float | None) -> float:
    best = math.inf
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), _LOAD.cases)
        for _ in range(attempts):
            best = min(best, _ratio(Path(folder), kind))
            if known is not None and best <= ALLOWED * known:
                break
    print(f"{kind:8} {best:5.2f}" + (f"  committed: {known:g}" if known is not None else ""), flush=True)
    return best


def _ratio(folder: Path, kind: str) -> float:
    with servers.running(kind, _LOAD.latency) as url:
        taken = fly(folder, _LOAD, kind, url, ["-p", "no:xdist"])
        alone = _LOAD.limit if kind == "sleep" else asyncio.run(_bare(url, _bodies(url)))
    return taken / (session(folder, _LOAD.cases, ["--collect-only"])[0] + alone)


async def _bare(url: str, bodies: list[Any]) -> float:
    """Seconds of as many chains of requests, by the SDK with retries of its own."""
    import openai

    client = openai.AsyncOpenAI(api_key="none", base_url=f"{url}/v1", timeout=8 * _LOAD.latency, max_retries=8)
    slots = asyncio.Semaphore(_LOAD.in_flight)

    async def chain(number: int) -> None:
        async with slots:
            for body in bodies[number * CALLS : (number + 1) * CALLS]:
                await client.chat.completions.create(**body)

    begun = time.perf_counter()
    await asyncio.gather(*map(chain, range(_LOAD.cases)))
    taken = time.perf_counter() - begun
    await client.close()
    return taken


def _bodies(url: str) -> list[Any]:
    """What the session has sent."""
    with urllib.request.urlopen(f"{url}/__log") as response:
        requests = json.load(response)["requests"]
    return [request["body"] for request in requests if request["role"]]


if __name__ == "__main__":
    main()
