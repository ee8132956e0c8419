"""Run compiled graphs of LangGraph with emulated tools. The graphs are not changed."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Iterable, Iterator
from contextvars import ContextVar, Token
from typing import Any, Final, NoReturn

from pytest_toolemu.agents.adapters import AnyToolbox, awaitable, stop
from pytest_toolemu.agents.adapters.langchain import emulated_tool, tool_name, usage
from pytest_toolemu.core.toolbox import ACTING, Toolbox
from pytest_toolemu.errors import MissingToolError, UsageError

_ENTRY_POINTS: Final = ("invoke", "ainvoke", "run", "arun")
"""The methods of tools that lead to ``BaseTool.run`` or ``BaseTool.arun``, where calls are intercepted."""


@contextlib.contextmanager
def emulated(graph: Any, toolbox: AnyToolbox, *, keep: Iterable[str] = ()) -> Iterator[None]:
    """Emulate every LangChain tool that is called while the block runs, and count the tokens of every chat model.

    This applies to the current context only, so one compiled graph can serve many cases at once. It covers tools of
    tool nodes, of subgraphs, and of nodes that call a tool themselves. ``keep`` names tools that are executed for real
    because they only steer the graph, such as handoffs.

    Raise UsageError for a graph that is not compiled. Raise MissingToolError, which ends the session, for a tool that
    no toolkit of the case has, that a provider executes, or that cannot be intercepted, and for a graph that runs
    elsewhere. Nothing is executed then.
    """
    if not hasattr(graph, "invoke"):
        remedy = "pass graph.compile()" if hasattr(graph, "compile") else "pass a compiled graph"
        raise UsageError(f"emulated: the graph is {type(graph).__name__}, which cannot be invoked; {remedy}")
    with _INSTALLING:
        _install()
    case = _CaseOfGraph(awaitable(toolbox), str(getattr(graph, "name", None) or "of LangGraph"), frozenset(keep))
    case.check_graph(graph)
    case.toolbox.settle()  # before the variables are set: an emulator may use models of LangChain, too
    resets: list[Token[Any]] = [
        _CASE.set(case),
        ACTING.set(None),
        _TOKEN_COUNTER.set(usage(case.toolbox)),
        _PROVIDER_TOOLS.set(_provider_tools_check(case)),
    ]
    _OPEN_CASES.add(case)
    try:
        yield
    finally:
        _OPEN_CASES.discard(case)
        for reset in resets:
            reset.var.reset(reset)


class _CaseOfGraph:
    """A case in which the tools of a graph are emulated."""

    def __init__(self, toolbox: Toolbox, agent: str, keep: frozenset[str]) -> None:
        self.toolbox = toolbox
        self._agent = agent
        self._keep = keep
        self._specs = {spec.name: spec for spec in (*toolbox.tools, *toolbox.provider_tools)}

    def check_graph(self, graph: Any) -> None:
        """Raise MissingToolError for what is known before a run."""
        parts = list(_parts(graph))
        remote = getattr(sys.modules.get("langgraph.pregel.remote"), "RemoteGraph", ())
        if distant := [part for part in parts if isinstance(part, remote)]:
            self.end_session(f"the graph {distant[0].name} runs on another server, so its tools cannot be emulated")
        tools = [tool for part in parts for tool in getattr(part, "tools_by_name", {}).values()]
        self.require([tool.name for tool in tools])
        for tool in tools:
            if tool.name not in self._keep and (method := _own_entry_point(tool)):
                self.end_session(
                    f"the tool {tool.name!r} overrides {method}, so its calls cannot be emulated; override _run or "
                    "_arun instead, or name it in keep=[...] if it may be executed"
                )

    def require(self, names: Iterable[str]) -> None:
        """Raise MissingToolError for tools that no toolkit of the case has."""
        self.toolbox.require_tools(self._agent, [name for name in names if name not in self._keep])

    def replaced(self, tool: Any, tool_input: Any, tool_call_id: str | None) -> tuple[Any, Any]:
        """Return the emulated tool that answers a call, and its arguments; for a tool to be kept, what was passed."""
        if tool.name in self._keep:
            return tool, tool_input
        self.require([tool.name])
        if isinstance(tool_input, str):
            tool_input = {next(iter(tool.args), "input"): tool_input}
        # Without the state of the graph and other values that the framework adds. The model knows nothing of them.
        arguments = tool._filter_injected_args(tool_input)
        # A tool node takes errors as messages. Code that calls the tool itself gets what the real tool would give it.
        handling = tool_call_id is not None or tool.handle_tool_error
        return emulated_tool(self.toolbox, self._specs[tool.name], handling), arguments

    def end_session(self, message: str) -> NoReturn:
        """Raise MissingToolError, which ends the session."""
        stop(self.toolbox, MissingToolError(f"{message}. Nothing was executed"))


_CASE: Final[ContextVar[_CaseOfGraph | None]] = ContextVar("toolemu_graph_case", default=None)
_TOKEN_COUNTER: Final[ContextVar[Any]] = ContextVar("toolemu_graph_tokens", default=None)
_PROVIDER_TOOLS: Final[ContextVar[Any]] = ContextVar("toolemu_graph_provider_tools", default=None)
_OPEN_CASES: Final[set[_CaseOfGraph]] = set()
_INSTALLING: Final = threading.Lock()


@functools.cache
def _install() -> None:
    """Make the methods through which all tools of LangChain run look for the case of the current context."""
    from langchain_core.tools import BaseTool
    from langchain_core.tracers.context import register_configure_hook

    run, arun = BaseTool.run, BaseTool.arun

    @functools.wraps(run)
    def run_in_case(self: Any, tool_input: Any, *args: Any, **options: Any) -> Any:
        return run(*_call_of_case(self, tool_input, options), *args, **options)

    @functools.wraps(arun)
    async def arun_in_case(self: Any, tool_input: Any, *args: Any, **options: Any) -> Any:
        return await arun(*_call_of_case(self, tool_input, options), *args, **options)

    BaseTool.run, BaseTool.arun = run_in_case, arun_in_case
    for handler in (_TOKEN_COUNTER, _PROVIDER_TOOLS):
        register_configure_hook(handler, inheritable=True)


def _call_of_case(tool: Any, tool_input: Any, options: dict[str, Any]) -> tuple[Any, Any]:
    case = _CASE.get()
    if case is not None:
        return case.replaced(tool, tool_input, options.get("tool_call_id"))
    if open_cases := tuple(_OPEN_CASES):  # one of them has lost its context: the call would be a real one
        open_cases[0].end_session(
            f"the tool {tool.name!r} was called in a thread or task that does not have the context of its case; start "
            "threads with contextvars.copy_context().run"
        )
    return tool, tool_input


def _parts(graph: Any) -> Iterator[Any]:
    """Yield a graph, what its nodes consist of, and the same for subgraphs."""
    yield graph
    for node in (getattr(graph, "nodes", None) or {}).values():
        bound = getattr(node, "bound", None)
        parts = {id(part): part for part in (bound, *getattr(bound, "steps", ()), *getattr(node, "subgraphs", ()))}
        for part in parts.values():
            yield from _parts(part)


def _own_entry_point(tool: Any) -> str | None:
    """Return the name of a method by which a tool of the user's own class escapes interception."""
    for method in _ENTRY_POINTS:
        owner = next(cls for cls in type(tool).__mro__ if method in vars(cls))
        if not owner.__module__.startswith("langchain_core."):
            return f"{owner.__name__}.{method}"
    return None


def _provider_tools_check(case: _CaseOfGraph) -> Any:
    """Return a callback that ends the session before a request with a tool that the provider would execute."""
    from langchain_core.callbacks import BaseCallbackHandler

    class ProviderTools(BaseCallbackHandler):
        run_inline = True
        raise_error = True  # instead of a log line

        def on_chat_model_start(self, *_: Any, invocation_params: dict[str, Any] | None = None, **__: Any) -> None:
            shown = (invocation_params or {}).get("tools") or ()
            case.require([tool_name(tool) for tool in shown if _is_executed_by_provider(tool)])

    return ProviderTools()


def _is_executed_by_provider(tool: Any) -> bool:
    """Return whether a tool of a request is none that the agent's own code answers, as functions are."""
    if not isinstance(tool, dict) or tool.keys() & {"function", "function_declarations", "input_schema"}:
        return False
    return tool.get("type", "function") not in ("function", "custom")
