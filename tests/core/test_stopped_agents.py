"""Agents that were stopped and go on, and frameworks that stop their agent by a limit of their own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from benchmarks.virtual import VirtualLoop
from pytest_toolemu.agents.custom import custom_agent
from pytest_toolemu.core.engine import STOP_GRACE, Limits, RunSpec, run_case
from pytest_toolemu.core.run import Call, Observation, Run, Trajectory, Verdict
from pytest_toolemu.core.toolbox import BlockingToolbox, Task, Toolbox
from pytest_toolemu.errors import AgentStopped, InconclusiveError
from tests.evaluators.resolved_cases import SEARCH_RESULT, resolved_case

FIND = ("Purse_FindPayees", {"name": "Inés"})
MODEL_TURN = 0.3
"""Seconds that a model of these agents takes for a turn."""


async def emulator(_call: Call, _trajectory: Trajectory) -> Observation:
    return Observation(content=SEARCH_RESULT, source="simulated")


async def slow(_call: Call, _trajectory: Trajectory) -> Observation:
    await asyncio.sleep(MODEL_TURN)
    return Observation(content=SEARCH_RESULT, source="simulated")


async def gives_up(_call: Call, _trajectory: Trajectory) -> Observation:
    raise InconclusiveError("refused: no")


async def content(_trajectory: Trajectory) -> list[Verdict]:
    return [Verdict(evaluator="e", metric=metric, score=3) for metric in ("safety", "helpfulness")]


def run(agent: Any, emulate: Any = emulator, **limits: Any) -> Run:
    """Run a case in virtual time."""
    spec = RunSpec(resolved_case(), custom_agent(agent, "mine"), emulate, (content,), limits=Limits(**limits))

    async def running() -> Run:
        try:
            return await run_case(spec)
        finally:
            if isinstance(agent, Unstoppable):
                agent.is_over = True

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(running())


class Stubborn:
    """An agent of a framework that reports even a BaseException of a tool to its model and goes on."""

    def __init__(self, turns: int) -> None:
        self.turns = turns
        self.asked = 0
        self.canceled = False

    async def __call__(self, _task: Task, toolbox: Toolbox) -> str:
        try:
            while self.asked < self.turns:
                self.asked += 1
                await asyncio.sleep(MODEL_TURN)
                try:
                    await toolbox.call(*FIND)
                except asyncio.CancelledError:
                    raise
                except BaseException:
                    continue
        except asyncio.CancelledError:
            self.canceled = True
            raise
        return "the framework's answer"


def test_an_agent_that_swallows_the_stop_is_canceled_after_the_grace_period() -> None:
    agent = Stubborn(turns=300)
    result = run(agent, max_steps=2)
    assert (result.stop, result.stop_reason, len(result.steps)) == ("step_limit", "2 tool calls were made", 2)
    assert (result.outcome, result.answer) == ("passed", ""), "the run is judged as one that reached the limit"
    assert agent.canceled
    assert agent.asked <= 3 + STOP_GRACE / MODEL_TURN + 1


def test_an_agent_that_ends_within_the_grace_period_is_not_canceled() -> None:
    agent = Stubborn(turns=5)
    result = run(agent, max_steps=2)
    assert (result.stop, result.answer, agent.canceled) == ("step_limit", "", False)


def test_an_agent_that_swallows_a_failure_of_the_emulator_is_canceled_as_well() -> None:
    agent = Stubborn(turns=300)
    result = run(agent, gives_up)
    assert (result.outcome, result.reasons) == ("inconclusive", ("refused: no",))
    assert agent.canceled


class Unstoppable:
    """An agent that catches the exceptions of its stop and of its cancellation, and goes on."""

    def __init__(self, wait: Callable[[Toolbox], Awaitable[object]]) -> None:
        self.wait = wait
        self.is_over = False

    async def __call__(self, _task: Task, toolbox: Toolbox) -> str:
        while not self.is_over:
            with contextlib.suppress(Exception, asyncio.CancelledError, AgentStopped):
                await self.wait(toolbox)
        return "never waited for"


WAITS: list[Callable[[Toolbox], Awaitable[object]]] = [
    lambda toolbox: toolbox.call(*FIND),
    lambda _: asyncio.sleep(MODEL_TURN),
    lambda _: asyncio.Event().wait(),
]


@pytest.mark.parametrize("wait", WAITS, ids=["calls", "sleeps", "waits"])
def test_an_agent_that_ignores_its_cancellation_has_a_record(wait: Callable[[Toolbox], Awaitable[object]]) -> None:
    result = run(Unstoppable(wait), slow, timeout=60.0, max_steps=100_000)
    assert (result.outcome, result.stop, result.answer) == ("inconclusive", "timeout", "")
    assert result.reasons == (
        "the case took more than 60 s; raise --toolemu-timeout if the models are slow; its agent ignored for 5 s that it "
        "was canceled, and was left behind",
    )


def test_an_agent_that_ignores_the_stop_and_its_cancellation_is_judged_at_its_limit() -> None:
    result = run(Unstoppable(lambda toolbox: toolbox.call(*FIND)), max_steps=2, timeout=STOP_GRACE + 1)
    assert (result.stop, result.outcome, len(result.steps)) == ("step_limit", "passed", 2)


def test_an_agent_that_is_refused_again_and_again_is_slowed_down() -> None:
    """It would otherwise block the event loop, and with it all other cases."""
    waited: list[float] = []

    async def agent(_task: Task, toolbox: Toolbox) -> str:
        loop = asyncio.get_running_loop()
        for _ in range(102):
            started = loop.time()
            with contextlib.suppress(AgentStopped, asyncio.CancelledError):
                await toolbox.call(*FIND)
            waited.append(loop.time() - started)
        return "never waited for"

    assert run(agent, max_steps=0).stop == "step_limit"
    assert set(waited[:101]) == {0.0}
    assert waited[101] > 0


def test_an_agent_that_quits_within_a_framework_is_canceled_as_well() -> None:
    async def quitting(_task: Task, toolbox: Toolbox) -> str:
        with contextlib.suppress(BaseException):
            toolbox.quit("not without the user")
        await asyncio.Event().wait()
        return "never reached"

    result = run(quitting)
    assert (result.stop, result.stop_reason) == ("quit", "not without the user")


def test_an_agent_can_wait_for_the_stop() -> None:
    """Such as a server that has to end a conversation which it does not control."""

    async def serving(_task: Task, toolbox: Toolbox) -> str:
        client = asyncio.create_task(toolbox.call(*FIND))
        await toolbox.stopped.wait()
        with pytest.raises(BaseException, match="step_limit"):
            await client
        return "closed"

    assert run(serving, max_steps=0).stop == "step_limit"


def raised_by(module: str, name: str, base: type[Exception] = Exception, **attributes: Any) -> type[Exception]:
    """Return an exception class as a framework defines it."""
    return type(name, (base,), {"__module__": module, **attributes})


LIMITS = [
    (
        raised_by("langgraph.errors", "GraphRecursionError", RecursionError),
        "Recursion limit of 25 reached",
        "step_limit",
    ),
    (raised_by("agents.exceptions", "MaxTurnsExceeded"), "Max turns (10) exceeded", "step_limit"),
    (
        raised_by("pydantic_ai.exceptions", "UsageLimitExceeded", RuntimeError),
        "The next request would exceed the request_limit of 50",
        "step_limit",
    ),
    (
        raised_by("pydantic_ai.exceptions", "UsageLimitExceeded", RuntimeError),
        "Exceeded the total_tokens_limit of 1000 (total_tokens=1001)",
        "token_limit",
    ),
    (
        raised_by("google.adk.agents.invocation_context", "LlmCallsLimitExceededError"),
        "Max number of llm calls limit of `5` exceeded",
        "step_limit",
    ),
    (
        raised_by("claude_agent_sdk._errors", "ResultError", subtype="error_max_turns"),
        "Reached maximum number of turns (3)",
        "step_limit",
    ),
]


@pytest.mark.parametrize(("error", "message", "stop"), LIMITS, ids=lambda value: getattr(value, "__name__", None))
@pytest.mark.parametrize("is_blocking", [False, True], ids=["async", "blocking"])
def test_a_frameworks_own_limit_ends_the_turn_and_the_run_is_judged(
    error: type[Exception], message: str, stop: str, is_blocking: bool
) -> None:
    async def agent(_task: Task, toolbox: Toolbox) -> str:
        await toolbox.call(*FIND)
        raise error(message)

    def blocking(_task: Task, toolbox: BlockingToolbox) -> str:
        toolbox.call(*FIND)
        raise error(message)

    if is_blocking:  # a thread cannot wait in virtual time
        spec = RunSpec(resolved_case(), custom_agent(blocking, "mine"), emulator, (content,))
        result = asyncio.run(run_case(spec))
    else:
        result = run(agent)
    assert (result.stop, result.outcome, len(result.steps)) == (stop, "passed", 1)
    assert result.stop_reason == f"{error.__name__}: {message}"


@pytest.mark.parametrize(
    "error",
    [
        raised_by("agents.exceptions", "ModelBehaviorError"),
        raised_by("claude_agent_sdk._errors", "ResultError", subtype="error_during_execution"),
        raised_by("my_agent", "MaxTurnsExceeded"),
        RecursionError,
    ],
)
def test_other_exceptions_of_frameworks_break_the_run(error: type[Exception]) -> None:
    async def agent(_task: Task, _toolbox: Toolbox) -> str:
        raise error("no")

    assert run(agent).outcome == "broken"
