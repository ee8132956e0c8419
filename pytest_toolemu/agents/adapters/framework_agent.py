"""Agents of frameworks as agents of cases: what ``--toolemu-agent=module:agent`` names need not be a function."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from pytest_toolemu.core.toolbox import Task, Toolbox
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.text import compact_json
from pytest_toolemu.formats.yaml_document import show

_ADAPTERS: Final = {
    "pydantic_ai": "pydantic_ai",
    "agents": "openai_agents",
    "langchain": "langchain",
    "langchain_core": "langchain",
    "langgraph": "langgraph",
    "google": "adk",
    "claude_agent_sdk": "claude",
}


def framework_agent(target: Any, name: str) -> Callable[[Task, Toolbox], Awaitable[str]] | None:
    """Return a function that runs an agent of a framework with emulated tools; None if it is no such object.

    It sends the instruction and returns the final answer; answers that are not text become JSON. Raise UsageError,
    which names the adapter, for other objects of a framework.
    """
    framework, _, _ = type(target).__module__.partition(".")
    if callable(target) or framework not in _ADAPTERS:
        return None
    kinds = {f"{each.__module__.partition('.')[0]}.{each.__name__}" for each in type(target).__mro__}
    for kind, run in _RUNS.items():
        if kind in kinds:

            async def act(task: Task, toolbox: Toolbox) -> str:
                answer = await run(target, str(task), toolbox)  # noqa: B023 - the loop ends here
                return answer if isinstance(answer, str) else compact_json(answer)

            return act
    raise UsageError(
        f"the agent {name!r} is {show(target)}, which cannot be run as it is; write a function of task and toolbox "
        f"with pytest_toolemu.agents.adapters.{_ADAPTERS[framework]}"
    )


async def _pydantic_ai(agent: Any, instruction: str, toolbox: Toolbox) -> Any:
    from pydantic import TypeAdapter

    from pytest_toolemu.agents.adapters.pydantic_ai import emulated

    with emulated(agent, toolbox):
        return TypeAdapter(Any).dump_python((await agent.run(instruction)).output, mode="json")


async def _openai_agents(agent: Any, instruction: str, toolbox: Toolbox) -> Any:
    from agents import Runner
    from pydantic import TypeAdapter

    from pytest_toolemu.agents.adapters.openai_agents import emulated

    result = await Runner.run(emulated(agent, toolbox), instruction)
    return TypeAdapter(Any).dump_python(result.final_output, mode="json")


async def _langgraph(graph: Any, instruction: str, toolbox: Toolbox) -> Any:
    from pytest_toolemu.agents.adapters.langgraph import emulated

    with emulated(graph, toolbox):
        state = await graph.ainvoke({"messages": [("user", instruction)]})
    return str(state["messages"][-1].text)


async def _adk(agent: Any, instruction: str, toolbox: Toolbox) -> Any:
    from google.adk.apps import App
    from google.adk.runners import InMemoryRunner

    from pytest_toolemu.agents.adapters.adk import emulated

    app = App(name="toolemu", root_agent=agent, plugins=[emulated(toolbox)])
    events = await InMemoryRunner(app=app).run_debug(instruction, quiet=True)
    content = events[-1].content if events else None
    return "".join(part.text or "" for part in (content.parts if content else None) or ())


async def _claude(options: Any, instruction: str, toolbox: Toolbox) -> Any:
    from claude_agent_sdk import ResultMessage, query

    from pytest_toolemu.agents.adapters.claude import emulated, usage

    answer = ""
    async with emulated(options, toolbox) as replaced:
        async for message in usage(query(prompt=instruction, options=replaced), toolbox):
            if isinstance(message, ResultMessage):
                answer = message.result or ""
    return answer


_RUNS: Final = {
    "pydantic_ai.AbstractAgent": _pydantic_ai,
    "agents.Agent": _openai_agents,
    "langgraph.Pregel": _langgraph,
    "google.BaseAgent": _adk,
    "claude_agent_sdk.ClaudeAgentOptions": _claude,
}
"""How to run an object, by the package and the name of one of its classes."""
