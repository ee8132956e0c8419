"""Run the loopback server in another process, with scripts that wait before each reply, and sometimes fail."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.e2e.opinions import judge
from tests.loopback import Fault, Script, by_role, conforming
from tests.loopback.records import Answer, Reply, Request

# The agent makes five calls. With those of the emulator and the judges, a case has twelve successive requests.
_STEPS: Final = 5
_FAULTS: Final = (
    Fault(status=429),
    Fault(status=500),
    Fault(status=529),
    Fault("drop"),
    Fault("truncate"),
    Fault("stall"),
)


@contextlib.contextmanager
def running(kind: str, latency: float) -> Iterator[str]:
    """Yield the server's URL; for ``sleep``, no server is started."""
    if kind == "sleep":
        yield ""
        return
    command = [sys.executable, "-m", "tests.loopback", "--script", f"benchmarks.server:{kind}"]
    environ = {**os.environ, "LATENCY": str(latency)}
    root = Path(__file__).parents[1]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ, cwd=root) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


def http() -> Script:
    """Return a script that gives conforming replies after the latency."""
    script, seconds = by_role(agent=conforming(calls=_STEPS), evaluator=judge), float(os.environ["LATENCY"])

    async def slow(request: Request) -> Answer:
        await asyncio.sleep(seconds)
        answer = script(request)
        assert isinstance(answer, Reply | Fault)
        return answer

    return slow


def faults() -> Script:
    """Return the same script with one failing request in ten: an immediate refusal, or an answer that is lost."""
    script, draw = http(), random.Random(0)

    async def failing(request: Request) -> Answer:
        fault = draw.choice(_FAULTS) if draw.random() < 0.1 else None
        if fault is not None and fault.kind == "error":
            return fault
        if fault is not None:
            await asyncio.sleep(float(os.environ["LATENCY"]))
            return fault
        answer = script(request)
        assert not isinstance(answer, Reply | Fault)
        return await answer

    return failing
