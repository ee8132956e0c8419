"""Compiled graphs of LangGraph that exist already, with real tools in all places where a graph can have tools.

``test_live.py`` runs this file in an environment that has LangGraph.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool, ToolException, tool
from langgraph.func import entrypoint
from langgraph.graph import END, MessagesState, StateGraph
from langgraph.prebuilt import InjectedState, ToolNode, tools_condition
from langgraph.pregel.remote import RemoteGraph
from langgraph.types import Command

from pytest_toolemu.agents.adapters import langchain, langgraph
from pytest_toolemu.core.toolbox import BlockingToolbox, Task, Toolbox
from pytest_toolemu.errors import MissingToolError, UsageError
from tests.adapters.framework_case import (
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
from tests.live.langchain.scripted_chat_model import REQUEST, Scripted

real_tools = RealTools()
open_locker = tool("Lockers_Open", description="Really open a locker.")(real_tools.open_locker)
burn = tool("burn", description="Burn the house down.")(real_tools.open_locker)


@tool("Lockers_Open")
async def open_locker_async(locker: str, state: Annotated[dict[str, Any], InjectedState], note: str = "") -> str:
    """Really open a locker, knowing the messages so far."""
    return real_tools.open_locker(locker, f"{note} {state['messages']}")


@pytest.fixture(autouse=True)
def no_real_call() -> Iterator[None]:
    real_tools.calls.clear()
    yield
    assert real_tools.calls == []


def loop_with_tools(*tools: Any, turns: Sequence[Turn] = SCRIPT, **options: Any) -> Any:
    """Return a compiled graph of a model and a tool node."""
    model = Scripted(turns=turns).bind_tools(tools)
    builder = StateGraph(MessagesState)
    builder.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_node("tools", ToolNode(tools, **options))
    builder.set_entry_point("model")
    builder.add_conditional_edges("model", tools_condition)
    builder.add_edge("tools", "model")
    return builder.compile()


def around(step: Any) -> Any:
    """Return a compiled graph with a single node."""
    builder = StateGraph(MessagesState)
    builder.add_node("step", step)
    builder.set_entry_point("step")
    builder.add_edge("step", END)
    return builder.compile()


def calls_tools_itself(state: MessagesState) -> dict[str, Any]:
    """Ask the model three times, and call the tools that it names without a tool node."""
    model, messages = Scripted(turns=SCRIPT), list(state["messages"])
    for _ in SCRIPT:
        reply = model.invoke(messages)
        messages += [reply, *(open_locker.invoke(call) for call in reply.tool_calls)]
    return {"messages": messages}


async def calls_tools_itself_async(state: MessagesState) -> dict[str, Any]:
    model, messages = Scripted(turns=SCRIPT), list(state["messages"])
    for _ in SCRIPT:
        reply = await model.ainvoke(messages)
        for call in reply.tool_calls:
            assert set(await open_locker.ainvoke(call["args"])) == {"opened"}
        messages.append(reply)
    return {"messages": messages}


@entrypoint()
def workflow(state: dict[str, Any]) -> dict[str, Any]:
    return calls_tools_itself(MessagesState(messages=[*state["messages"]]))


# Graphs that exist already, as a user's module defines them.
GRAPHS = {
    "create_agent": create_agent(Scripted(turns=SCRIPT), [open_locker]),
    "tool node": loop_with_tools(open_locker),
    "tool node that keeps errors": loop_with_tools(open_locker, handle_tool_errors=True),
    "asynchronous tool": loop_with_tools(open_locker_async),
    "subgraph": around(loop_with_tools(open_locker)),
    "subgraph called by a node": around(lambda state: loop_with_tools(open_locker).invoke(state)),
    "node that calls tools": around(calls_tools_itself),
    "functional": workflow,
}


def ask(task: Task) -> dict[str, Any]:
    return {"messages": [("user", str(task))]}


def answer(state: dict[str, Any]) -> str:
    return str(state["messages"][-1].text)


def existing(graph: Any, **config: Any) -> Any:
    async def agent(task: Task, toolbox: Toolbox) -> str:
        with langgraph.emulated(graph, toolbox):
            return answer(await graph.ainvoke(ask(task), config))

    return agent


def existing_sync(graph: Any) -> Any:
    def agent(task: Task, toolbox: BlockingToolbox) -> str:
        with langgraph.emulated(graph, toolbox):
            return answer(graph.invoke(ask(task)))

    return agent


def streamed(graph: Any) -> Any:
    async def agent(task: Task, toolbox: Toolbox) -> str:
        with langgraph.emulated(graph, toolbox):
            async for state in graph.astream(ask(task), stream_mode="values"):
                final = state
        return answer(final)

    return agent


def counted_twice(graph: Any) -> Any:
    async def agent(task: Task, toolbox: Toolbox) -> str:
        with langgraph.emulated(graph, toolbox):
            return answer(await graph.ainvoke(ask(task), {"callbacks": [langchain.usage(toolbox)]}))

    return agent


def assert_complete(result: Any) -> None:
    assert (result.outcome, result.answer) == ("passed", "Opened.")
    assert sorted(lockers(result)) == ["7", "7", "8"], "the second and the third call are parallel"
    assert requests(result) == [REQUEST] * len(SCRIPT)


@pytest.mark.parametrize("way", [existing, existing_sync, streamed, counted_twice])
@pytest.mark.parametrize("graph", GRAPHS)
def test_a_compiled_graph_calls_emulated_tools_and_its_tokens_are_counted_once(graph: str, way: Any) -> None:
    assert_complete(run(way(GRAPHS[graph])))


def test_a_node_that_awaits_a_tool_gets_the_value_that_the_toolkit_declares() -> None:
    assert_complete(run(existing(around(calls_tools_itself_async))))


@pytest.mark.parametrize("way", [existing, existing_sync])
@pytest.mark.parametrize("graph", ["create_agent", "subgraph", "node that calls tools"])
def test_many_cases_at_once_share_one_graph_that_is_not_changed(graph: str, way: Any) -> None:
    results = run_many(way(GRAPHS[graph]))
    assert len(results) == CASES
    for result in results:
        assert_complete(result)


def test_outside_of_a_case_the_tools_of_a_graph_are_executed_as_ever() -> None:
    run(existing(GRAPHS["tool node"]))
    assert open_locker.invoke({"locker": "9"}) == "REAL"
    assert real_tools.calls == ["9 "]
    real_tools.calls.clear()


def test_steps_have_no_arguments_that_the_framework_injects() -> None:
    result = run(existing(GRAPHS["asynchronous tool"]))
    assert [set(step.call.arguments) for step in result.steps] == [{"locker"}] * 3


BAD_CALL: Sequence[Turn] = ([("Lockers_Open", '{"locker": 7}')], "It did not work.")


def test_bad_arguments_are_recorded_and_answered_as_errors() -> None:
    graph, seen = loop_with_tools(open_locker, turns=BAD_CALL), []

    async def agent(task: Task, toolbox: Toolbox) -> str:
        with langgraph.emulated(graph, toolbox):
            seen.extend((await graph.ainvoke(ask(task)))["messages"])
        return answer({"messages": seen})

    result = run(agent)
    assert [step.call.arguments for step in result.steps] == [{"locker": 7}]
    (message,) = [message for message in seen if isinstance(message, ToolMessage)]
    assert message.status == "error"
    assert "InvalidRequest" in message.text
    assert result.answer == "It did not work."


def test_code_that_calls_a_tool_gets_an_error_as_the_exception_of_a_tool() -> None:
    def step(_: MessagesState) -> dict[str, Any]:
        with pytest.raises(ToolException, match="InvalidRequest"):
            open_locker.invoke({"locker": 7})
        open_locker.run("7")
        return {"messages": [AIMessage("Opened.")]}

    result = run(existing(around(step)))
    assert result.error is None
    assert [step.call.arguments for step in result.steps] == [{"locker": 7}, {"locker": "7"}]


def test_the_step_limit_ends_the_turn_which_is_judged() -> None:
    result = run(existing(loop_with_tools(open_locker, turns=ENDLESS), recursion_limit=100), max_steps=2)
    assert (result.outcome, result.stop, len(result.steps)) == ("passed", "step_limit", 2)
    assert requests(result) == [REQUEST] * 3


def test_the_limit_of_the_framework_is_judged_and_its_tokens_are_counted() -> None:
    result = run(existing(loop_with_tools(open_locker, turns=ENDLESS), recursion_limit=4))
    assert (result.outcome, result.stop, len(result.steps)) == ("passed", "step_limit", 2)
    assert requests(result) == [REQUEST] * 2


def test_the_limit_on_tokens_ends_the_turn() -> None:
    result = run(existing(loop_with_tools(open_locker, turns=ENDLESS)), max_tokens=2 * (INPUT + OUTPUT))
    assert (result.outcome, result.stop) == ("passed", "token_limit")
    assert requests(result) == [REQUEST] * 3


def ends_session(graph: Any, message: str) -> None:
    with pytest.raises(MissingToolError, match=message):
        run(existing(graph))


@pytest.mark.parametrize("wrap", [lambda graph: graph, around], ids=["graph", "subgraph"])
def test_a_tool_that_no_toolkit_has_ends_the_session_before_the_first_request(wrap: Any) -> None:
    graph = loop_with_tools(open_locker, burn, turns=())  # the first request would fail
    ends_session(wrap(graph), "has tools that no toolkit of the case 'parcel' has: burn; declare")


class OwnInvoke(BaseTool):
    """A tool that can be called around the place where calls are intercepted."""

    name: str = "Lockers_Open"
    description: str = "Really open a locker."

    def invoke(self, *_: Any, **__: Any) -> str:
        return real_tools.open_locker("7")

    def _run(self) -> str:
        raise AssertionError("it is called through invoke")


def in_a_bare_thread(_: MessagesState) -> dict[str, Any]:
    errors: list[BaseException] = []

    def call() -> None:
        try:
            open_locker.invoke({"locker": "7"})
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    raise errors[0]


STRAY = "the tool 'Lockers_Open' was called in a thread or task that does not have the context .* Nothing was executed"
SEARCH = create_agent(Scripted(turns=(), binds=True), [open_locker, {"type": "web_search"}])


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (around(lambda _: burn.invoke({"locker": "7"})), "no toolkit of the case 'parcel' has: burn; declare"),
        (SEARCH, "no toolkit of the case 'parcel' has: web_search; declare"),
        (around(ToolNode([OwnInvoke()])), r"the tool 'Lockers_Open' overrides OwnInvoke\.invoke, .* keep=\[\.\.\.\]"),
        (around(RemoteGraph("helper", url="http://127.0.0.1:9")), "the graph helper runs on another server"),
        (around(in_a_bare_thread), STRAY),
    ],
    ids=["in a node", "of the provider", "own method", "remote graph", "bare thread"],
)
def test_what_cannot_be_emulated_ends_the_session_and_is_not_executed(graph: Any, message: str) -> None:
    ends_session(graph, message)


@tool
def go_on() -> Command[Any]:
    """Hand over to the node that opens lockers."""
    return Command(goto="open", graph=Command.PARENT)


def test_a_tool_that_only_steers_the_graph_can_be_kept() -> None:
    front = loop_with_tools(go_on, turns=([("go_on", "{}")],))
    builder = StateGraph(MessagesState)
    builder.add_node("front", front)
    builder.add_node("open", lambda _: {"messages": [AIMessage(str(open_locker.invoke({"locker": "7"})))]})
    builder.set_entry_point("front")
    graph = builder.compile()

    async def agent(task: Task, toolbox: Toolbox) -> str:
        with langgraph.emulated(graph, toolbox, keep=["go_on"]):
            return answer(await graph.ainvoke(ask(task)))

    result = run(agent)
    assert "'opened': " in result.answer
    assert lockers(result) == ["7"]


@tool
def ask_doorman(question: str) -> str:
    """Ask another agent, which has tools of its own."""
    return answer(GRAPHS["tool node"].invoke({"messages": [("user", question)]}))


def test_the_tools_of_an_agent_that_serves_as_a_tool_are_emulated_if_it_is_kept() -> None:
    boss = loop_with_tools(ask_doorman, turns=([("ask_doorman", '{"question": "Open them."}')], "Opened."))

    async def agent(task: Task, toolbox: Toolbox) -> str:
        with langgraph.emulated(boss, toolbox, keep=["ask_doorman"]):
            return answer(await boss.ainvoke(ask(task)))

    result = run(agent)
    assert sorted(lockers(result)) == ["7", "7", "8"]
    assert requests(result) == [REQUEST] * (len(SCRIPT) + 2)
    ends_session(boss, "no toolkit of the case 'parcel' has: ask_doorman; declare")


def test_a_graph_that_is_not_compiled_is_refused() -> None:
    async def agent(_: Task, toolbox: Toolbox) -> str:
        message = r"the graph is StateGraph, .*; pass graph\.compile\(\)"
        with pytest.raises(UsageError, match=message), langgraph.emulated(StateGraph(MessagesState), toolbox):
            raise AssertionError("the block must not run")
        return "Refused."

    assert run(agent).answer == "Refused."


def test_a_toolbox_does_not_outlive_its_case() -> None:
    assert is_freed_after(existing(GRAPHS["create_agent"]))


@pytest.mark.parametrize("graph", [GRAPHS["create_agent"], GRAPHS["tool node"]])
def test_a_forgotten_real_tool_ends_the_session_before_it_is_executed(graph: Any) -> None:
    async def forgetful(task: Task, _: Toolbox) -> str:
        return str((await graph.ainvoke({"messages": [("user", str(task))]}))["messages"][-1].text)

    with pytest.raises(MissingToolError, match="the tool 'Lockers_Open' of LangChain is not emulated"):
        run(forgetful)


@pytest.mark.parametrize("graph", [GRAPHS["create_agent"], GRAPHS["tool node"]])
def test_a_compiled_graph_is_run_with_emulated_tools(graph: Any) -> None:
    record = run(graph)
    assert (lockers(record), record.answer) == (["7", "7", "8"], "Opened.")
