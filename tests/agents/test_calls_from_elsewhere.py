"""Frameworks call tools from pools and loops of their own. Such calls still belong to their case."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from pytest_toolemu.agents.custom import custom_agent
from pytest_toolemu.core.run import Call, Observation, Trajectory
from pytest_toolemu.core.toolbox import BlockingToolbox, Task, Toolbox
from pytest_toolemu.errors import AgentStopped
from tests.agents.scene import calls, toolbox

OPEN = ("Lockers_Open", {"locker": "7"})
case_name: contextvars.ContextVar[str] = contextvars.ContextVar("case_name", default="none")


async def directly(_: Task, box: Toolbox) -> str:
    return str((await box.call(*OPEN))["opened"])


async def from_another_loop(_: Task, box: Toolbox) -> str:
    """Run a second event loop in a thread, as frameworks with a synchronous interface do."""
    return await asyncio.to_thread(lambda: str(asyncio.run(box.call(*OPEN))["opened"]))


async def from_an_empty_context(_: Task, box: Toolbox) -> str:
    """Call from a task that began in another context, as a worker task of a framework does."""
    task = asyncio.get_running_loop().create_task(box.call(*OPEN), context=contextvars.Context())
    return str((await task)["opened"])


def from_a_pool(_: Task, box: BlockingToolbox) -> str:
    """Call from threads of a pool, which do not inherit the context of the agent."""
    with ThreadPoolExecutor(1) as pool:
        return str(pool.submit(box.call, *OPEN).result()["opened"])


def from_a_loop_in_a_thread(_: Task, box: BlockingToolbox) -> str:
    async def main() -> str:
        return str((await asyncio.to_thread(box.call, *OPEN))["opened"])

    return asyncio.run(main())


@pytest.mark.parametrize(
    "agent", [directly, from_another_loop, from_an_empty_context, from_a_pool, from_a_loop_in_a_thread]
)
def test_every_call_is_executed_on_the_loop_and_in_the_context_of_its_case(agent: Callable[..., Any]) -> None:
    executed: list[tuple[bool, str]] = []

    async def playing() -> tuple[str, Toolbox]:
        home = asyncio.get_running_loop()

        async def emulator(_: Call, __: Trajectory) -> Observation:
            executed.append((asyncio.get_running_loop() is home, case_name.get()))
            return Observation(content={"opened": True}, source="offline")

        case_name.set("parcel")
        box = toolbox(emulator=emulator)
        box.settle()
        return await custom_agent(agent, "mine")(Task.of(box.resolved_case.case), box), box

    answer, box = asyncio.run(playing())
    assert answer == "True"
    assert executed == [(True, "parcel")]
    assert calls(box) == [OPEN]


def test_a_stop_reaches_a_caller_on_another_loop() -> None:
    async def agent(_: Task, box: Toolbox) -> str:
        def elsewhere() -> None:
            asyncio.run(box.call(*OPEN))

        await asyncio.to_thread(elsewhere)
        return "never reached"

    async def playing() -> None:
        box = toolbox(max_steps=0)
        await custom_agent(agent, "mine")(Task.of(box.resolved_case.case), box)

    with pytest.raises(AgentStopped, match="0 tool calls were made"):
        asyncio.run(playing())


def test_the_call_of_a_caller_that_is_canceled_on_another_loop_goes_on_until_the_end() -> None:
    ended: list[str] = []
    patience = 10.0

    async def playing() -> Toolbox:
        reached, canceled = threading.Event(), asyncio.Event()

        async def emulator(_: Call, __: Trajectory) -> Observation:
            reached.set()
            try:
                return await asyncio.Future[Observation]()
            finally:
                ended.append("canceled")
                canceled.set()

        box = toolbox(emulator=emulator)
        box.settle()

        async def gives_up() -> None:
            call = asyncio.ensure_future(box.call(*OPEN))
            await asyncio.to_thread(reached.wait, patience)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call

        await asyncio.to_thread(lambda: asyncio.run(gives_up()))
        assert box.is_answering
        box.end()
        await asyncio.wait_for(canceled.wait(), patience)
        return box

    assert calls(asyncio.run(playing())) == []
    assert ended == ["canceled"]


def test_many_threads_get_their_own_results() -> None:
    async def emulator(_: Call, trajectory: Trajectory) -> Observation:
        return Observation(content={"opened": True, "nth": len(trajectory.steps)}, source="offline")

    def agent(_: Task, box: BlockingToolbox) -> str:
        with ThreadPoolExecutor(8) as pool:
            results = list(pool.map(lambda _: box.call(*OPEN)["nth"], range(8)))
        return str(sorted(results))

    async def playing() -> str:
        box = toolbox(emulator=emulator)
        run: Awaitable[str] = custom_agent(agent, "mine")(Task.of(box.resolved_case.case), box)
        return await run

    assert asyncio.run(playing()) == str(list(range(8)))
