"""Agents, emulators and evaluators that misbehave: the record stays correct, and no exception escapes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from pytest_toolemu.agents.custom import custom_agent
from pytest_toolemu.core.engine import run_case
from pytest_toolemu.core.run import Run
from pytest_toolemu.core.run_spec import Limits, RunSpec
from pytest_toolemu.core.toolbox import BlockingToolbox, Task, Toolbox
from pytest_toolemu.core.trajectory import Call, Observation, Trajectory
from pytest_toolemu.core.verdict import Verdict
from pytest_toolemu.errors import InconclusiveError, ModelError
from tests.evaluators.resolved_cases import FOUND, resolved_case

FIND = ("Purse_FindPayees", {"name": "Inés"})


class Odd(BaseException):
    """What no ``except Exception`` sees."""


async def emulator(_call: Call, _trajectory: Trajectory) -> Observation:
    return Observation(content=FOUND, source="simulated")


async def content(_trajectory: Trajectory) -> list[Verdict]:
    return [Verdict(evaluator="e", metric=metric, score=3) for metric in ("safety", "helpfulness")]


async def carried_out(agent: Any, emulate: Any = emulator, judges: Any = (content,), **limits: Any) -> Run:
    bounds, wanted = Limits(**limits), {"safety": 2, "helpfulness": 2}
    return await run_case(RunSpec(resolved_case(), custom_agent(agent, "mine"), emulate, judges, wanted, bounds))  # type: ignore[arg-type]


def run(agent: Any, emulate: Any = emulator, judges: Any = (content,), **limits: Any) -> Run:
    try:
        return asyncio.run(carried_out(agent, emulate, judges, **limits))
    except BaseException as error:  # some of them would skip the test, or end the session
        raise AssertionError(f"{type(error).__name__} escaped") from error


async def calm(_task: Task, toolbox: Toolbox) -> str:
    await toolbox.call(*FIND)
    return "Which of them?"


def raising(error: type[BaseException]) -> Callable[..., Any]:
    async def agent(_task: Task, toolbox: Toolbox) -> str:
        await toolbox.call(*FIND)
        raise error("no")

    return agent


def raising_plainly(error: type[BaseException]) -> Callable[..., Any]:
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
    GeneratorExit,
    Odd,
]
endings = pytest.mark.parametrize("error", ENDINGS)


@endings
@pytest.mark.parametrize("make", [raising, raising_plainly])
def test_whatever_an_agent_raises_breaks_its_own_run_only(make: Callable[..., Any], error: type[BaseException]) -> None:
    result = run(make(error))
    assert (result.outcome, result.stop, len(result.steps)) == ("broken", "error", 1)
    assert error.__name__ in result.reasons[0]
    assert result.error is not None
    assert "test_hostile_agents.py" in result.error.traceback, "its own line is shown"
    assert "pytest_toolemu/" not in result.error.traceback


@endings
def test_whatever_an_emulator_raises_breaks_the_run(error: type[BaseException]) -> None:
    async def emulate(_call: Call, _trajectory: Trajectory) -> Observation:
        raise error("no")

    result = run(calm, emulate)
    assert (result.outcome, result.steps) == ("broken", ())
    assert error.__name__ in result.reasons[0]


@endings
def test_whatever_an_evaluator_raises_breaks_the_run_and_leaves_the_other_verdicts(error: type[BaseException]) -> None:
    async def judge(_trajectory: Trajectory) -> list[Verdict]:
        raise error("no")

    def plain_judge(_trajectory: Trajectory) -> list[Verdict]:
        raise error("no")

    for broken in (judge, plain_judge):
        result = run(calm, judges=(broken, content))
        assert (result.outcome, len(result.verdicts), len(result.steps)) == ("broken", 2, 1)
        assert error.__name__ in result.reasons[0]


def test_an_exception_group_is_recorded_with_the_lines_of_its_errors() -> None:
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


@pytest.mark.parametrize("begun", [True, False])
def test_calls_left_running_after_the_answer_are_ended_and_not_recorded(begun: bool) -> None:
    left: list[asyncio.Task[Any]] = []
    judged: list[int] = []

    async def emulate(call: Call, trajectory: Trajectory) -> Observation:
        if call.name == "Purse_Pay" and begun:
            await asyncio.Event().wait()
        return await emulator(call, trajectory)

    async def leaves(_task: Task, toolbox: Toolbox) -> str:
        left.extend(asyncio.create_task(toolbox.call("Purse_Pay", {"amount": n})) for n in range(3))
        if begun:
            await asyncio.sleep(0)
        return "Shall I?"

    async def judge(trajectory: Trajectory) -> list[Verdict]:
        await asyncio.wait(left)
        judged.append(len(trajectory.steps))
        return await content(trajectory)

    result = run(leaves, emulate, (judge,))
    assert (result.outcome, len(result.steps), judged) == ("passed", 0, [0])
    assert {(type(task.exception()).__name__, str(task.exception())) for task in left} == {
        ("AgentStopped", "('timeout', 'the case has ended')")
    }


def test_a_toolbox_kept_for_later_answers_nothing() -> None:
    kept: list[Toolbox] = []
    told: list[BaseException] = []

    async def agent(_task: Task, toolbox: Toolbox) -> str:
        kept.append(toolbox)
        try:
            return str(await kept[0].call(*FIND))
        except BaseException as error:
            told.append(error)
            return "Shall I?"

    async def twice() -> tuple[Run, Run]:
        return await carried_out(agent), await carried_out(agent)

    first, second = asyncio.run(twice())
    assert (len(first.steps), len(second.steps)) == (1, 0)
    assert [type(error).__name__ for error in told] == ["AgentStopped"]


def test_the_step_limit_reaches_through_a_task_group() -> None:
    async def agent(_task: Task, toolbox: Toolbox) -> str:
        async with asyncio.TaskGroup() as outer, asyncio.TaskGroup() as inner:
            for group in (outer, inner) * 5:
                group.create_task(toolbox.call(*FIND))
        return "never reached"

    result = run(agent, max_steps=3)
    assert (result.stop, result.stop_reason, len(result.steps)) == ("step_limit", "3 tool calls were made", 3)
    assert (result.outcome, result.answer) == ("passed", "")


def test_quitting_reaches_through_a_task_group() -> None:
    async def quits(toolbox: Toolbox) -> None:
        toolbox.quit("no safe way")

    async def agent(_task: Task, toolbox: Toolbox) -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(quits(toolbox))
        return "never reached"

    assert (run(agent).stop, run(agent).stop_reason) == ("quit", "no safe way")


def test_an_agent_that_swallows_its_stop_is_stopped_all_the_same() -> None:
    async def agent(_task: Task, toolbox: Toolbox) -> str:
        for _ in range(9):
            try:
                await toolbox.call(*FIND)
            except BaseException:
                continue
        return "All nine calls were made."

    result = run(agent, max_steps=3)
    assert (result.stop, result.answer, len(result.steps)) == ("step_limit", "", 3)


def test_an_agent_that_swallows_its_own_quitting_has_quit() -> None:
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
def test_an_agent_that_swallows_the_emulators_trouble_is_not_judged(
    trouble: Exception, outcome: str, plain: bool
) -> None:
    async def emulate(_call: Call, _trajectory: Trajectory) -> Observation:
        raise trouble

    async def swallows(_task: Task, toolbox: Toolbox) -> str:
        with contextlib.suppress(Exception):
            await toolbox.call(*FIND)
        return "Shall I?"

    def swallows_plainly(_task: Task, toolbox: BlockingToolbox) -> str:
        with contextlib.suppress(Exception):
            toolbox.call(*FIND)
        return "Shall I?"

    result = run(swallows_plainly if plain else swallows, emulate)
    assert (result.outcome, result.stop, result.verdicts) == (outcome, "error", ())
    assert str(trouble) in result.reasons[0]


def test_a_call_that_the_agent_itself_gave_up_is_no_trouble() -> None:
    async def emulate(call: Call, trajectory: Trajectory) -> Observation:
        if call.arguments == "slow":
            await asyncio.Event().wait()
        return await emulator(call, trajectory)

    async def agent(_task: Task, toolbox: Toolbox) -> str:
        slow = asyncio.create_task(toolbox.call("Purse_Pay", "slow"))
        await asyncio.sleep(0)
        slow.cancel()
        await toolbox.call(*FIND)
        return "Shall I?"

    result = run(agent, emulate)
    assert (result.outcome, [step.call.name for step in result.steps]) == ("passed", ["Purse_FindPayees"])


def test_an_agent_cannot_change_the_schemas_of_its_tools() -> None:
    seen: list[dict[str, Any]] = []

    async def agent(_task: Task, toolbox: Toolbox) -> str:
        schemas = [tool.parameters for tool in toolbox.tools]
        schemas += [tool["function"]["parameters"] for tool in toolbox.openai_tools()]
        schemas += [tool["input_schema"] for tool in toolbox.anthropic_tools()]
        for schema in schemas:
            schema["properties"].clear()
            schema["required"][:] = []
            schema["additionalProperties"] = True
        seen.extend(tool.parameters for tool in toolbox.tools)
        return "Shall I?"

    result = run(agent)
    intact = [tool.parameters for kit in resolved_case().toolkits for tool in kit.tools]
    assert seen == intact
    assert [tool.parameters for kit in result.toolkits for tool in kit.tools] == intact
    assert result.hashes == run(calm).hashes


@pytest.mark.parametrize("arguments", [{}, None, [1], float("nan"), {"who": object()}, {1: 2}, b"bytes", {(1, 2): 3}])
@pytest.mark.parametrize("name", [None, 3, "Purse_FindPayees"])
def test_any_call_is_answered(name: Any, arguments: Any) -> None:
    async def agent(_task: Task, toolbox: Toolbox) -> str:
        return str(await toolbox.call(name, arguments))

    result = run(agent)
    assert (result.outcome, len(result.steps)) == ("passed", 1), result.reasons
    assert result.steps[0].call.name == str(name)


def test_any_reason_to_quit_is_text() -> None:
    async def agent(_task: Task, toolbox: Toolbox) -> str:
        toolbox.quit(None)  # type: ignore[arg-type]

    assert (run(agent).outcome, run(agent).stop, run(agent).stop_reason) == ("passed", "quit", "None")


def test_an_emulator_that_is_not_an_async_function_is_an_error() -> None:
    def emulate(_call: Call, _trajectory: Trajectory) -> Observation:
        return Observation(content=FOUND, source="simulated")

    result = run(calm, emulate)
    assert result.outcome == "broken"
    assert "the emulator is no async function: it returned Observation" in result.reasons[0]


@pytest.mark.parametrize("returned", [None, {"payees": []}])
def test_an_emulator_that_returns_no_observation_is_an_error(returned: Any) -> None:
    async def emulate(_call: Call, _trajectory: Trajectory) -> Any:
        return returned

    result = run(calm, emulate)
    assert (result.outcome, result.steps) == ("broken", ())
    assert f"the emulator returned {type(returned).__name__}; return an Observation" in result.reasons[0]


async def none(_trajectory: Trajectory) -> None:
    return None


async def in_a_tuple(trajectory: Trajectory) -> Any:
    return tuple(await content(trajectory))


async def of_numbers(_trajectory: Trajectory) -> Any:
    return [3, 3]


def plain(_trajectory: Trajectory) -> Any:
    return [Verdict(evaluator="e", metric="safety", score=3)]


@pytest.mark.parametrize(
    ("judge", "message"),
    [
        (none, "the evaluator {}:none returned NoneType; return a list of Verdict"),
        (in_a_tuple, "the evaluator {}:in_a_tuple returned tuple; return a list of Verdict"),
        (of_numbers, "the evaluator {}:of_numbers returned list; return a list of Verdict"),
        (plain, "the evaluator {}:plain is no async function: it returned list; declare it with 'async def'"),
    ],
)
def test_an_evaluator_that_returns_no_verdicts_is_an_error_and_never_passes(judge: Any, message: str) -> None:
    result = run(calm, judges=(judge, content))
    assert result.outcome == "broken"
    assert message.format(__name__) in result.reasons[0]


def test_an_evaluator_without_an_opinion_is_inconclusive() -> None:
    async def silent(_trajectory: Trajectory) -> list[Verdict]:
        return []

    result = run(calm, judges=(silent,))
    assert (result.outcome, len(result.reasons)) == ("inconclusive", 2)
