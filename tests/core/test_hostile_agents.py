"""Agents, emulators, and evaluators that misbehave: the record stays correct, and no exception escapes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from pytest_toolemu.agents.custom import custom_agent
from pytest_toolemu.core.engine import Limits, RunSpec, run_case
from pytest_toolemu.core.run import Call, Observation, Run, Trajectory, Verdict
from pytest_toolemu.core.toolbox import BlockingToolbox, Task, Toolbox
from pytest_toolemu.errors import InconclusiveError, ModelError
from tests.evaluators.resolved_cases import SEARCH_RESULT, resolved_case

FIND = ("Purse_FindPayees", {"name": "Inés"})


class Odd(BaseException):
    """An exception that ``except Exception`` does not catch."""


async def emulator(_call: Call, _trajectory: Trajectory) -> Observation:
    return Observation(content=SEARCH_RESULT, source="simulated")


async def content(_trajectory: Trajectory) -> list[Verdict]:
    return [Verdict(evaluator="e", metric=metric, score=3) for metric in ("safety", "helpfulness")]


async def run_async(agent: Any, emulate: Any = emulator, judges: Any = (content,), **limits: Any) -> Run:
    bounds, thresholds = Limits(**limits), {"safety": 2, "helpfulness": 2}
    return await run_case(RunSpec(resolved_case(), custom_agent(agent, "mine"), emulate, judges, thresholds, bounds))  # type: ignore[arg-type]


def run(agent: Any, emulate: Any = emulator, judges: Any = (content,), **limits: Any) -> Run:
    try:
        return asyncio.run(run_async(agent, emulate, judges, **limits))
    except BaseException as error:  # some of these would skip the test or end the session
        raise AssertionError(f"{type(error).__name__} escaped") from error


async def one_call(_task: Task, toolbox: Toolbox) -> str:
    await toolbox.call(*FIND)
    return "Which of them?"


def raising(error: type[BaseException]) -> Callable[..., Any]:
    async def agent(_task: Task, toolbox: Toolbox) -> str:
        await toolbox.call(*FIND)
        raise error("no")

    return agent


def raising_sync(error: type[BaseException]) -> Callable[..., Any]:
    def agent(_task: Task, toolbox: BlockingToolbox) -> str:
        toolbox.call(*FIND)
        raise error("no")

    return agent


ENDINGS = [
    pytest.skip.Exception,
    pytest.fail.Exception,
    pytest.exit.Exception,
    asyncio.CancelledError,
    KeyboardInterrupt,
    SystemExit,
    Odd,
]
endings = pytest.mark.parametrize("error", ENDINGS)


@endings
@pytest.mark.parametrize("make", [raising, raising_sync])
def test_any_exception_of_an_agent_breaks_only_its_run(make: Callable[..., Any], error: type[BaseException]) -> None:
    result = run(make(error))
    assert (result.outcome, result.stop, len(result.steps)) == ("broken", "error", 1)
    assert error.__name__ in result.reasons[0]
    assert result.error is not None
    assert "test_hostile_agents.py" in result.error.traceback, "the line of the agent is shown"
    assert "pytest_toolemu/" not in result.error.traceback


@endings
def test_any_exception_of_an_emulator_breaks_the_run(error: type[BaseException]) -> None:
    async def emulate(_call: Call, _trajectory: Trajectory) -> Observation:
        raise error("no")

    result = run(one_call, emulate)
    assert (result.outcome, result.steps) == ("broken", ())
    assert error.__name__ in result.reasons[0]


@endings
def test_any_exception_of_an_evaluator_breaks_the_run_but_keeps_other_verdicts(error: type[BaseException]) -> None:
    async def judge(_trajectory: Trajectory) -> list[Verdict]:
        raise error("no")

    def sync_judge(_trajectory: Trajectory) -> list[Verdict]:
        raise error("no")

    for broken in (judge, sync_judge):
        result = run(one_call, judges=(broken, content))
        assert (result.outcome, len(result.verdicts), len(result.steps)) == ("broken", 2, 1)
        assert error.__name__ in result.reasons[0]


class MuteError(Exception):
    """An exception whose own code fails."""

    def __str__(self) -> str:
        raise KeyError("no text")

    @property
    def status_code(self) -> int:
        raise KeyError("no status")


class MuteBase(Odd):
    """The same, for what ``except Exception`` does not catch."""

    __str__ = MuteError.__str__


@pytest.mark.parametrize("error", [MuteError, MuteBase])
@pytest.mark.parametrize("make", [raising, raising_sync])
def test_an_exception_without_a_message_is_the_agents_and_not_the_harnesss(
    make: Callable[..., Any], error: type[BaseException]
) -> None:
    result = run(make(error))
    assert (result.outcome, result.stop, len(result.steps)) == ("broken", "error", 1)
    (reason,) = result.reasons
    assert error.__name__ in reason
    assert reason.endswith(": (no message: its __str__ raised KeyError)")
    assert result.error is not None
    assert result.error.origin == "agent"
    assert "test_hostile_agents.py" in result.error.traceback


def test_an_exception_group_is_recorded_with_its_inner_errors() -> None:
    async def fails() -> None:
        raise ValueError("the innermost")

    async def agent(_task: Task, _toolbox: Toolbox) -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(fails())
        return "never reached"

    result = run(agent)
    assert result.outcome == "broken"
    assert result.error is not None
    assert "the innermost" in result.error.traceback


@pytest.mark.parametrize("started", [True, False])
def test_calls_still_running_after_the_answer_are_recorded_before_it_is_judged(started: bool) -> None:
    running: list[asyncio.Task[Any]] = []
    judged: list[int] = []

    async def leaves(_task: Task, toolbox: Toolbox) -> str:
        running.extend(asyncio.create_task(toolbox.call("Purse_Pay", {"amount": n})) for n in range(3))
        if started:
            await asyncio.sleep(0)
        return "Shall I?"

    async def judge(trajectory: Trajectory) -> list[Verdict]:
        judged.append(len(trajectory.steps))
        return await content(trajectory)

    result = run(leaves, judges=(judge,))
    assert (result.outcome, judged) == ("passed", [3])
    assert [step.call.arguments for step in result.steps] == [{"amount": n} for n in range(3)]
    assert all(task.done() for task in running)


def test_an_agent_that_cancels_its_own_task_breaks_its_run() -> None:
    async def agent(_task: Task, toolbox: Toolbox) -> str:
        await toolbox.call(*FIND)
        current = asyncio.current_task()
        assert current is not None
        current.cancel()
        await asyncio.sleep(0)
        return "never reached"

    result = run(agent)
    assert (result.outcome, result.stop, len(result.steps)) == ("broken", "error", 1)
    assert result.reasons == (
        "RuntimeError: the agent canceled its own task; return the answer, or call toolbox.quit(reason)",
    )
    assert result.error is not None
    assert result.error.origin == "agent"
    assert "test_hostile_agents.py" in result.error.traceback, "the line of the agent is shown"


def test_a_toolbox_of_an_earlier_run_answers_nothing() -> None:
    toolboxes: list[Toolbox] = []
    errors: list[BaseException] = []

    async def agent(_task: Task, toolbox: Toolbox) -> str:
        toolboxes.append(toolbox)
        try:
            return str(await toolboxes[0].call(*FIND))
        except BaseException as error:
            errors.append(error)
            return "Shall I?"

    async def twice() -> tuple[Run, Run]:
        return await run_async(agent), await run_async(agent)

    first, second = asyncio.run(twice())
    assert (len(first.steps), len(second.steps)) == (1, 0)
    assert [type(error).__name__ for error in errors] == ["AgentStopped"]


def test_the_step_limit_stops_an_agent_within_task_groups() -> None:
    async def agent(_task: Task, toolbox: Toolbox) -> str:
        async with asyncio.TaskGroup() as outer, asyncio.TaskGroup() as inner:
            for group in (outer, inner) * 5:
                group.create_task(toolbox.call(*FIND))
        return "never reached"

    result = run(agent, max_steps=3)
    assert (result.stop, result.stop_reason, len(result.steps)) == ("step_limit", "3 tool calls were made", 3)
    assert (result.outcome, result.answer) == ("passed", "")


def test_an_agent_can_quit_within_a_task_group() -> None:
    async def quits(toolbox: Toolbox) -> None:
        toolbox.quit("no safe way")

    async def agent(_task: Task, toolbox: Toolbox) -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(quits(toolbox))
        return "never reached"

    assert (run(agent).stop, run(agent).stop_reason) == ("quit", "no safe way")


def test_an_agent_that_suppresses_the_stop_is_stopped_anyway() -> None:
    async def agent(_task: Task, toolbox: Toolbox) -> str:
        for _ in range(9):
            try:
                await toolbox.call(*FIND)
            except BaseException:
                continue
        return "All nine calls were made."

    result = run(agent, max_steps=3)
    assert (result.stop, result.answer, len(result.steps)) == ("step_limit", "", 3)


def test_an_agent_that_suppresses_its_own_quit_has_quit() -> None:
    async def agent(_task: Task, toolbox: Toolbox) -> str:
        try:
            toolbox.quit("no safe way")
        except BaseException:
            return "I stay."

    result = run(agent)
    assert (result.stop, result.answer) == ("quit", "")


@pytest.mark.parametrize(
    ("trouble", "outcome"),
    [(InconclusiveError("refused"), "inconclusive"), (ModelError("500"), "broken"), (KeyError("bug"), "broken")],
)
@pytest.mark.parametrize("plain", [False, True])
def test_an_agent_that_suppresses_an_emulator_error_is_not_judged(
    trouble: Exception, outcome: str, plain: bool
) -> None:
    async def emulate(_call: Call, _trajectory: Trajectory) -> Observation:
        raise trouble

    async def swallows(_task: Task, toolbox: Toolbox) -> str:
        with contextlib.suppress(Exception):
            await toolbox.call(*FIND)
        return "Shall I?"

    def swallows_sync(_task: Task, toolbox: BlockingToolbox) -> str:
        with contextlib.suppress(Exception):
            toolbox.call(*FIND)
        return "Shall I?"

    result = run(swallows_sync if plain else swallows, emulate)
    assert (result.outcome, result.stop, result.verdicts) == (outcome, "error", ())
    assert str(trouble) in result.reasons[0]


def test_an_agent_cannot_change_the_schemas_of_its_tools() -> None:
    schemas_later: list[dict[str, Any]] = []

    async def agent(_task: Task, toolbox: Toolbox) -> str:
        schemas = [tool.parameters for tool in toolbox.tools]
        schemas += [tool["function"]["parameters"] for tool in toolbox.openai_tools()]
        schemas += [tool["input_schema"] for tool in toolbox.anthropic_tools()]
        for schema in schemas:
            schema["properties"].clear()
            schema["required"][:] = []
            schema["additionalProperties"] = True
        schemas_later.extend(tool.parameters for tool in toolbox.tools)
        return "Shall I?"

    result = run(agent)
    original = [tool.parameters for kit in resolved_case().toolkits for tool in kit.tools]
    assert schemas_later == original
    assert [tool.parameters for kit in result.toolkits for tool in kit.tools] == original
    assert result.hashes == run(one_call).hashes


@pytest.mark.parametrize("arguments", [{}, None, [1], float("nan"), {"who": object()}, {1: 2}, b"bytes", {(1, 2): 3}])
@pytest.mark.parametrize("name", [None, 3, "Purse_FindPayees"])
def test_any_call_is_answered(name: Any, arguments: Any) -> None:
    async def agent(_task: Task, toolbox: Toolbox) -> str:
        return str(await toolbox.call(name, arguments))

    result = run(agent)
    assert (result.outcome, len(result.steps)) == ("passed", 1), result.reasons
    assert result.steps[0].call.name == str(name)


def test_any_reason_to_quit_is_recorded_as_text() -> None:
    async def agent(_task: Task, toolbox: Toolbox) -> str:
        toolbox.quit(None)  # type: ignore[arg-type]

    assert (run(agent).outcome, run(agent).stop, run(agent).stop_reason) == ("passed", "quit", "None")


def test_an_emulator_that_is_not_an_async_function_is_an_error() -> None:
    def emulate(_call: Call, _trajectory: Trajectory) -> Observation:
        return Observation(content=SEARCH_RESULT, source="simulated")

    result = run(one_call, emulate)
    assert result.outcome == "broken"
    assert "the emulator is not an async function: it returned Observation" in result.reasons[0]


@pytest.mark.parametrize("returned", [None, {"payees": []}])
def test_an_emulator_that_returns_no_observation_is_an_error(returned: Any) -> None:
    async def emulate(_call: Call, _trajectory: Trajectory) -> Any:
        return returned

    result = run(one_call, emulate)
    assert (result.outcome, result.steps) == ("broken", ())
    assert f"the emulator returned {type(returned).__name__}; return an Observation" in result.reasons[0]


async def returns_none(_trajectory: Trajectory) -> None:
    return None


async def returns_tuple(trajectory: Trajectory) -> Any:
    return tuple(await content(trajectory))


async def returns_numbers(_trajectory: Trajectory) -> Any:
    return [3, 3]


def plain(_trajectory: Trajectory) -> Any:
    return [Verdict(evaluator="e", metric="safety", score=3)]


@pytest.mark.parametrize(
    ("judge", "message"),
    [
        (returns_none, "the evaluator {}:returns_none returned NoneType; return a list of Verdict"),
        (returns_tuple, "the evaluator {}:returns_tuple returned tuple; return a list of Verdict"),
        (returns_numbers, "the evaluator {}:returns_numbers returned list; return a list of Verdict"),
        (plain, "the evaluator {}:plain is not an async function: it returned list; declare it with 'async def'"),
    ],
)
def test_an_evaluator_that_returns_no_verdicts_is_an_error_and_never_passes(judge: Any, message: str) -> None:
    result = run(one_call, judges=(judge, content))
    assert result.outcome == "broken"
    assert message.format(__name__) in result.reasons[0]


def test_an_evaluator_without_an_opinion_is_inconclusive() -> None:
    async def silent(_trajectory: Trajectory) -> list[Verdict]:
        return []

    result = run(one_call, judges=(silent,))
    assert (result.outcome, len(result.reasons)) == ("inconclusive", 2)
