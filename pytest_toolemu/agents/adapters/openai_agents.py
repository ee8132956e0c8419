"""Run agents of the OpenAI Agents SDK with emulated tools."""

from __future__ import annotations

import copy
from typing import Any

from pytest_toolemu.agents.adapters import AnyToolbox, OnceCounter, awaitable, counter_of, option_name
from pytest_toolemu.core.toolbox import Toolbox
from pytest_toolemu.formats.text import compact_json
from pytest_toolemu.settings.model_names import OFFICIAL_URLS


def tools(toolbox: AnyToolbox) -> list[Any]:
    """Return the tools of a case for ``Agent(tools=...)``.

    The schemas are those of the toolkits, not in strict mode, in which models send null for omitted arguments. Text
    that is no JSON is passed on and recorded, too. The SDK knows no status of results: an error is a result.
    """
    return list(_tools(awaitable(toolbox)).values())


def emulated(agent: Any, toolbox: AnyToolbox) -> Any:
    """Return a copy of an existing agent, and of all agents that it hands over to, with the tools of a case.

    The copies count their tokens. Approvals, guardrails, and conditions of tools are kept. MCP servers are removed; in
    their place, the copy of their agent gets all tools of the case. Raise MissingToolError, which ends the session, if
    an agent has a tool that no toolkit of the case has. An agent that serves as a tool is such a tool.
    """
    return _AgentCopies(awaitable(toolbox)).of(agent)


def usage(toolbox: AnyToolbox) -> Any:
    """Return hooks that count tokens, for ``Runner.run(..., hooks=...)``. Copies of ``emulated`` count without them."""
    from agents import RunHooks

    counter = counter_of(awaitable(toolbox), OnceCounter)

    class CountingRunHooks(RunHooks[Any]):
        async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
            del context
            _count(counter, agent, response)

    return CountingRunHooks()


def _count(counter: OnceCounter, agent: Any, response: Any) -> None:
    """Report the tokens of a response. Raise AgentStopped at the limit on tokens."""
    if counter.is_first(response):
        tokens = response.usage
        details = getattr(tokens, "input_tokens_details", None)
        counter.toolbox.used(
            _model_name(agent.model),
            input=tokens.input_tokens,
            output=tokens.output_tokens,
            cached=getattr(details, "cached_tokens", 0) or 0,
        )


def _model_name(model: Any) -> str:
    from agents.models import get_default_model

    if model is None or isinstance(model, str):
        # Prefixes name other providers, as in litellm/anthropic/claude-sonnet-5-5.
        provider, _, name = (model or get_default_model()).rpartition("/")
        return option_name(provider if provider not in ("", "openai") else "openai", name)
    name = getattr(model, "model", None)
    if name is None or not type(model).__module__.startswith("agents.models.openai"):
        return option_name(type(model).__name__, name)
    url = str(getattr(getattr(model, "_client", None), "base_url", "")).rstrip("/")
    return option_name("openai", f"{name}@{url}" if url not in ("", OFFICIAL_URLS["openai"]) else str(name))


class _AgentCopies:
    """The copies of agents, one for each, because agents may hand over to each other in a circle."""

    def __init__(self, toolbox: Toolbox) -> None:
        self._toolbox = toolbox
        self._tools = _tools(toolbox)
        self._copies: dict[int, tuple[Any, Any]] = {}

    def of(self, agent: Any) -> Any:
        if id(agent) in self._copies:
            return self._copies[id(agent)][1]
        self._toolbox.require_tools(agent.name, [tool.name for tool in agent.tools])
        own_tools = {tool.name: _with_conditions(self._tools[tool.name], tool) for tool in agent.tools}
        replaced = agent.clone(
            tools=list((self._tools | own_tools if agent.mcp_servers else own_tools).values()),
            mcp_servers=[],
            hooks=_counting_hooks(agent.hooks, counter_of(self._toolbox, OnceCounter)),
        )
        self._copies[id(agent)] = (agent, replaced)  # the agent too, so that no other one gets its ID
        replaced.handoffs = [self._handoff(handoff) for handoff in agent.handoffs]
        return replaced

    def _handoff(self, handoff: Any) -> Any:
        from agents import Agent

        if isinstance(handoff, Agent):
            return self.of(handoff)

        async def hand_over(context: Any, arguments: str) -> Any:
            return self.of(await handoff.on_invoke_handoff(context, arguments))

        replaced = copy.copy(handoff)
        replaced.on_invoke_handoff = hand_over
        return replaced


def _counting_hooks(hooks: Any, counter: OnceCounter) -> Any:
    """Return hooks of an agent that count tokens, and call the hooks that the agent has."""
    from agents import AgentHooks

    class CountingAgentHooks(AgentHooks[Any]):
        async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
            _count(counter, agent, response)
            if hooks is not None:
                await hooks.on_llm_end(context, agent, response)

    counting = CountingAgentHooks()
    if hooks is not None:
        for name in dir(AgentHooks):
            if name.startswith("on_") and name != "on_llm_end":
                setattr(counting, name, getattr(hooks, name))
    return counting


def _tools(toolbox: Toolbox) -> dict[str, Any]:
    from agents import FunctionTool

    def made(name: str, description: str, parameters: dict[str, Any]) -> Any:
        async def invoke(_: Any, arguments: str) -> str:
            return compact_json(await toolbox.call(name, arguments))

        return FunctionTool(name, description, parameters, invoke, strict_json_schema=False)

    return {tool.name: made(tool.name, tool.description, tool.parameters) for tool in toolbox.provider_tools}


def _with_conditions(emulated_tool: Any, real: Any) -> Any:
    """Return the emulated tool with the conditions under which the real one may be called; hosted tools have none."""
    replaced = copy.copy(emulated_tool)
    for name in ("is_enabled", "needs_approval", "tool_input_guardrails", "tool_output_guardrails"):
        if hasattr(real, name) and type(real) is type(emulated_tool):
            setattr(replaced, name, getattr(real, name))
    return replaced
