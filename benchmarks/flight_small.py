"""``python -m benchmarks.flight_small``: the duration of a session relative to the same requests without it.

The reference is measured in the same run: collecting the cases, and then sleeping, or sending the same requests with
the SDK alone. So a busy machine slows down both. The best of several attempts counts, and the benchmark stops as soon
as one is good enough. It fails if a ratio exceeds the one in ``ratios.json``, written on an idle machine, by over 25 %.
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
from benchmarks.flight import CALLS, Load, run_load
from benchmarks.sessions import session
from benchmarks.small_cases import write

RATIOS: Final = Path(__file__).with_name("ratios.json")
ALLOWED: Final = 1.25
_LOAD: Final = Load(48, 24, 0.25)
_KINDS: Final = ("sleep", "http", "faults")


def main() -> None:
    """Print the ratios. Exit with 1 if one is more than 25 % higher than the committed one."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.flight_small")
    parser.add_argument("--attempts", type=int, default=4, help="maximum number of each kind (%(default)s)")
    parser.add_argument("--write", action="store_true", help="store the measured ratios for later comparisons")
    options = parser.parse_args()
    committed: dict[str, float] = {} if options.write else json.loads(RATIOS.read_text())
    measured = {kind: _best(kind, options.attempts, committed.get(kind)) for kind in _KINDS}
    if options.write:
        RATIOS.write_text(json.dumps({kind: round(ratio, 2) for kind, ratio in measured.items()}, indent=1) + "\n")
    slower = [kind for kind in committed if measured[kind] > ALLOWED * committed[kind]]
    if slower:
        raise SystemExit(f"more than 25 % slower than the ratio in {RATIOS.name}: {', '.join(slower)}")


def _best(kind: str, attempts: int, committed: float | None) -> float:
    best = math.inf
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), _LOAD.cases)
        for _ in range(attempts):
            best = min(best, _ratio(Path(folder), kind))
            if committed is not None and best <= ALLOWED * committed:
                break
    print(f"{kind:8} {best:5.2f}" + (f"  committed: {committed:g}" if committed is not None else ""), flush=True)
    return best


def _ratio(folder: Path, kind: str) -> float:
    with servers.running(kind, _LOAD.latency) as url:
        seconds = run_load(folder, _LOAD, kind, url, ["-p", "no:xdist"])
        alone = _LOAD.limit if kind == "sleep" else asyncio.run(_bare(url, _bodies(url)))
    return seconds / (session(folder, _LOAD.cases, ["--collect-only"])[0] + alone)


async def _bare(url: str, bodies: list[Any]) -> float:
    """Return the duration of the same chains of requests, sent by the SDK with its own retries, in seconds."""
    import openai

    client = openai.AsyncOpenAI(api_key="none", base_url=f"{url}/v1", timeout=8 * _LOAD.latency, max_retries=8)
    slots = asyncio.Semaphore(_LOAD.in_flight)

    async def chain(number: int) -> None:
        async with slots:
            for body in bodies[number * CALLS : (number + 1) * CALLS]:
                await client.chat.completions.create(**body)

    begun = time.perf_counter()
    await asyncio.gather(*map(chain, range(_LOAD.cases)))
    seconds = time.perf_counter() - begun
    await client.close()
    return seconds


def _bodies(url: str) -> list[Any]:
    """Return the bodies of the requests that the session has sent."""
    with urllib.request.urlopen(f"{url}/__log") as response:
        requests = json.load(response)["requests"]
    return [request["body"] for request in requests if request["role"]]


if __name__ == "__main__":
    main()
