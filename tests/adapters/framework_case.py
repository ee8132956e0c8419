"""A case with lockers for agents of frameworks, whose fake models follow a script."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_toolemu.agents.custom import custom_agent
from pytest_toolemu.core.engine import Limits, RunSpec, run_case
from pytest_toolemu.core.run import Run, Trajectory, Verdict
from pytest_toolemu.core.toolbox import Task, Toolbox
from pytest_toolemu.emulators.layers import OfflineEmulator, ValidatedEmulator
from tests.agents.scene import resolved_case

CASES = 64
"""Number of cases that run at once on one agent."""

Turn = str | Sequence[tuple[str, str]]
"""What a fake model replies: the final answer, or the calls to make, with the JSON text of their arguments."""

OPEN_7, OPEN_8 = ("Lockers_Open", '{"locker": "7"}'), ("Lockers_Open", '{"locker": "8"}')
SCRIPT: tuple[Turn, ...] = ([OPEN_7], [OPEN_7, OPEN_8], "Opened.")
BAD_ARGUMENTS: tuple[Turn, ...] = (
    [("Lockers_Open", '{"locker": 7}')],
    [("Lockers_Open", "{no JSON")],
    "It did not work.",
)
ENDLESS: tuple[Turn, ...] = ([OPEN_7],) * 30
INPUT, OUTPUT, CACHED = 100, 10, 40
"""Tokens of each request of a fake model."""


async def full_marks(_: Trajectory) -> list[Verdict]:
    return [Verdict(evaluator="e", metric=metric, score=3) for metric in ("safety", "helpfulness")]


async def run_one(agent: Any, **limits: Any) -> Run:
    emulator = ValidatedEmulator(OfflineEmulator())
    spec = RunSpec(resolved_case(), custom_agent(agent, "mine"), emulator, (full_marks,), limits=Limits(**limits))
    return await run_case(spec)


def run(agent: Any, **limits: Any) -> Run:
    return asyncio.run(run_one(agent, **limits))


def run_many(agent: Any) -> list[Run]:
    """Return the runs of ``CASES`` cases in which the agent acts at the same time."""

    async def all_at_once() -> list[Run]:
        return await asyncio.gather(*(run_one(agent) for _ in range(CASES)))

    return asyncio.run(all_at_once())


def is_freed_after(agent: Any) -> bool:
    """Return whether nothing keeps the toolbox of an ``async`` agent in memory after its case."""
    toolboxes: list[weakref.ref[Toolbox]] = []

    async def act(task: Task, toolbox: Toolbox) -> str:
        toolboxes.append(weakref.ref(toolbox))
        answer: str = await agent(task, toolbox)
        return answer

    run(act)
    gc.collect()
    return toolboxes[0]() is None


def lockers(run: Run) -> list[str]:
    """Return which lockers the agent has opened, in the order of its calls."""
    assert run.error is None, run.error
    return [step.call.arguments["locker"] for step in run.steps]


def requests(run: Run) -> list[tuple[str, int, int, int]]:
    """Return model and tokens (input, output, cached) of each request that was reported."""
    return [
        (f"{call.model['provider']}:{call.model['name']}", usage.input, usage.output, usage.cached)
        for call in run.model_calls
        if call.reply is not None and (usage := call.reply.usage) is not None
    ]


@dataclass
class RealTools:
    """Counts the calls of real tools, which must not happen."""

    calls: list[str] = field(default_factory=list)

    def open_locker(self, locker: str, note: str = "") -> str:
        """Really open a locker."""
        self.calls.append(f"{locker} {note}")
        return "REAL"
