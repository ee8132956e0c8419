"""``python -m benchmarks.replay [FOLDER]``: the duration of a replayed session compared with the same session live.

The live session uses the real SDKs and the loopback server in another process, with each reply after ``--latency``
seconds. Without a folder, cases are generated; ``toolemu import toolemu`` writes the official ones. Finally, stored
runs are read.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks import material
from pytest_toolemu.core.run_file import PARTS
from pytest_toolemu.sessions.store import RunStore
from tests.e2e.opinions import judge
from tests.loopback.records import Request, Script
from tests.loopback.scripts import by_role, conforming

SECONDS: Final = 5.0
RATIO: Final = 20.0
STORED: Final = 1000
_LATENCY: Final = "BENCHMARK_LATENCY"
_QUIET: Final = ("-p", "pytest_toolemu.plugin", "-p", "no:cacheprovider", "-q", "--tb=no", "-r", "N")


def main() -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replay")
    parser.add_argument("folder", nargs="?", type=Path, help="folder with cases/ and toolkits/; default: generated")
    parser.add_argument("--cases", type=int, default=material.CASES, help="generated cases (%(default)s)")
    parser.add_argument("--latency", type=float, default=2.0, help="seconds before each reply (%(default)s)")
    parser.add_argument("--concurrency", type=int, default=32, help="cases in flight (%(default)s)")
    parser.add_argument("--runs", type=int, default=3, help="replays (%(default)s)")
    options = parser.parse_args()
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    with tempfile.TemporaryDirectory() as name:
        project = Path(name)
        if options.folder is None:
            material.write(project, options.cases, max(3, options.cases // 4))
        else:
            for part in ("cases", "toolkits"):
                shutil.copytree(options.folder / part, project / part)
        (project / "pytest.ini").write_text("[pytest]\n")
        _report(project, options)


def script() -> Script:
    """Return a script of an agent that makes five calls, a conforming emulator and rule-based judges, with latency."""
    answers = by_role(agent=conforming(calls=5), evaluator=judge)
    latency = float(os.environ[_LATENCY])

    async def slow(request: Request) -> Any:
        await asyncio.sleep(latency)
        return answers(request)

    return slow


def _report(project: Path, options: argparse.Namespace) -> None:
    models = ["--toolemu-agent=gpt-4o", "--toolemu-evaluator=claude-sonnet-5-5"]
    with _server(options.latency) as environment:
        flight = f"--toolemu-concurrency={options.concurrency}"
        live = _session(project, environment, [*models, flight, "--toolemu-record=all"])
    # There is neither a key nor a server now, so every reply must come from a cassette.
    replays = [_session(project, {}, [*models, "--toolemu-replay=recordings"]) for _ in range(options.runs)]
    replayed = statistics.median(replays)
    files = list((project / "recordings").iterdir())
    calls = sum(len(json.loads(path.read_text())["exchanges"]) for path in files)
    size = sum(path.stat().st_size for path in files)
    print(f"{len(files)} cases, {calls} model calls, {size / 1e6:.1f} MB of recordings; whole processes:")
    print(f"  live      {live:7.2f} s  ({options.latency:g} s a reply, {options.concurrency} cases in flight)")
    met = "met" if replayed < SECONDS else "MISSED"
    print(f"  replayed  {replayed:7.2f} s  median of {options.runs}; target: under {SECONDS:g} s, {met}")
    ratio = live / replayed
    print(f"  ratio     {ratio:7.1f}    target: at least {RATIO:g}, {'met' if ratio >= RATIO else 'MISSED'}")
    print(f"reading {STORED} stored runs: {_reading(project):.2f} s")


def _session(project: Path, environment: dict[str, str], options: list[str]) -> float:
    """Return the wall time of one process, in seconds."""
    command = [sys.executable, "-m", "pytest", *_QUIET, *options, "cases"]
    begun = time.perf_counter()
    result = subprocess.run(
        command, cwd=project, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - begun
    if result.returncode not in (0, 1) or "error" in result.stdout.splitlines()[-1]:
        raise SystemExit(f"{' '.join(command)} failed:\n{result.stdout}{result.stderr}")
    return seconds


@contextlib.contextmanager
def _server(latency: float) -> Iterator[dict[str, str]]:
    """Yield the environment variables that point to the loopback server."""
    command = [sys.executable, "-m", "tests.loopback", "--script", "benchmarks.replay:script"]
    environment = {**os.environ, _LATENCY: str(latency)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        try:
            url = f"http://127.0.0.1:{int(process.stdout.readline())}"
            yield {"OPENAI_BASE_URL": f"{url}/v1", "ANTHROPIC_BASE_URL": url}
        finally:
            process.terminate()


def _reading(project: Path) -> float:
    """Return the seconds to read the runs of the session, copied until there are enough of them."""
    folder = next((project / ".toolemu").glob("2*"))
    sources = list(RunStore(folder).paths())
    many = project / "many"
    shutil.copytree(folder / PARTS, many / PARTS)
    for number in range(STORED):
        source = sources[number % len(sources)]
        shutil.copy(source, many / f"{number}-{source.name}")
    begun = time.perf_counter()
    assert sum(1 for _ in RunStore(many)) == STORED
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
