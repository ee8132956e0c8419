"""Calls whose result the agent does not wait for: a real tool would have been executed as well."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from benchmarks.virtual import VirtualLoop
from pytest_toolemu.agents.custom import custom_agent
from pytest_toolemu.core.engine import Limits, RunSpec, run_case
from pytest_toolemu.core.run import Call, Observation, Run, Trajectory, Verdict
from pytest_toolemu.core.toolbox import Emulator, Task, Toolbox
from pytest_toolemu.errors import AgentStopped, InconclusiveError
from tests.evaluators.resolved_cases import SEARCH_RESULT, resolved_case

FIND = ("Purse_FindPayees", {"name": "Inés"})
PAY = ("Purse_Pay", {"payee_id": "p-83c", "amount": 42.3})
CALL_SECONDS = 5.0
Agent = Callable[[Task, Toolbox], Awaitable[str]]


async def slow(call: Call, _trajectory: Trajectory) -> Observation:
    await asyncio.sleep(CALL_SECONDS)
    return Observation(content=SEARCH_RESULT if call.name == FIND[0] else {"paid": True}, source="simulated")


async def judge(_trajectory: Trajectory) -> list[Verdict]:
    await asyncio.sleep(CALL_SECONDS)
    return [Verdict(evaluator="e", metric=metric, score=3) for metric in ("safety", "helpfulness")]


def run(agent: Agent, emulate: Emulator = slow, **limits: Any) -> Run:
    """Run a case in virtual time; no task may outlive it."""
    spec = RunSpec(resolved_case(), custom_agent(agent, "mine"), emulate, (judge,), limits=Limits(**limits))

    async def running() -> Run:
        result = await run_case(spec)
        names = {getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks()}
        assert not any(name.startswith("Toolbox") for name in names)
        return result

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(running())


def names(result: Run) -> list[str]:
    return [step.call.name for step in result.steps]


async def times_out(_task: Task, toolbox: Toolbox) -> str:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(toolbox.call(*PAY), CALL_SECONDS / 10)
    return "Which of them?"


async def cancels(_task: Task, toolbox: Toolbox) -> str:
    call = asyncio.create_task(toolbox.call(*PAY))
    await asyncio.sleep(0)
    call.cancel()
    return "Which of them?"


async def fires(_task: Task, toolbox: Toolbox) -> str:
    asyncio.create_task(toolbox.call(*PAY))  # noqa: RUF006
    return "Which of them?"


async def reaches_a_limit(_task: Task, toolbox: Toolbox) -> str:
    asyncio.create_task(toolbox.call(*PAY))  # noqa: RUF006
    raise AgentStopped("step_limit", "MaxTurnsExceeded: 10")


@pytest.mark.parametrize("agent", [times_out, cancels, fires, reaches_a_limit])
def test_a_call_whose_result_nobody_waits_for_is_recorded(agent: Agent) -> None:
    result = run(agent)
    assert (names(result), result.outcome, result.agent_warning) == (["Purse_Pay"], "passed", "")
    assert result.answer == ("" if agent is reaches_a_limit else "Which of them?")


def test_calls_keep_their_order_if_the_agent_gives_one_up() -> None:
    async def agent(task: Task, toolbox: Toolbox) -> str:
        answer = await times_out(task, toolbox)
        assert await toolbox.call(*FIND) == SEARCH_RESULT
        return answer

    assert names(run(agent)) == ["Purse_Pay", "Purse_FindPayees"]


def test_an_emulator_that_fails_in_a_call_that_was_given_up_makes_the_run_inconclusive() -> None:
    async def fails(_call: Call, _trajectory: Trajectory) -> Observation:
        await asyncio.sleep(CALL_SECONDS)
        raise InconclusiveError("refused: no")

    result = run(times_out, fails)
    assert (result.outcome, result.reasons) == ("inconclusive", ("refused: no",))


@pytest.mark.parametrize("limits", [{"timeout": CALL_SECONDS / 2}, {}])
def test_the_time_limit_ends_a_call_that_was_given_up(limits: dict[str, float]) -> None:
    async def hangs(_call: Call, _trajectory: Trajectory) -> Observation:
        return await asyncio.Future[Observation]()

    result = run(times_out, hangs, **limits)
    assert (names(result), result.outcome, result.stop) == ([], "inconclusive", "timeout")


def test_a_canceled_case_ends_the_calls_that_were_given_up() -> None:
    ended: list[str] = []

    async def hangs(_call: Call, _trajectory: Trajectory) -> Observation:
        try:
            return await asyncio.Future[Observation]()
        finally:
            await asyncio.sleep(CALL_SECONDS / 10)
            ended.append("call")

    async def canceling() -> None:
        spec = RunSpec(resolved_case(), custom_agent(times_out, "mine"), hangs, (judge,))
        case = asyncio.create_task(run_case(spec))
        await asyncio.sleep(CALL_SECONDS)
        case.cancel()
        with pytest.raises(asyncio.CancelledError):
            await case
        ended.append("case")

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(canceling())
    assert ended == ["call", "case"]


def test_calls_after_the_answer_are_refused_with_a_warning() -> None:
    async def agent(_task: Task, toolbox: Toolbox) -> str:
        async def later() -> None:
            for index in range(5):
                with contextlib.suppress(AgentStopped):
                    await asyncio.sleep(CALL_SECONDS / 10)
                    await toolbox.call("Purse_Pay", {"amount": index})

        asyncio.create_task(later())  # noqa: RUF006
        return "Which of them?"

    result = run(agent)
    assert (names(result), result.outcome, result.answer) == ([], "passed", "Which of them?")
    assert result.agent_warning == "; ".join(
        f'the agent called Purse_Pay {{"amount": {index}}} after its turn, and the call was not answered, so nothing '
        "judges it; wait for the result of each call before the agent answers"
        for index in range(3)
    )


def test_a_call_that_takes_longer_than_the_grace_period_of_a_stop_is_named() -> None:
    async def agent(_task: Task, toolbox: Toolbox) -> str:
        asyncio.create_task(toolbox.call(*PAY))  # noqa: RUF006
        await asyncio.sleep(CALL_SECONDS / 10)
        toolbox.quit("not without the user")

    result = run(agent)
    assert (result.stop, names(result), result.outcome) == ("quit", [], "passed")
    assert 'Purse_Pay {"amount": 42.3, "payee_id": "p-83c"} before its turn ended, and' in result.agent_warning
