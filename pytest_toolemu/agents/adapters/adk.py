"""Run agents of the Google Agent Development Kit (ADK) with emulated tools."""

from __future__ import annotations

import copy
from typing import Any, Final

from pytest_toolemu.agents.adapters import AnyToolbox, OnceCounter, awaitable, counter_of, option_name, stop
from pytest_toolemu.core.toolbox import Toolbox
from pytest_toolemu.core.toolkit import provider_name
from pytest_toolemu.errors import MissingToolError

_TOOLS: Final = "google.adk.tools"
_CONTROL_MODULES: Final = {f"{_TOOLS}.{name}_tool" for name in ("transfer_to_agent", "set_model_response", "exit_loop")}
"""Modules of tools that only control which agent acts and how it answers. They stay as they are."""
_LOCAL_AGENTS: Final = {"BaseAgent", "LlmAgent", "SequentialAgent", "ParallelAgent", "LoopAgent"}
_MAKERS: Final = {"Gemini": "google", "AnthropicLlm": "anthropic"}
"""The providers of models, by the class of ADK that asks them."""


def tools(toolbox: AnyToolbox) -> list[Any]:
    """Return the tools of a case for ``LlmAgent(tools=...)``.

    The schemas are those of the toolkits. ADK knows no status of results: an error is a result.
    """
    return list(_tools(awaitable(toolbox)).values())


def emulated(toolbox: AnyToolbox) -> Any:
    """Return a plugin for ``App(plugins=[...])`` that replaces the tools of all agents, and counts their tokens.

    The agents themselves are not changed, so one agent can serve many cases at once. Callbacks of agents and
    confirmations of tools are kept. Calls of tools that do not exist are emulated, too. Put the plugin first: an answer
    of an earlier plugin hides responses from it.

    Raise MissingToolError, which ends the session, if an agent has a tool that no toolkit of the case has, if it
    executes code, and if it runs outside this process. This happens before the agent asks its model.
    """
    from google.adk.plugins import BasePlugin

    box = awaitable(toolbox)
    counter = counter_of(box, OnceCounter)
    replacements = _tools(box)

    class EmulatedToolsPlugin(BasePlugin):
        async def before_agent_callback(self, *, agent: Any, callback_context: Any) -> None:
            del callback_context
            kind = next(each.__name__ for each in type(agent).__mro__ if each.__module__.startswith("google.adk."))
            if kind not in _LOCAL_AGENTS:  # it runs elsewhere, such as on another server
                _refuse(box, agent.name, f"runs outside this process, as {kind}", "the agent")

        async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> None:
            agent = callback_context.get_invocation_context().agent
            if getattr(agent, "code_executor", None) is not None:
                _refuse(
                    box, agent.name, f"executes code with {type(agent.code_executor).__name__}", "its code_executor"
                )
            _replace_tools(box, agent.name, llm_request, replacements)

        async def before_tool_callback(self, *, tool: Any, tool_args: Any, tool_context: Any) -> Any:
            if is_control(tool) or hasattr(tool, "emulates"):
                return None
            # A call that resumes an earlier one, a tool of a workflow, or a name that the model invented.
            if type(tool).__module__ != f"{_TOOLS}.base_tool":  # of ADK itself, for a name that the agent does not have
                box.require_tools(tool_context.agent_name, [tool.name])
            return await box.call(tool.name, tool_args)

        async def after_model_callback(self, *, callback_context: Any, llm_response: Any) -> None:
            _count(counter, callback_context.get_invocation_context().agent, llm_response)

    return EmulatedToolsPlugin("toolemu")


def usage(toolbox: AnyToolbox) -> Any:
    """Return a plugin that counts tokens, for ``App(plugins=[...])``. ``emulated`` counts without it."""
    from google.adk.plugins import BasePlugin

    counter = counter_of(awaitable(toolbox), OnceCounter)

    class TokenCountingPlugin(BasePlugin):
        async def after_model_callback(self, *, callback_context: Any, llm_response: Any) -> None:
            _count(counter, callback_context.get_invocation_context().agent, llm_response)

    return TokenCountingPlugin("toolemu_usage")


def _count(counter: OnceCounter, agent: Any, response: Any) -> None:
    """Report the tokens of a complete response. Raise AgentStopped at the limit on tokens."""
    tokens = response.usage_metadata
    if tokens is not None and not response.partial and counter.is_first(response):
        counter.toolbox.used(
            _model_name(agent),
            input=(tokens.prompt_token_count or 0) + (tokens.tool_use_prompt_token_count or 0),
            output=(tokens.candidates_token_count or 0) + (tokens.thoughts_token_count or 0),
            cached=tokens.cached_content_token_count or 0,
        )


def _model_name(agent: Any) -> str:
    model = getattr(agent, "canonical_model", None)
    if model is None:
        return option_name(type(agent).__name__, None)
    # Models of LiteLLM and Apigee have prefixes that name other providers, as in openai/gpt-4o.
    provider, _, name = str(model.model).rpartition("/")
    return option_name(_MAKERS.get(type(model).__name__, provider or type(model).__name__), name)


def _tools(toolbox: Toolbox) -> dict[str, Any]:
    from google.adk.tools import BaseTool
    from google.genai import types

    class EmulatedTool(BaseTool):
        def __init__(self, name: str, description: str, parameters: dict[str, Any]) -> None:
            super().__init__(name=name, description=description)
            self.parameters = parameters
            self.emulates: Any = None  # the tool that this one replaces

        def _get_declaration(self) -> Any:
            return types.FunctionDeclaration(
                name=self.name, description=self.description, parameters_json_schema=self.parameters
            )

        def replacing(self, real: Any) -> Any:
            replacement = copy.copy(self)
            replacement.emulates = real
            return replacement

        async def check_require_confirmation(self, args: Any, tool_context: Any) -> bool:
            return self.emulates is not None and bool(
                await self.emulates.check_require_confirmation(args, tool_context)
            )

        async def run_async(self, *, args: dict[str, Any], tool_context: Any) -> dict[str, Any]:
            del tool_context
            return await toolbox.call(self.name, args)

    return {tool.name: EmulatedTool(tool.name, tool.description, tool.parameters) for tool in toolbox.provider_tools}


def _replace_tools(toolbox: Toolbox, agent: str, request: Any, replacements: dict[str, Any]) -> None:
    """Let the request show and reach emulated tools only, besides those that control the agents."""
    from google.genai import types

    control = {name for name, tool in request.tools_dict.items() if is_control(tool)}
    shown = [each for tool in request.config.tools or () for each in _declarations(tool)]
    names = dict.fromkeys([*request.tools_dict, *(name for name, _ in shown)])
    toolbox.require_tools(agent, [name for name in names if name not in control])
    declarations = [declaration for name, declaration in shown if name in control]
    for name in names:
        if name not in control:
            real = request.tools_dict.get(name)
            emulated_tool = replacements[provider_name(name)].replacing(real)
            request.tools_dict[name] = emulated_tool
            declarations.append(emulated_tool._get_declaration())
    if request.config.tools:
        request.config.tools = [types.Tool(function_declarations=declarations)] if declarations else None


def _declarations(tool: Any) -> list[tuple[str, Any]]:
    """Return what a request shows its model, by name. A field of its own is a tool that the provider executes."""
    if not hasattr(tool, "function_declarations"):
        return [(type(tool).__name__, None)]
    functions = [(function.name, function) for function in tool.function_declarations or ()]
    fields = type(tool).model_fields
    return functions + [
        (name, None) for name in fields if name != "function_declarations" and getattr(tool, name) is not None
    ]


def is_control(tool: Any) -> bool:
    """Return whether a tool only controls which agent acts and how it answers."""
    return getattr(getattr(tool, "func", type(tool)), "__module__", None) in _CONTROL_MODULES


def _refuse(toolbox: Toolbox, agent: str, reason: str, part: str) -> None:
    message = (
        f"the agent {agent} {reason}, which cannot be emulated; remove {part} for the test, or replace it with a tool "
        "from a toolkit of the case. Nothing was executed"
    )
    stop(toolbox, MissingToolError(message))
