"""Agents of Google ADK, which run with the tools of a case; existing ones through a plugin.

``test_live.py`` runs this file in an environment that has ADK.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import pytest
from google.adk.agents import LlmAgent, RunConfig, SequentialAgent
from google.adk.agents.remote_a2a_agent import RemoteA2aAgent
from google.adk.agents.run_config import StreamingMode
from google.adk.apps import App
from google.adk.code_executors import UnsafeLocalCodeExecutor
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import InMemoryRunner
from google.adk.tools import AgentTool, FunctionTool, google_search
from google.adk.workflow import START, Workflow
from google.genai import types

from pytest_toolemu.agents.adapters import adk as adapter
from pytest_toolemu.core.toolbox import BlockingToolbox, Task, Toolbox
from pytest_toolemu.errors import MissingToolError
from tests.adapters.framework_case import (
    CACHED,
    CASES,
    ENDLESS,
    INPUT,
    OPEN_7,
    OUTPUT,
    SCRIPT,
    RealTools,
    Turn,
    lockers,
    requests,
    run,
    run_many,
)
from tests.agents.scene import LOCKERS

THOUGHTS = 4
REQUEST = ("openai:gpt-4o", INPUT, OUTPUT, CACHED)
real_tools = RealTools()


class Scripted(BaseLlm):
    """Replies with a turn for each request of a conversation, and keeps the tools that it was shown."""

    model: str = "openai/gpt-4o"
    turns: Sequence[Any] = SCRIPT
    shown: list[Any] = []

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncIterator[LlmResponse]:
        self.shown[:] = llm_request.config.tools or ()
        turn = self.turns[sum(each.role == "model" for each in llm_request.contents)]
        parts = (
            [types.Part(text=turn)]
            if isinstance(turn, str)
            else [types.Part.from_function_call(name=name, args=json.loads(text)) for name, text in turn]
        )
        tokens = types.GenerateContentResponseUsageMetadata(
            prompt_token_count=INPUT,
            candidates_token_count=OUTPUT - THOUGHTS,
            thoughts_token_count=THOUGHTS,
            cached_content_token_count=CACHED,
        )
        if stream and isinstance(turn, str):
            text = types.Content(role="model", parts=[types.Part(text=turn)])
            yield LlmResponse(content=text, usage_metadata=tokens, partial=True)
        yield LlmResponse(content=types.Content(role="model", parts=parts), usage_metadata=tokens)


def Lockers_Open(locker: str, note: str = "") -> str:  # noqa: N802  # ADK names a tool after its function
    """Really open a locker."""
    return real_tools.open_locker(locker, note)


def burn(locker: str) -> str:
    """Burn the house down."""
    return real_tools.open_locker(locker)


# An agent that exists already, as a user's module defines it.
model = Scripted()
doorman = LlmAgent(name="doorman", model=model, tools=[Lockers_Open])


@pytest.fixture(autouse=True)
def no_real_call() -> Iterator[None]:
    yield
    assert real_tools.calls == []


def runner(agent: Any, *plugins: Any) -> InMemoryRunner:
    return InMemoryRunner(app=App(name="test", root_agent=agent, plugins=list(plugins)))


def said(events: Sequence[Any]) -> str:
    """Return the last text of an agent."""
    texts = [part.text for event in events if event.content for part in event.content.parts or () if part.text]
    return str(texts[-1])


async def play(agent: Any, task: Task, *plugins: Any, **config: Any) -> Sequence[Any]:
    return await runner(agent, *plugins).run_debug(str(task), quiet=True, run_config=RunConfig(**config))


def play_sync(agent: Any, task: Task, *plugins: Any) -> Sequence[Any]:
    in_memory = runner(agent, *plugins)
    in_memory.session_service.create_session_sync(app_name="test", user_id="u", session_id="s")
    message = types.Content(role="user", parts=[types.Part(text=str(task))])
    return list(in_memory.run(user_id="u", session_id="s", new_message=message))


async def existing(task: Task, toolbox: Toolbox) -> str:
    return said(await play(doorman, task, adapter.emulated(toolbox)))


def existing_sync(task: Task, toolbox: BlockingToolbox) -> str:
    return said(play_sync(doorman, task, adapter.emulated(toolbox)))


async def streamed(task: Task, toolbox: Toolbox) -> str:
    return said(await play(doorman, task, adapter.emulated(toolbox), streaming_mode=StreamingMode.SSE))


async def new(task: Task, toolbox: Toolbox) -> str:
    agent = LlmAgent(name="new", model=Scripted(), tools=adapter.tools(toolbox))
    return said(await play(agent, task, adapter.usage(toolbox)))


def new_sync(task: Task, toolbox: BlockingToolbox) -> str:
    agent = LlmAgent(name="new", model=Scripted(), tools=adapter.tools(toolbox))
    return said(play_sync(agent, task, adapter.usage(toolbox)))


async def both_ways_of_counting(task: Task, toolbox: Toolbox) -> str:
    return said(await play(doorman, task, adapter.emulated(toolbox), adapter.usage(toolbox)))


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
    assert doorman.tools == [Lockers_Open]
    assert doorman.before_tool_callback is None


def test_the_model_sees_the_tools_as_the_toolkit_declares_them() -> None:
    run(existing)
    (shown,) = model.shown[0].function_declarations
    assert shown.parameters_json_schema == LOCKERS.tools[0].parameters
    assert shown.description.startswith("Open a locker.\nReturns {")


def replay(turns: Sequence[Turn], seen: list[Any] | None = None, **options: Any) -> Any:
    agent = LlmAgent(name="doorman", model=Scripted(turns=turns), tools=[Lockers_Open])

    async def act(task: Task, toolbox: Toolbox) -> str:
        events = await play(agent, task, adapter.emulated(toolbox), **options)
        if seen is not None:
            seen.extend(response for event in events for response in event.get_function_responses())
        return said(events)

    return act


BAD_CALLS: Sequence[Turn] = ([("Lockers_Open", '{"locker": 7}')], [("Nonsense", "{}")], "It did not work.")


def test_bad_arguments_and_invented_tools_are_recorded_and_answered_with_errors() -> None:
    seen: list[Any] = []
    result = run(replay(BAD_CALLS, seen))
    assert [step.call.name for step in result.steps] == ["Lockers_Open", "Nonsense"]
    assert [list(response.response) for response in seen] == [["error"], ["error"]]
    assert "InvalidRequest" in seen[0].response["error"]
    assert result.answer == "It did not work."


def test_bad_arguments_of_a_new_agent_are_recorded_and_answered_with_errors() -> None:
    async def agent(task: Task, toolbox: Toolbox) -> str:
        turns = (BAD_CALLS[0], "It did not work.")
        return said(await play(LlmAgent(name="new", model=Scripted(turns=turns), tools=adapter.tools(toolbox)), task))

    assert [step.call.arguments for step in run(agent).steps] == [{"locker": 7}]


def test_the_step_limit_ends_the_turn_which_is_judged() -> None:
    result = run(replay(ENDLESS), max_steps=2)
    assert (result.outcome, result.stop, len(result.steps)) == ("passed", "step_limit", 2)
    assert requests(result) == [REQUEST] * 3


def test_the_step_limit_ends_the_turn_of_a_plain_function() -> None:
    agent = LlmAgent(name="doorman", model=Scripted(turns=ENDLESS), tools=[Lockers_Open])

    def act(task: Task, toolbox: BlockingToolbox) -> str:
        return said(play_sync(agent, task, adapter.emulated(toolbox)))

    result = run(act, max_steps=2)
    assert (result.outcome, result.stop, len(result.steps)) == ("passed", "step_limit", 2)


def test_the_limit_of_the_framework_is_judged_and_its_tokens_are_counted() -> None:
    result = run(replay(ENDLESS, max_llm_calls=2))
    assert (result.outcome, result.stop, len(result.steps)) == ("passed", "step_limit", 2)
    assert requests(result) == [REQUEST] * 2


def test_the_limit_on_tokens_ends_the_turn() -> None:
    result = run(replay(ENDLESS), max_tokens=2 * (INPUT + OUTPUT))
    assert (result.outcome, result.stop) == ("passed", "token_limit")
    assert requests(result) == [REQUEST] * 3


def agent_of(agent: Any) -> Any:
    async def act(task: Task, toolbox: Toolbox) -> str:
        return said(await play(agent, task, adapter.emulated(toolbox)))

    return act


def test_agents_that_take_over_have_emulated_tools_too() -> None:
    back = LlmAgent(name="back", model=Scripted(turns=([OPEN_7], "Opened.")), tools=[Lockers_Open])
    transfer = [("transfer_to_agent", '{"agent_name": "back"}')]
    front = LlmAgent(name="front", model=Scripted(turns=(transfer,)), sub_agents=[back])
    result = run(agent_of(front))
    assert lockers(result) == ["7"]
    assert requests(result) == [REQUEST] * 3


def test_the_callbacks_of_an_agent_are_still_called_and_may_refuse_a_call() -> None:
    def guard(tool: Any, args: dict[str, Any], tool_context: Any) -> dict[str, Any] | None:
        del tool_context
        return {"error": f"{tool.name} may not open locker 8"} if args["locker"] == "8" else None

    guarded = LlmAgent(name="guarded", model=Scripted(), tools=[Lockers_Open], before_tool_callback=guard)
    assert lockers(run(agent_of(guarded))) == ["7", "7"]


def test_a_tool_that_needs_a_confirmation_still_needs_it() -> None:
    careful = FunctionTool(Lockers_Open, require_confirmation=True)
    seen: list[Any] = []

    async def act(task: Task, toolbox: Toolbox) -> str:
        agent = LlmAgent(name="careful", model=Scripted(), tools=[careful])
        seen.extend(await play(agent, task, adapter.emulated(toolbox)))
        return "I asked for a confirmation."

    assert run(act).steps == ()
    assert "adk_request_confirmation" in [call.name for event in seen for call in event.get_function_calls()]


def workflow_of(real_tool: Any) -> Any:
    """Return a workflow whose second node calls a tool without a model."""

    def choose_locker() -> dict[str, str]:
        return {"locker": "7"}

    return Workflow(name="workflow", edges=[(START, choose_locker, FunctionTool(real_tool))])


def test_a_tool_that_is_a_node_of_a_workflow_is_emulated() -> None:
    async def act(task: Task, toolbox: Toolbox) -> str:
        await play(workflow_of(Lockers_Open), task, adapter.emulated(toolbox))
        return "Opened."

    assert lockers(run(act)) == ["7"]


def scripted_agent(name: str, **options: Any) -> LlmAgent:
    """Return an agent whose model must not be asked."""
    return LlmAgent(name=name, model=Scripted(turns=()), **options)


MISSING = "has tools that no toolkit of the case 'parcel' has"


@pytest.mark.parametrize(
    ("agent", "message"),
    [
        (scripted_agent("arsonist", tools=[Lockers_Open, burn]), f"the agent arsonist {MISSING}: burn; declare"),
        (
            LlmAgent(name="searcher", model=Scripted(model="gemini-3.5-flash", turns=()), tools=[google_search]),
            f"the agent searcher {MISSING}: google_search; declare",
        ),
        (
            scripted_agent("boss", tools=[AgentTool(scripted_agent("helper"))]),
            f"the agent boss {MISSING}: helper; declare",
        ),
        (
            SequentialAgent(name="row", sub_agents=[scripted_agent("arsonist", tools=[burn])]),
            f"the agent arsonist {MISSING}: burn; declare",
        ),
        (
            scripted_agent("coder", code_executor=UnsafeLocalCodeExecutor()),
            "the agent coder executes code with UnsafeLocalCodeExecutor, which cannot be emulated; remove its "
            "code_executor for the test, or replace it with a tool from a toolkit of the case",
        ),
        (workflow_of(burn), f"{MISSING}: burn; declare"),
        (
            RemoteA2aAgent(name="far", agent_card="http://127.0.0.1:9/card.json"),
            "the agent far runs outside this process, as RemoteA2aAgent, which cannot be emulated; remove the agent",
        ),
    ],
    ids=["function", "built-in", "agent as a tool", "in a sequence", "code", "node", "remote"],
)
def test_what_no_toolkit_has_ends_the_session_and_is_not_executed(agent: Any, message: str) -> None:
    with pytest.raises(MissingToolError, match=message):
        run(agent_of(agent))


@pytest.mark.parametrize(
    ("agent", "name"),
    [
        (LlmAgent(name="a", model="gemini-3.5-flash"), "google gemini-3.5-flash"),
        (LlmAgent(name="a", model=Scripted(model="openai/gpt-4o")), "openai:gpt-4o"),
        (LlmAgent(name="a", model=Scripted(model="vertex_ai/claude-x")), "vertex_ai claude-x"),
        (LlmAgent(name="a", model=Scripted(model="local")), "Scripted local"),
    ],
)
def test_tokens_are_counted_for_the_model_of_the_agent(agent: Any, name: str) -> None:
    assert adapter._model_name(agent) == name


def test_a_forgotten_real_tool_ends_the_session_before_it_is_executed() -> None:
    async def forgetful(task: Task, _: Toolbox) -> str:
        return said(await play(doorman, task))

    with pytest.raises(MissingToolError, match="the tool 'Lockers_Open' of ADK is not emulated"):
        run(forgetful)


def test_an_agent_of_adk_is_run_with_emulated_tools() -> None:
    record = run(doorman)
    assert (lockers(record), record.answer) == (["7", "7", "8"], "Opened.")
