"""Tools of frameworks that nobody emulates are refused before they are executed, as long as an agent acts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import agents
import pydantic_ai
import pytest
from agents import Runner, function_tool
from mcp import Client
from mcp.server import MCPServer

from pytest_toolemu.agents.custom import custom_agent
from pytest_toolemu.agents.mcp import served
from pytest_toolemu.core.run_notes import NO_CALLS
from pytest_toolemu.core.toolbox import BlockingToolbox, Task, Toolbox
from pytest_toolemu.errors import MissingToolError, UsageError
from tests.adapters import openai_agents_model
from tests.adapters.framework_case import OPEN_7, RealTools, lockers, run
from tests.adapters.test_pydantic_ai import scripted

TURNS = ([OPEN_7], "Opened.")
real_tools = RealTools()


def pydantic_agent(**options: Any) -> Any:
    return pydantic_ai.Agent(scripted(TURNS), name="doorman", **options)


def new_openai_agent() -> Any:
    opened = function_tool(real_tools.open_locker, name_override="Lockers_Open")
    return agents.Agent(name="doorman", model=openai_agents_model.scripted(TURNS), tools=[opened])


forgetful_pydantic = pydantic_agent()
forgetful_pydantic.tool_plain(name="Lockers_Open")(real_tools.open_locker)
server = MCPServer("lockers")
server.tool(name="Lockers_Open")(real_tools.open_locker)


@pytest.fixture(autouse=True)
def calls() -> Iterator[list[Any]]:
    real_tools.calls.clear()
    yield real_tools.calls
    real_tools.calls.clear()


async def by_pydantic_ai(task: Task, _: Toolbox) -> str:
    return (await forgetful_pydantic.run(task)).output


async def by_openai_agents(task: Task, _: Toolbox) -> str:
    return str((await Runner.run(new_openai_agent(), task)).final_output)


async def by_mcp(_: Task, __: Toolbox) -> str:
    async with Client(server) as client:
        return str(await client.call_tool("Lockers_Open", {"locker": "7"}))


def by_a_thread_without_context(task: Task, toolbox: BlockingToolbox) -> str:
    with ThreadPoolExecutor() as pool:
        return pool.submit(lambda: asyncio.run(by_pydantic_ai(task, toolbox.awaitable))).result()


@pytest.mark.parametrize(
    ("agent", "message"),
    [
        (by_pydantic_ai, "the tool 'Lockers_Open' of Pydantic AI is not emulated.*adapters.pydantic_ai"),
        (by_openai_agents, "the tool 'Lockers_Open' of the OpenAI Agents SDK is not emulated.*adapters.openai_agents"),
        (by_mcp, "the tool 'Lockers_Open' of the MCP server 'lockers' is not emulated.*keep"),
        (by_a_thread_without_context, "the tool 'Lockers_Open' of Pydantic AI is not emulated"),
    ],
)
def test_a_forgotten_real_tool_ends_the_session_before_it_is_executed(
    agent: Any, message: str, calls: list[Any]
) -> None:
    with pytest.raises(MissingToolError, match=message):
        run(agent)
    assert calls == []


@pytest.mark.parametrize("agent", [by_pydantic_ai, by_openai_agents, by_mcp])
def test_a_tool_that_the_agent_keeps_is_executed(agent: Callable[..., Any], calls: list[Any]) -> None:
    async def keeping(task: Task, toolbox: Toolbox) -> str:
        toolbox.keep("Lockers_Open")
        return str(await agent(task, toolbox))

    run(keeping)
    assert len(calls) == 1


def test_functions_of_the_toolbox_are_emulated_tools() -> None:
    async def act(task: Task, toolbox: Toolbox) -> str:
        (opened,) = toolbox.functions().values()
        return (await pydantic_agent(tools=[opened]).run(task)).output

    assert lockers(run(act)) == ["7"]


def test_emulated_tools_over_mcp_are_allowed() -> None:
    async def act(_: Task, toolbox: Toolbox) -> str:
        async with served(toolbox) as url, Client(url) as client:
            return str(await client.call_tool("Lockers.Open", {"locker": "7"}))

    assert lockers(run(act)) == ["7"]


def test_after_its_case_real_tools_work_again(calls: list[Any]) -> None:
    async def act(_: Task, __: Toolbox) -> str:
        return "Which locker?"

    assert run(act).agent_warning == f"the agent {NO_CALLS}"
    assert asyncio.run(forgetful_pydantic.run("Open 7.")).output == "Opened."
    assert len(calls) == 1


@pytest.mark.parametrize("agent", [lambda: forgetful_pydantic, new_openai_agent], ids=["pydantic-ai", "openai-agents"])
def test_an_agent_of_a_framework_is_run_with_emulated_tools(agent: Any, calls: list[Any]) -> None:
    record = run(agent())
    assert (lockers(record), record.answer, calls) == (["7"], "Opened.", [])


def test_another_object_of_a_framework_is_refused_with_its_adapter() -> None:
    with pytest.raises(
        UsageError, match=r"the agent 'x' is .*FunctionTool.*; write a function .* with .*adapters.openai_agents"
    ):
        custom_agent(function_tool(real_tools.open_locker), "x")
