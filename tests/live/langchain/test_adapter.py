"""Agents of LangChain and LangGraph, which run with the tools of a case; existing ones through middleware.

``test_live.py`` runs this file in an environment that has LangChain.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import ToolMessage
from langchain_core.tools import InjectedToolArg, tool

from pytest_toolemu.agents.adapters import langchain as adapter
from pytest_toolemu.authoring.importers.function_tools import published_tools_of
from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.toolbox import BlockingToolbox, Task, Toolbox
from pytest_toolemu.core.toolkit import Toolkit
from pytest_toolemu.errors import MissingToolError
from tests.adapters.framework_case import (
    CASES,
    ENDLESS,
    INPUT,
    OUTPUT,
    SCRIPT,
    RealTools,
    Turn,
    lockers,
    requests,
    run,
    run_many,
)
from tests.agents.scene import LOCKERS, calls, play, resolved_case, toolbox
from tests.live.langchain.scripted_chat_model import REQUEST, Scripted

real_tools = RealTools()

# A model and tools that exist already, as a user's module defines them.
model = Scripted(turns=SCRIPT)
open_locker = tool("Lockers_Open", description="Really open a locker.")(real_tools.open_locker)
burn = tool("burn", description="Burn the house down.")(real_tools.open_locker)


@pytest.fixture(autouse=True)
def no_real_call() -> Iterator[None]:
    yield
    assert real_tools.calls == []


def existing_agent(toolbox: Any, chat_model: BaseChatModel = model) -> Any:
    return create_agent(chat_model, [open_locker], middleware=[adapter.emulated(toolbox)])


def ask(task: Task) -> dict[str, Any]:
    return {"messages": [("user", str(task))]}


def counting(toolbox: Any, **options: Any) -> Any:
    return {"callbacks": [adapter.usage(toolbox)], **options}


async def existing(task: Task, toolbox: Toolbox) -> str:
    state = await existing_agent(toolbox).ainvoke(ask(task), counting(toolbox))
    return str(state["messages"][-1].text)


def existing_sync(task: Task, toolbox: BlockingToolbox) -> str:
    return str(existing_agent(toolbox).invoke(ask(task), counting(toolbox))["messages"][-1].text)


async def streamed(task: Task, toolbox: Toolbox) -> str:
    async for state in existing_agent(toolbox).astream(ask(task), counting(toolbox), stream_mode="values"):
        answer = state["messages"][-1].text
    return str(answer)


async def new(task: Task, toolbox: Toolbox) -> str:
    graph = create_agent(Scripted(turns=SCRIPT), adapter.tools(toolbox))
    state = await graph.ainvoke(ask(task), counting(toolbox))
    return str(state["messages"][-1].text)


def new_sync(task: Task, toolbox: BlockingToolbox) -> str:
    graph = create_agent(Scripted(turns=SCRIPT), adapter.tools(toolbox))
    return str(graph.invoke(ask(task), counting(toolbox))["messages"][-1].text)


async def two_callbacks(task: Task, toolbox: Toolbox) -> str:
    callbacks = [adapter.usage(toolbox), adapter.usage(toolbox)]
    state = await existing_agent(toolbox).ainvoke(ask(task), {"callbacks": callbacks})
    return str(state["messages"][-1].text)


@pytest.mark.parametrize("agent", [existing, existing_sync, streamed, new, new_sync, two_callbacks])
def test_an_agent_calls_emulated_tools_and_its_tokens_are_counted_once(agent: Any) -> None:
    result = run(agent)
    assert (result.outcome, result.answer) == ("passed", "Opened.")
    assert sorted(lockers(result)) == ["7", "7", "8"], "the second and the third call are parallel"
    assert requests(result) == [REQUEST] * len(SCRIPT)


def test_many_cases_at_once_share_the_model_and_the_tools_of_a_module() -> None:
    results = run_many(existing)
    assert len(results) == CASES
    assert all(sorted(lockers(result)) == ["7", "7", "8"] for result in results)
    assert all(requests(result) == [REQUEST] * len(SCRIPT) for result in results)


def test_the_model_sees_the_tools_as_the_toolkit_declares_them() -> None:
    run(existing)
    (shown,) = model.shown
    assert shown.args_schema["required"] == ["locker"]
    assert shown.description.startswith("Open a locker.\nReturns {")


def replay(turns: Sequence[Turn], seen: list[Any] | None = None, **options: Any) -> Any:
    async def agent(task: Task, toolbox: Toolbox) -> str:
        state = await existing_agent(toolbox, Scripted(turns=turns)).ainvoke(ask(task), counting(toolbox, **options))
        if seen is not None:
            seen.extend(state["messages"])
        return str(state["messages"][-1].text)

    return agent


BAD_CALLS: Sequence[Turn] = ([("Lockers_Open", '{"locker": 7}')], [("Nonsense", "{}")], "It did not work.")


def test_bad_arguments_and_invented_tools_are_recorded_and_answered_as_errors() -> None:
    seen: list[Any] = []
    result = run(replay(BAD_CALLS, seen))
    assert [step.call.name for step in result.steps] == ["Lockers_Open", "Nonsense"]
    answers = [message for message in seen if isinstance(message, ToolMessage)]
    assert [message.status for message in answers] == ["error", "error"]
    assert "InvalidRequest" in json.loads(answers[0].text)["error"]
    assert result.answer == "It did not work."


def test_an_error_of_a_new_agent_has_the_status_of_an_error() -> None:
    seen: list[Any] = []

    async def agent(task: Task, toolbox: Toolbox) -> str:
        graph = create_agent(Scripted(turns=(BAD_CALLS[0], "It did not work.")), adapter.tools(toolbox))
        seen.extend((await graph.ainvoke(ask(task)))["messages"])
        return "It did not work."

    assert [step.call.arguments for step in run(agent).steps] == [{"locker": 7}]
    assert [message.status for message in seen if isinstance(message, ToolMessage)] == ["error"]


def test_a_tool_gets_arguments_with_names_that_the_framework_uses() -> None:
    names = ("config", "run_manager", "callbacks", "self", "runtime", "tool_call_id")
    parameters = {"type": "object", "properties": {name: {"type": "string"} for name in names}}
    settings = Toolkit(**{**dict(LOCKERS), "tools": (LOCKERS.tools[0].model_copy(update={"parameters": parameters}),)})
    box = toolbox(ResolvedCase(resolved_case().case, (settings,), Path("parcel.toolemu.yaml")))
    arguments = dict.fromkeys(names, "value")

    async def agent(_: Task, toolbox: Toolbox) -> str:
        (emulated,) = adapter.tools(toolbox)
        return str(await emulated.ainvoke(arguments))

    play(agent, box)
    assert calls(box) == [("Lockers_Open", arguments)]


def test_the_tools_of_an_agent_become_a_toolkit() -> None:
    @tool
    def find(query: str, user: Annotated[str, InjectedToolArg], limit: int = 3) -> str:
        """Find lockers."""
        raise AssertionError((query, user, limit))

    (published,) = published_tools_of([find], {})
    assert (published.name, published.description) == ("find", "Find lockers.")
    assert set(published.parameters["properties"]) == {"query", "limit"}


def test_the_step_limit_ends_the_turn_which_is_judged() -> None:
    result = run(replay(ENDLESS, recursion_limit=100), max_steps=2)
    assert (result.outcome, result.stop, len(result.steps)) == ("passed", "step_limit", 2)
    assert requests(result) == [REQUEST] * 3


def test_the_limit_of_the_framework_is_judged_and_its_tokens_are_counted() -> None:
    result = run(replay(ENDLESS, recursion_limit=4))
    assert (result.outcome, result.stop, len(result.steps)) == ("passed", "step_limit", 2)
    assert requests(result) == [REQUEST] * 2


def test_the_limit_on_tokens_ends_the_turn() -> None:
    result = run(replay(ENDLESS), max_tokens=2 * (INPUT + OUTPUT))
    assert (result.outcome, result.stop) == ("passed", "token_limit")
    assert requests(result) == [REQUEST] * 3


@pytest.mark.parametrize(("foreign", "name"), [(burn, "burn"), ({"type": "web_search"}, "web_search")])
def test_a_tool_that_no_toolkit_has_ends_the_session_before_the_first_request(foreign: Any, name: str) -> None:
    asked: list[Any] = []

    async def play(task: Task, toolbox: Toolbox) -> str:
        reckless = Scripted(turns=([("burn", '{"locker": "7"}')], "Done."), shown=asked)
        graph = create_agent(reckless, [open_locker, foreign], middleware=[adapter.emulated(toolbox)])
        return str((await graph.ainvoke(ask(task)))["messages"][-1].text)

    with pytest.raises(MissingToolError, match=f"has tools that no toolkit of the case 'parcel' has: {name}; declare"):
        run(play)
    assert asked == []
