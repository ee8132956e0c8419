"""Agents of Pydantic AI, which run unchanged with the tools of a case."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from pydantic_ai import Agent, UsageLimits
from pydantic_ai.capabilities import NativeTool
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.native_tools import WebSearchTool
from pydantic_ai.usage import RequestUsage

from pytest_toolemu.agents.adapters import pydantic_ai as adapter
from pytest_toolemu.core.toolbox import BlockingToolbox, Task, Toolbox
from pytest_toolemu.errors import MissingToolError
from tests.adapters.framework_case import (
    BAD_ARGUMENTS,
    CACHED,
    CASES,
    ENDLESS,
    INPUT,
    OUTPUT,
    SCRIPT,
    RealTools,
    Turn,
    is_freed_after,
    lockers,
    requests,
    run,
    run_many,
)
from tests.agents.scene import LOCKERS

REQUEST = (":function scripted", INPUT, OUTPUT, CACHED)
real_tools = RealTools()


def scripted(turns: Sequence[Turn]) -> FunctionModel:
    """Return a model that replies with a turn for each request of a run."""

    def reply(messages: list[Any], _: Any) -> ModelResponse:
        turn = turns[sum(isinstance(message, ModelResponse) for message in messages)]
        parts = [TextPart(turn)] if isinstance(turn, str) else [ToolCallPart(*call) for call in turn]
        usage = RequestUsage(input_tokens=INPUT, output_tokens=OUTPUT, cache_read_tokens=CACHED)
        return ModelResponse(parts, usage=usage)

    return FunctionModel(reply, model_name="scripted")


# An agent that exists already, as a user's module defines it.
doorman = Agent(scripted(SCRIPT), name="doorman")
doorman.tool_plain(name="Lockers_Open")(real_tools.open_locker)


@pytest.fixture(autouse=True)
def no_real_call() -> Iterator[None]:
    yield
    assert real_tools.calls == []


async def existing(task: Task, toolbox: Toolbox) -> str:
    with adapter.emulated(doorman, toolbox):
        return (await doorman.run(task)).output


def existing_sync(task: Task, toolbox: BlockingToolbox) -> str:
    with adapter.emulated(doorman, toolbox):
        return doorman.run_sync(task).output


async def step_by_step(task: Task, toolbox: Toolbox) -> str:
    with adapter.emulated(doorman, toolbox):
        async with doorman.iter(task) as steps:
            async for _ in steps:
                pass
        return str(steps.result.output)


async def new(task: Task, toolbox: Toolbox) -> str:
    agent = Agent(scripted(SCRIPT), toolsets=[adapter.tools(toolbox)], capabilities=[adapter.usage(toolbox)])
    return (await agent.run(task)).output


def new_sync(task: Task, toolbox: BlockingToolbox) -> str:
    agent = Agent(scripted(SCRIPT), toolsets=[adapter.tools(toolbox)], capabilities=[adapter.usage(toolbox)])
    return agent.run_sync(task).output


@pytest.mark.parametrize("agent", [existing, existing_sync, step_by_step, new, new_sync])
def test_an_agent_calls_emulated_tools_and_its_tokens_are_counted_once(agent: Any) -> None:
    result = run(agent)
    assert (result.outcome, result.answer) == ("passed", "Opened.")
    assert lockers(result) == ["7", "7", "8"], "the second and the third call are parallel"
    assert requests(result) == [REQUEST] * len(SCRIPT)


def test_both_ways_of_counting_together_count_once() -> None:
    async def agent(task: Task, toolbox: Toolbox) -> str:
        with adapter.emulated(doorman, toolbox):
            return (await doorman.run(task, capabilities=[adapter.usage(toolbox)])).output

    assert requests(run(agent)) == [REQUEST] * len(SCRIPT)


def test_many_cases_at_once_share_one_agent_that_is_not_changed() -> None:
    results = run_many(existing)
    assert len(results) == CASES
    assert all(lockers(result) == ["7", "7", "8"] for result in results)
    assert all(requests(result) == [REQUEST] * len(SCRIPT) for result in results)
    assert list(doorman.toolsets[0].tools) == ["Lockers_Open"]


def test_the_model_sees_the_schema_of_the_toolkit() -> None:
    model = TestModel(call_tools=[])

    async def agent(task: Task, toolbox: Toolbox) -> str:
        with adapter.emulated(doorman, toolbox), doorman.override(model=model):
            return (await doorman.run(task)).output

    run(agent)
    assert model.last_model_request_parameters is not None
    (shown,) = model.last_model_request_parameters.function_tools
    assert shown.parameters_json_schema == LOCKERS.tools[0].parameters
    assert shown.description.startswith("Open a locker.\nReturns {")


def replay(turns: Sequence[Turn], seen: list[Any] | None = None, **options: Any) -> Any:
    async def agent(task: Task, toolbox: Toolbox) -> str:
        with adapter.emulated(doorman, toolbox), doorman.override(model=scripted(turns)):
            result = await doorman.run(task, **options)
        if seen is not None:
            seen.extend(part for message in result.all_messages() for part in message.parts)
        return result.output

    return agent


def test_bad_arguments_are_recorded_and_answered_as_failures() -> None:
    seen: list[Any] = []
    result = run(replay(BAD_ARGUMENTS, seen))
    assert [step.call.arguments for step in result.steps] == [{"locker": 7}, "{no JSON"]
    answers = [part for part in seen if isinstance(part, ToolReturnPart)]
    assert [part.outcome for part in answers] == ["failed", "failed"]
    assert all("InvalidRequest" in json.loads(part.content)["error"] for part in answers)
    assert result.answer == "It did not work."


def test_the_step_limit_ends_the_turn_which_is_judged() -> None:
    result = run(replay(ENDLESS), max_steps=2)
    assert (result.outcome, result.stop, len(result.steps)) == ("passed", "step_limit", 2)
    assert requests(result) == [REQUEST] * 3


def test_the_limit_of_the_framework_is_judged_and_its_tokens_are_counted() -> None:
    result = run(replay(ENDLESS, usage_limits=UsageLimits(request_limit=2)))
    assert (result.outcome, result.stop, len(result.steps)) == ("passed", "step_limit", 2)
    assert requests(result) == [REQUEST] * 2


def test_the_limit_on_tokens_ends_the_turn() -> None:
    result = run(replay(ENDLESS), max_tokens=2 * (INPUT + OUTPUT))
    assert (result.outcome, result.stop) == ("passed", "token_limit")
    assert requests(result) == [REQUEST] * 3


def test_a_tool_that_no_toolkit_has_ends_the_session_before_the_agent_acts() -> None:
    agent = Agent(scripted(([("burn", "{}")], "Done.")), name="arsonist", tools=[real_tools.open_locker])

    async def play(task: Task, toolbox: Toolbox) -> str:
        with adapter.emulated(agent, toolbox):
            return (await agent.run(task)).output

    with pytest.raises(
        MissingToolError,
        match="the agent arsonist has tools that no toolkit of the case 'parcel' has: open_locker; declare",
    ):
        run(play)


def test_a_tool_that_the_provider_executes_ends_the_session() -> None:
    agent = Agent(scripted(SCRIPT), capabilities=[NativeTool(WebSearchTool())])

    async def play(task: Task, toolbox: Toolbox) -> str:
        with adapter.emulated(agent, toolbox):
            return (await agent.run(task)).output

    with pytest.raises(MissingToolError, match="has: web_search; declare"):
        run(play)


def test_a_toolbox_does_not_outlive_its_case() -> None:
    assert is_freed_after(existing)
