"""``python -m benchmarks.cpu``: the CPU time that this package adds to each model call of an SDK.

Cases run under pytest in this process, over HTTP against the loopback server in another process. Then the SDK alone
sends the requests that the server received again. The difference is the cost of this package: prompts, schemas,
validation, records, and pytest's items.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal

import pytest

from benchmarks import material
from tests.e2e.opinions import judge
from tests.loopback.records import Script
from tests.loopback.scripts import by_role, conforming

TARGET: Final = 1.0
IN_FLIGHT: Final = 16
_MODELS: Final = {"openai": "openai:gpt-4o@{url}/v1", "anthropic": "anthropic:claude-sonnet-5-5@{url}"}

Provider = Literal["openai", "anthropic"]
Body = dict[str, Any]


def main() -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cpu")
    parser.add_argument("--cases", type=int, default=24, help="generated cases (%(default)s)")
    parser.add_argument("--runs", type=int, default=3, help="measurements of each kind (%(default)s)")
    options = parser.parse_args()
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    print(f"CPU of this process per model call, {options.cases} cases, median of {options.runs}:")
    for provider in ("openai", "anthropic"):
        with tempfile.TemporaryDirectory() as name, _server() as url:
            folder = Path(name)
            material.write(folder, options.cases, max(3, options.cases // 4))
            (folder / "pytest.ini").write_text("[pytest]\n")
            _report(provider, folder, url, options.runs)


def script() -> Script:
    """Return a script of an agent that makes five calls, a conforming emulator, and rule-based judges: 13 requests."""
    return by_role(agent=conforming(calls=5), evaluator=judge)


def _report(provider: Provider, folder: Path, url: str, runs: int) -> None:
    _session(provider, folder, url)  # costs that occur once, such as imports, are not counted
    bodies = _completions(url)
    asyncio.run(_bare(provider, url, bodies))
    times = [(_session(provider, folder, url), asyncio.run(_bare(provider, url, bodies))) for _ in range(runs)]
    if len(_completions(url)) != len(bodies) * 2 * (runs + 1):
        raise SystemExit("the runs did not make the same number of requests, so they cannot be compared")
    whole, bare = (statistics.median(column) / len(bodies) * 1000 for column in zip(*times, strict=True))
    own = statistics.median(whole - bare for whole, bare in times) / len(bodies) * 1000
    kilobytes = sum(len(json.dumps(body)) for body in bodies) / len(bodies) / 1000
    print(
        f"  {provider:9}  ours {own:5.2f} ms (whole {whole:.2f} ms - bare SDK {bare:.2f} ms; {len(bodies)} calls "
        f"of {kilobytes:.0f} kB)  target: under {TARGET:g} ms, {'met' if own < TARGET else 'MISSED'}"
    )


@contextlib.contextmanager
def _server() -> Iterator[str]:
    """Yield the URL of the loopback server, whose CPU time is not measured."""
    command = [sys.executable, "-m", "tests.loopback", "--script", "benchmarks.cpu:script"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


class _Clock:
    """Measure the CPU time of all threads of this process, from the first item to the last, and collects failures."""

    def __init__(self) -> None:
        self.begun: float | None = None
        self.ended = 0.0
        self.failures: list[str] = []

    @property
    def seconds(self) -> float:
        assert self.begun is not None
        return self.ended - self.begun

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self) -> None:
        if self.begun is None:
            self.begun = time.process_time()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" and not report.passed:
            self.failures.append(report.longreprtext)

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logfinish(self) -> None:
        self.ended = time.process_time()


def _session(provider: Provider, folder: Path, url: str) -> float:
    """Return the CPU seconds of all cases under pytest."""
    model = _MODELS[provider].format(url=url)
    clock, output = _Clock(), io.StringIO()
    args = ["-p", "pytest_toolemu.plugin", "-p", "no:cacheprovider", "-q", "--tb=no", f"--rootdir={folder}"]
    args += ["-c", str(folder / "pytest.ini"), f"--toolemu-concurrency={IN_FLIGHT}", f"--toolemu-agent={model}"]
    with contextlib.redirect_stdout(output):
        status = pytest.main([*args, str(folder / "cases")], plugins=[clock])
    if status not in (0, 1) or clock.failures:
        raise SystemExit(
            "\n".join([f"the cases did not run (exit status {status})", output.getvalue(), *clock.failures])
        )
    return clock.seconds


async def _bare(provider: Provider, url: str, bodies: list[Body]) -> float:
    """Return the CPU seconds of the same requests, sent by the SDK alone."""
    create, close = _client(provider, url)
    slots = asyncio.Semaphore(IN_FLIGHT)

    async def send(body: Body) -> None:
        async with slots:
            await create(**body)

    begun = time.process_time()
    await asyncio.gather(*map(send, bodies))
    seconds = time.process_time() - begun
    await close()
    return seconds


def _client(provider: Provider, url: str) -> tuple[Any, Any]:
    """Return a function that sends a request, and one that closes the connections."""
    if provider == "openai":
        from openai import AsyncOpenAI

        openai = AsyncOpenAI(api_key="none", base_url=f"{url}/v1", timeout=None, max_retries=0)
        return openai.chat.completions.create, openai.close
    from anthropic import AsyncAnthropic

    anthropic = AsyncAnthropic(api_key="none", base_url=url, timeout=None, max_retries=0)
    return anthropic.messages.create, anthropic.close


def _completions(url: str) -> list[Body]:
    """Return the bodies of all completion requests that the server received."""
    with urllib.request.urlopen(f"{url}/__log") as response:
        requests = json.load(response)["requests"]
    return [request["body"] for request in requests if request["role"]]


if __name__ == "__main__":
    main()
