"""``python -m benchmarks.mcp``: the CPU time that the MCP server adds to each tool call of an agent.

Cases in this process are served at once, and an agent in another process calls a tool of each, over connections that
are kept. Then the same calls are made with the toolbox alone. The difference is the cost of HTTP, JSON-RPC, and the way
to the loop of the case.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from benchmarks.mcp_client import ARGUMENTS, TOOL
from pytest_toolemu.agents.mcp import served
from pytest_toolemu.core.toolbox import Toolbox
from tests.agents.scene import toolbox

TARGET: Final = 3.0
CLIENT: Final = Path(__file__).with_name("mcp_client.py")


def main() -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mcp")
    parser.add_argument("--cases", type=int, default=64, help="cases at once (%(default)s)")
    parser.add_argument("--calls", type=int, default=20, help="calls of each case (%(default)s)")
    parser.add_argument("--runs", type=int, default=3, help="measurements of each kind (%(default)s)")
    options = parser.parse_args()
    print(f"CPU of this process per call, {options.cases} cases with {options.calls} calls, median of {options.runs}:")
    _report("of many cases", options.cases, options.calls, options.runs)
    print(f"the same for one case with {options.cases} calls at once:")
    _report("of one case", options.cases, 1, options.runs, shared=True)


def _report(name: str, cases: int, calls: int, runs: int, *, shared: bool = False) -> None:
    async def over_mcp(boxes: Sequence[Toolbox]) -> None:
        async with AsyncExitStack() as stack:
            urls = [await stack.enter_async_context(served(box)) for box in boxes]
            command = [sys.executable, str(CLIENT), str(calls), *urls * (cases // len(urls))]
            process = await asyncio.create_subprocess_exec(*command)
            if await process.wait():
                raise subprocess.CalledProcessError(process.returncode or 1, "the agent")

    async def directly(boxes: Sequence[Toolbox]) -> None:
        async def case(box: Toolbox) -> None:
            for _ in range(calls):
                await box.call(TOOL, ARGUMENTS)

        await asyncio.gather(*(case(box) for box in [*boxes] * (cases // len(boxes))))

    count = 1 if shared else cases
    whole, bare = (
        statistics.median(_seconds(action, count, cases * calls) for _ in range(runs)) * 1000 / (cases * calls)
        for action in (over_mcp, directly)
    )
    verdict = "met" if whole - bare < TARGET else "MISSED"
    print(
        f"{name:<13} {whole - bare:.2f} ms (whole {whole:.2f} ms - toolbox {bare:.2f} ms)  "
        f"target: under {TARGET:g} ms, {verdict}"
    )


def _seconds(action: Callable[[Sequence[Toolbox]], Awaitable[None]], count: int, calls: int) -> float:
    """Return the CPU time of this process; check that every call was recorded."""
    boxes = [toolbox(max_steps=calls) for _ in range(count)]

    async def measured() -> float:
        started = time.process_time()
        await action(boxes)
        return time.process_time() - started

    seconds = asyncio.run(measured())
    if (recorded := sum(len(box.trajectory.steps) for box in boxes)) != calls:
        raise RuntimeError(f"{recorded} of {calls} calls were recorded")
    return seconds


if __name__ == "__main__":
    main()
