"""Run agents of Pydantic AI with emulated tools."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any, Final

from pytest_toolemu.agents.adapters import AnyToolbox, awaitable, counter_of, is_error, option_name
from pytest_toolemu.core.toolbox import Toolbox
from pytest_toolemu.errors import AgentStopped
from pytest_toolemu.formats.text import compact_json

MAX_RETRIES: Final = 3
"""Calls in a row of a tool that does not exist, after which Pydantic AI gives up. Emulated tools never need them."""
_COUNTS: Final = {
    "input": "input_tokens",
    "output": "output_tokens",
    "cached": "cache_read_tokens",
    "cache_written": "cache_write_tokens",
}
_TEXT: Final = "arguments that are not a JSON object"


def tools(toolbox: AnyToolbox) -> Any:
    """Return the tools of a case as a toolset for ``Agent(toolsets=[...])``.

    Calls with invalid arguments are passed on, recorded, and answered with an error as the failure of the tool.
    """
    return _toolset(awaitable(toolbox), None)


@contextlib.contextmanager
def emulated(agent: Any, toolbox: AnyToolbox) -> Iterator[None]:
    """Replace all tools of an existing agent by those of a case, and count its tokens, while the block runs.

    The agent itself is not changed, so one agent can serve many cases at once. Native tools, which a provider executes,
    and toolsets such as those of MCP servers are replaced as well. Raise MissingToolError, which ends the session, if
    the agent has a function or a native tool that no toolkit of the case has. The tools of dynamic toolsets and of MCP
    servers are unknown before a run; they are never called.
    """
    box = awaitable(toolbox)
    box.require_tools(agent.name or type(agent).__name__, _tool_names(agent))
    meter = counter_of(box, RunUsageMeter)
    with agent.override(tools=[], toolsets=[_toolset(box, meter)], native_tools=[]):
        try:
            yield
        except BaseException:
            with contextlib.suppress(AgentStopped):  # the exception in progress came first
                meter.report()
            raise
        meter.report()


def usage(toolbox: AnyToolbox) -> Any:
    """Return a capability that counts tokens, for ``Agent(capabilities=[...])``. ``emulated`` counts without it."""
    from pydantic_ai.capabilities import Hooks

    meter = counter_of(awaitable(toolbox), RunUsageMeter)

    async def before_request(context: Any, request_context: Any) -> Any:
        meter.watch(context)
        return request_context

    async def around_run(context: Any, *, handler: Any) -> Any:
        try:
            return await handler()
        finally:
            meter.watch(context)

    return Hooks(before_model_request=before_request, run=around_run)


class RunUsageMeter:
    """Reports by how much the usage of each run has grown, so that no request is counted twice.

    Pydantic AI adds the tokens of every request to an object that all steps of a run share, also with delegated runs.
    """

    def __init__(self, toolbox: Toolbox) -> None:
        self._toolbox = toolbox
        self._runs: dict[int, tuple[Any, str, dict[str, int]]] = {}

    def watch(self, context: Any) -> None:
        """Report what the run of this context has used since the last time; the first time is the start of counting."""
        model = option_name(context.model.system, context.model.model_name)
        _, _, counted = self._runs.get(id(context.usage), (None, "", _counts(context.usage)))
        self._runs[id(context.usage)] = (context.usage, model, counted)
        self.report()

    def report(self) -> None:
        """Report what the runs have used since the last time. Raise AgentStopped at the limit on tokens."""
        for key, (run_usage, model, counted) in list(self._runs.items()):
            counts = _counts(run_usage)
            self._runs[key] = (run_usage, model, counts)
            if counts != counted:
                self._toolbox.used(model, **{name: counts[name] - counted[name] for name in _COUNTS})


def _counts(run_usage: Any) -> dict[str, int]:
    return {name: getattr(run_usage, field) for name, field in _COUNTS.items()}


class UncheckedArguments:
    """Accepts what a model wrote: the emulator checks it, so that an invalid call is recorded and answered."""

    def validate_json(self, text: Any, **_: Any) -> dict[str, Any]:
        """Return the arguments, or the text itself under a key that no tool has."""
        try:
            value = json.loads(text or "{}")
        except ValueError:
            value = None
        return value if isinstance(value, dict) else {_TEXT: text}

    def validate_python(self, value: Any, **_: Any) -> Any:
        """Return the arguments."""
        return value


def _toolset(toolbox: Toolbox, meter: RunUsageMeter | None) -> Any:
    from pydantic_ai.exceptions import ToolFailed
    from pydantic_ai.tools import ToolDefinition
    from pydantic_ai.toolsets import AbstractToolset, ToolsetTool

    class EmulatedToolset(AbstractToolset[Any]):
        @property
        def id(self) -> str:
            return "toolemu"

        async def get_tools(self, ctx: Any) -> dict[str, Any]:
            if meter is not None:
                meter.watch(ctx)
            return {
                tool.name: ToolsetTool(
                    toolset=self,
                    max_retries=MAX_RETRIES,
                    args_validator=UncheckedArguments(),
                    tool_def=ToolDefinition(
                        name=tool.name, description=tool.description, parameters_json_schema=tool.parameters
                    ),
                )
                for tool in toolbox.provider_tools
            }

        async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: Any, tool: Any) -> dict[str, Any]:
            del ctx, tool
            result = await toolbox.call(name, tool_args.get(_TEXT, tool_args))
            if is_error(result):
                raise ToolFailed(compact_json(result))
            return result

    return EmulatedToolset()


def _tool_names(agent: Any) -> list[str]:
    names: list[str] = []
    for toolset in agent.toolsets:
        toolset.apply(lambda leaf: names.extend(getattr(leaf, "tools", ())))
    native_tools = agent.root_capability.get_native_tools() if hasattr(agent, "root_capability") else ()
    # An optional one only helps the model to use the others, such as the search among tools that every agent has.
    return names + [tool.kind for tool in native_tools if hasattr(tool, "kind") and not tool.optional]
