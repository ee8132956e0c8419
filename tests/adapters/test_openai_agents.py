"""Agents of the OpenAI Agents SDK, which run with the tools of a case; existing ones as copies."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from agents import (
    Agent,
    AgentHooks,
    RunConfig,
    Runner,
    WebSearchTool,
    function_tool,
    handoff,
    set_tracing_disabled,
)
from agents.items import ToolCallOutputItem
from agents.testing import ScriptedModel

from pytest_toolemu.agents.adapters import openai_agents as adapter
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
from tests.adapters.openai_agents_model import scripted
from tests.agents.scene import LOCKERS

REQUEST = ("openai:gpt-4o", INPUT, OUTPUT, CACHED)
real_tools = RealTools()


def config(turns: Sequence[Turn] = SCRIPT) -> RunConfig:
    return RunConfig(model=scripted(turns), tracing_disabled=True)


real_tool = function_tool(real_tools.open_locker, name_override="Lockers_Open")
# Agents that exist already, as a user's module defines them.
doorman = Agent(name="doorman", model="gpt-4o", tools=[real_tool])


@pytest.fixture(autouse=True)
def no_real_call() -> Iterator[None]:
    set_tracing_disabled(True)
    yield
    assert real_tools.calls == []


async def existing(task: Task, toolbox: Toolbox) -> str:
    return str((await Runner.run(adapter.emulated(doorman, toolbox), task, run_config=config())).final_output)


def existing_sync(task: Task, toolbox: BlockingToolbox) -> str:
    return str(Runner.run_sync(adapter.emulated(doorman, toolbox), task, run_config=config()).final_output)


async def streamed(task: Task, toolbox: Toolbox) -> str:
    stream = Runner.run_streamed(adapter.emulated(doorman, toolbox), task, run_config=config())
    async for _ in stream.stream_events():
        pass
    return str(stream.final_output)


async def new(task: Task, toolbox: Toolbox) -> str:
    agent = Agent(name="new", model="gpt-4o", tools=adapter.tools(toolbox))
    return str((await Runner.run(agent, task, run_config=config(), hooks=adapter.usage(toolbox))).final_output)


def new_sync(task: Task, toolbox: BlockingToolbox) -> str:
    agent = Agent(name="new", model="gpt-4o", tools=adapter.tools(toolbox))
    return str(Runner.run_sync(agent, task, run_config=config(), hooks=adapter.usage(toolbox)).final_output)


async def both_ways_of_counting(task: Task, toolbox: Toolbox) -> str:
    agent = adapter.emulated(doorman, toolbox)
    return str((await Runner.run(agent, task, run_config=config(), hooks=adapter.usage(toolbox))).final_output)


@pytest.mark.parametrize("agent", [existing, existing_sync, streamed, new, new_sync, both_ways_of_counting])
def test_an_agent_calls_emulated_tools_and_its_tokens_are_counted_once(agent: Any) -> None:
    result = run(agent)
    assert (result.outcome, result.answer) == ("passed", "Opened.")
    assert lockers(result) == ["7", "7", "8"], "the second and the third call are parallel"
    assert requests(result) == [REQUEST] * len(SCRIPT)


def test_many_cases_at_once_share_one_agent_that_is_not_changed() -> None:
    results = run_many(existing)
    assert len(results) == CASES
    assert all(lockers(result) == ["7", "7", "8"] for result in results)
    assert all(requests(result) == [REQUEST] * len(SCRIPT) for result in results)
    assert doorman.tools == [real_tool]
    assert doorman.hooks is None


def test_the_model_sees_the_schema_of_the_toolkit() -> None:
    shown: list[Any] = []

    async def agent(_: Task, toolbox: Toolbox) -> str:
        shown.extend(adapter.emulated(doorman, toolbox).tools)
        return "Done."

    run(agent)
    assert shown[0].params_json_schema == LOCKERS.tools[0].parameters
    assert shown[0].description.startswith("Open a locker.\nReturns {")
    assert not shown[0].strict_json_schema


@pytest.mark.parametrize("wrap", [lambda agent: agent, handoff], ids=["agent", "handoff"])
def test_agents_that_take_over_have_emulated_tools_too(wrap: Any) -> None:
    front = Agent(name="front", model="gpt-4o", handoffs=[wrap(doorman)])
    turns = ([("transfer_to_doorman", "{}")], *SCRIPT)

    async def agent(task: Task, toolbox: Toolbox) -> str:
        return str((await Runner.run(adapter.emulated(front, toolbox), task, run_config=config(turns))).final_output)

    result = run(agent)
    assert lockers(result) == ["7", "7", "8"]
    assert requests(result) == [REQUEST] * len(turns)


def test_agents_may_hand_over_to_each_other() -> None:
    front, back = Agent(name="front", model="gpt-4o"), Agent(name="back", model="gpt-4o", tools=[real_tool])
    front.handoffs, back.handoffs = [back], [front]
    turns = ([("transfer_to_back", "{}")], SCRIPT[0], [("transfer_to_front", "{}")], "Opened.")

    async def agent(task: Task, toolbox: Toolbox) -> str:
        return str((await Runner.run(adapter.emulated(front, toolbox), task, run_config=config(turns))).final_output)

    assert lockers(run(agent)) == ["7"]


def test_the_hooks_of_an_agent_are_still_called() -> None:
    seen: list[str] = []

    class Watching(AgentHooks[Any]):
        async def on_llm_end(self, *_: Any) -> None:
            seen.append("model")

        async def on_tool_start(self, _: Any, __: Any, tool: Any) -> None:
            seen.append(tool.name)

    watched = doorman.clone(hooks=Watching())

    async def agent(task: Task, toolbox: Toolbox) -> str:
        return str((await Runner.run(adapter.emulated(watched, toolbox), task, run_config=config())).final_output)

    result = run(agent)
    assert sorted(seen) == ["Lockers_Open"] * 3 + ["model"] * 3
    assert requests(result) == [REQUEST] * len(SCRIPT)


def replay(turns: Sequence[Turn], seen: list[Any] | None = None, **options: Any) -> Any:
    async def agent(task: Task, toolbox: Toolbox) -> str:
        result = await Runner.run(adapter.emulated(doorman, toolbox), task, run_config=config(turns), **options)
        if seen is not None:
            seen.extend(result.new_items)
        return str(result.final_output)

    return agent


def test_bad_arguments_are_recorded_and_answered_with_errors() -> None:
    seen: list[Any] = []
    result = run(replay(BAD_ARGUMENTS, seen))
    assert [step.call.arguments for step in result.steps] == [{"locker": 7}, "{no JSON"]
    outputs = [item.output for item in seen if isinstance(item, ToolCallOutputItem)]
    assert ["InvalidRequest" in json.loads(output)["error"] for output in outputs] == [True, True]
    assert result.answer == "It did not work."


def test_the_step_limit_ends_the_turn_which_is_judged() -> None:
    result = run(replay(ENDLESS, max_turns=30), max_steps=2)
    assert (result.outcome, result.stop, len(result.steps)) == ("passed", "step_limit", 2)
    assert requests(result) == [REQUEST] * 3


def test_the_limit_of_the_framework_is_judged_and_its_tokens_are_counted() -> None:
    result = run(replay(ENDLESS, max_turns=2))
    assert (result.outcome, result.stop, len(result.steps)) == ("passed", "step_limit", 2)
    assert requests(result) == [REQUEST] * 2


def test_the_limit_on_tokens_ends_the_turn() -> None:
    result = run(replay(ENDLESS, max_turns=30), max_tokens=2 * (INPUT + OUTPUT))
    assert (result.outcome, result.stop) == ("passed", "token_limit")
    assert requests(result) == [REQUEST] * 3


ARSONIST = Agent(name="arsonist", model="gpt-4o", tools=[function_tool(real_tools.open_locker)])


@pytest.mark.parametrize(
    ("agent", "named"),
    [
        (ARSONIST, "arsonist has tools that no toolkit of the case 'parcel' has: open_locker"),
        (Agent(name="front", handoffs=[ARSONIST]), "arsonist has tools that .*: open_locker"),
        (Agent(name="front", handoffs=[handoff(ARSONIST)]), "arsonist has tools that .*: open_locker"),
        (Agent(name="searcher", tools=[WebSearchTool()]), "searcher has tools that .*: web_search"),
        (Agent(name="boss", tools=[doorman.as_tool("ask_doorman", "Ask.")]), "boss has tools that .*: ask_doorman"),
    ],
    ids=["function", "agent that takes over", "handoff", "hosted", "agent as a tool"],
)
def test_a_tool_that_no_toolkit_has_ends_the_session_and_is_not_executed(agent: Any, named: str) -> None:
    turns = ([("transfer_to_arsonist", "{}")], [("open_locker", '{"locker": "7"}')], "Done.")

    async def play(task: Task, toolbox: Toolbox) -> str:
        return str((await Runner.run(adapter.emulated(agent, toolbox), task, run_config=config(turns))).final_output)

    with pytest.raises(MissingToolError, match=f"the agent {named}; declare"):
        run(play)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("gpt-4o", "openai:gpt-4o"),
        ("openai/gpt-4o", "openai:gpt-4o"),
        ("litellm/anthropic/claude-sonnet-5-5", "litellm/anthropic claude-sonnet-5-5"),
        (ScriptedModel(), "ScriptedModel unknown"),
    ],
)
def test_tokens_are_counted_for_the_model_of_the_agent(model: Any, name: str) -> None:
    assert adapter._model_name(model) == name


def test_a_toolbox_does_not_outlive_its_case() -> None:
    assert is_freed_after(existing)
