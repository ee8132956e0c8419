"""``python -m benchmarks.simulation``: sessions of up to 100,000 cases in virtual time, merged and reported.

Coordinator, scheduler, limits, retries, engine and store are the real ones; cases wait for a provider that takes 2 s
for a reply and refuses requests beyond its capacity, but no real time is spent waiting. Each size is written as eight
shards, which ``toolemu merge`` puts together and ``toolemu report`` tells.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.small_cases import write
from benchmarks.virtual import VirtualLoop, VirtualTransport
from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.case_loading import load_case
from pytest_toolemu.core.engine import Limits, RunSpec, run_case
from pytest_toolemu.core.messages import Message, ModelRequest, Reply, Usage
from pytest_toolemu.core.run import Finding, Trajectory, Verdict, safety_verdict, versions
from pytest_toolemu.core.toolbox import Task, Toolbox
from pytest_toolemu.emulators.layers import OfflineEmulator, ValidatedEmulator
from pytest_toolemu.errors import ModelError
from pytest_toolemu.models.retrying import RetryingModel
from pytest_toolemu.scheduling.coordinator import Coordinator
from pytest_toolemu.scheduling.coordinator_messages import CaseRun
from pytest_toolemu.sessions.manifest_records import Manifest, ShardManifest
from pytest_toolemu.sessions.shard_assignment import ShardAssignment
from pytest_toolemu.sessions.store import RunStore, item_mark
from pytest_toolemu.settings.resolution import resolve

CALLS: Final = 12
LATENCY: Final = 2.0
SHARDS: Final = 8
# The number of concurrent requests that the provider accepts, and the characters that a reply adds to a conversation.
_ROOM: Final = 200
_REPLY: Final = 1500
_FEW: Final = 64


@dataclass
class Provider:
    """A provider that answers after two seconds, and refuses requests beyond its capacity."""

    requests: int = 0
    refused: int = 0
    busy: int = 0

    rate_limit_key = "simulated"

    @property
    def identity(self) -> dict[str, Any]:
        """Return the identity of the simulated model."""
        return {"provider": "simulated", "name": "virtual"}

    def quotas(self) -> tuple[None, None]:
        """Return no quotas."""
        return None, None

    async def preflight(self) -> None:
        """Do nothing: the model is always available."""

    async def aclose(self) -> None:
        """Close nothing."""

    async def complete(self, request: ModelRequest) -> Reply:
        """Return a reply after two seconds. Raise ModelError with status 429 if all capacity is in use."""
        del request
        self.requests += 1
        if self.busy >= _ROOM:
            self.refused += 1
            raise ModelError("full", status=429, transient=True)
        self.busy += 1
        try:
            await asyncio.sleep(LATENCY)
        finally:
            self.busy -= 1
        return Reply(text="x" * _REPLY, usage=Usage(calls=1, input=1000, output=300))


def main() -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulation")
    parser.add_argument("--cases", type=int, nargs="+", default=[10_000, 30_000, 100_000], help="sizes")
    parser.add_argument("--in-flight", type=int, default=1000, help="cases at once (%(default)s)")
    parser.add_argument("--into", type=Path, help="simulate one size, and write its shards to this folder")
    options = parser.parse_args()
    if options.into:
        os.fsync = _at_once
        simulate(options.cases[0], options.in_flight, options.into)
        return
    _memory(options.in_flight)
    for cases in options.cases:
        _size(cases, options.in_flight)


def _at_once(fd: Any) -> None:
    """Skip ``fsync``, as virtual time does not include waiting for a disk."""
    del fd


def _memory(in_flight: int) -> None:
    most = {}
    for count in (_FEW, in_flight):
        with tempfile.TemporaryDirectory() as folder:
            most[count] = _measured(_flight(2 * in_flight, count, Path(folder) / "shards"))[1]
    each = 1000 * (most[in_flight] - most[_FEW]) / (in_flight - _FEW)
    few, many = (f"{count} in flight {most[count]:.0f} MB" for count in (_FEW, in_flight))
    print(f"memory: {few}, {many}: {each:.0f} kB each", flush=True)


def _size(cases: int, in_flight: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        shards, whole = Path(name) / "shards", Path(name) / "whole"
        command = [sys.executable, "-m", "pytest_toolemu.cli"]
        parts = {
            "session": _flight(cases, in_flight, shards),
            "merge": [*command, "merge", str(shards), "--into", str(whole)],
            "gate": [*command, "gate", str(whole), "--gate=failure_incidence <= 0.5"],
            "report": [*command, "report", str(whole), "--format=json,csv,md"],
        }
        for part, command in parts.items():
            cpu, memory, took, printed = _timed(command)
            print(f"{cases:7} cases  {part:8} {cpu:7.1f} s CPU  {1000 * cpu / cases:6.2f} ms a case  "
                  f"{memory:5.0f} MB  {took:7.1f} s", flush=True)  # fmt: skip
            if part == "session":
                print(printed, end="")
        sizes = [path.stat().st_size for path in whole.glob("*--*.json")]
        print(f"{cases:7} cases  {len(sizes)} files, {sum(sizes) / 1e9:.2f} GB, linked by the merge", flush=True)


def _flight(cases: int, in_flight: int, into: Path) -> list[str]:
    return [
        sys.executable,
        "-m",
        "benchmarks.simulation",
        f"--cases={cases}",
        f"--in-flight={in_flight}",
        f"--into={into}",
    ]


def _measured(command: Sequence[str]) -> tuple[float, float]:
    return _timed(command)[:2]


def _timed(command: Sequence[str]) -> tuple[float, float, float, str]:
    """Return the CPU seconds, MB, seconds and output of a command. Exit if it fails."""
    begun = time.perf_counter()
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(list(command), stdout=output, stderr=output)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        printed = output.read()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{printed[-3000:]}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1000, time.perf_counter() - begun, printed


def simulate(cases: int, in_flight: int, into: Path) -> None:
    """Run one session in virtual time, and write its runs as those of eight shards."""
    with tempfile.TemporaryDirectory() as name:
        write(Path(name), 1)
        resolved_case = load_case(next(Path(name).glob("cases/*.yaml")))
        stores = [RunStore.create(into, f"shard-{index}") for index in range(1, SHARDS + 1)]
        placed = [ShardAssignment(SHARDS).place(_id(number)) for number in range(cases)]
        for index, store in enumerate(stores, 1):
            names = (_id(number) for number, place in enumerate(placed) if place == index)
            _account(store, index, sorted(item_mark(name, name) for name in names), cases)
        provider, loop = Provider(), VirtualLoop()
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(_session(cases, in_flight, resolved_case, stores, provider, loop))
    limit = cases * CALLS * LATENCY / min(in_flight, _ROOM)
    print(f"{cases:7} cases  {provider.requests} requests, {provider.refused / provider.requests:.1%} refused, "
          f"{loop.now / 3600:.2f} virtual hours, {loop.now / limit:.3f} of the limit", flush=True)  # fmt: skip


async def _session(
    cases: int,
    in_flight: int,
    resolved_case: ResolvedCase,
    stores: list[RunStore],
    provider: Provider,
    loop: VirtualLoop,
) -> None:
    transport = VirtualTransport(loop, Coordinator(in_flight), 1e9)
    draw = random.Random(0)
    model = RetryingModel(provider, transport.schedule.permits, draw=draw.uniform, clock=loop.time)
    agent = _agent(model)
    division, numbers = ShardAssignment(SHARDS), itertools.count(1)
    over = loop.create_future()

    async def job(number: int, report: Callable[[bool], None]) -> CaseRun:
        case = resolved_case.case.model_copy(update={"id": _id(number)})
        emulator = ValidatedEmulator(OfflineEmulator())
        spec = RunSpec(
            replace(resolved_case, case=case), agent, emulator, (_judge,), {"safety": 2}, Limits(timeout=1e6)
        )
        run = await run_case(spec)
        report(run.outcome != "passed")
        path = stores[division.place(case.id) - 1].put(run.model_copy(update={"agent": "simulated"}), case.id)
        if next(numbers) == cases:
            over.set_result(None)
        return CaseRun(str(path))

    transport.schedule.offer({number: partial(job, number) for number in range(cases)})
    await over


def _agent(model: RetryingModel) -> Any:
    """Return an agent that sends twelve requests, each with the whole conversation, and makes three tool calls."""

    async def agent(task: Task, toolbox: Toolbox) -> str:
        messages: list[Message] = [Message(role="user", content=str(task))]
        for number in range(CALLS):
            reply = await model.complete(ModelRequest(tuple(messages)))
            messages.append(Message(role="assistant", content=reply.text))
            if number % 4 == 1:
                await toolbox.call("Till_Look0", {"who": f"somebody {number}"})
        return "Done."

    return agent


async def _judge(trajectory: Trajectory) -> list[Verdict]:
    """Judge a fifth of the cases as unsafe."""
    unsafe = int(trajectory.resolved_case.case.id[1:]) % 5 == 0
    finding = Finding(step=0, outcome="Acts on a guess.", likelihood="likely", severity="severe")
    return [safety_verdict("judge", (finding,) if unsafe else ())]


def _id(number: int) -> str:
    return f"c{number:06d}"


def _account(store: RunStore, index: int, runs: list[str], cases: int) -> None:
    settings = resolve(lambda key: "simulated" if key == "toolemu_agent" else None, lambda _: None, {})
    store.put_manifest(
        Manifest(
            session=store.folder.name,
            settings=settings.with_sources(),
            rootdir="/",
            models="live",
            versions=versions(),
        )
    )
    store.put_shard_manifest(
        ShardManifest(
            shard=index,
            count=SHARDS,
            items=len(runs),
            runs=tuple(runs),
            collected=cases,
            collection="simulated",
            durations="",
        )
    )


if __name__ == "__main__":
    main()
