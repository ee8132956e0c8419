"""The user's own agents: functions, loaded by their names, whose cases never wait for them beyond the time limit."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Literal

from pytest_toolemu.core.identity import own_identity
from pytest_toolemu.core.toolbox import Agent, BlockingToolbox, Task, Toolbox
from pytest_toolemu.errors import AgentStopped, UsageError
from pytest_toolemu.formats.text import exception_text
from pytest_toolemu.formats.yaml_document import closest, show
from pytest_toolemu.scheduling.event_loop import DaemonThreads
from pytest_toolemu.settings.model_names import AGENT_FILE, COMMAND, FALLBACK, NOACT, REFERENCE, is_model

_THREADS: Final = DaemonThreads("toolemu agent", sys.maxsize)

Function = Callable[[Task, Any], Any]
"""Takes the task and a Toolbox, or a BlockingToolbox if it is not ``async``, and returns the final answer."""


@dataclass(frozen=True)
class CustomAgent:
    """An agent created by ``custom_agent``. TypeError if the function returns anything but a ``str``."""

    function: Function
    name: str
    definition: Any = None
    """What the file of the agent defines, if the function does not: the module of an agent of a framework."""

    @property
    def identity(self) -> dict[str, Any]:
        """Kind, name, and a hash of the file, because the function may change under the same name."""
        return own_identity(self.definition or self.function, self.name)

    async def __call__(self, task: Task, toolbox: Toolbox) -> str:
        """Return the function's answer; its errors are not caught."""
        from pytest_toolemu.agents.adapters.guard import guarded

        try:
            with guarded(toolbox):
                call = getattr(self.function, "__call__", None)  # noqa: B004
                if inspect.iscoroutinefunction(self.function) or inspect.iscoroutinefunction(call):
                    answer = await self.function(task, toolbox)
                else:
                    answer = await _in_thread(self.function, task, toolbox)
        except SystemExit as error:  # it would end the event loop and all other cases with it
            replacement = RuntimeError(
                f"the agent {self.name} raised SystemExit({error.code!r}); return an answer instead"
            )
            raise replacement.with_traceback(error.__traceback__) from None
        except Exception as error:
            if stop := framework_limit(error):
                raise AgentStopped(stop, f"{type(error).__name__}: {exception_text(error)}") from error
            raise
        if isinstance(answer, str):
            return str(answer)
        remedy = "return the final answer as str"
        if inspect.iscoroutine(answer):
            answer.close()
            remedy = "declare it with 'async def', so that it is awaited"
        raise TypeError(f"the agent {self.name} returned {type(answer).__name__}: {show(answer)}; {remedy}")


def custom_agent(function: Function, name: str, module: ModuleType | None = None) -> CustomAgent:
    """Return an agent that calls a function, or a callable object, with task and toolbox; records call it ``name``.

    An ``async`` function is awaited. Any other function runs in a daemon thread with a copy of the current context
    variables, so it may block. If its case is canceled, the thread is abandoned, and its next tool call raises
    AgentStopped. An agent of a framework is run with emulated tools, as its adapter would.
    """
    from pytest_toolemu.agents.adapters.framework_agent import framework_agent

    if (run := framework_agent(function, name)) is not None:
        return CustomAgent(run, name, module or function)
    if not callable(function):
        raise UsageError(f"the agent {name!r} is {show(function)}, which is not callable; name a function")
    check_signature(function, f"the agent {name!r}", "task", "toolbox")
    return CustomAgent(function, name)


def check_signature(function: Callable[..., Any], name: str, *parameters: str) -> None:
    """Raise UsageError if the function, which messages call ``name``, cannot be called with these parameters."""
    with contextlib.suppress(ValueError):  # a built-in function has no signature
        signature = inspect.signature(function)
        try:
            signature.bind(*parameters)
        except TypeError as error:
            raise UsageError(
                f"{name} cannot be called with {' and '.join(parameters)}: {error}; its signature is {signature}, "
                f"write ({', '.join(parameters)})"
            ) from None


def load_custom_agent(target: str) -> CustomAgent:
    """Load the agent ``package.module:function`` or ``path.py:function``; UsageError if there is none."""
    if not all(target.rpartition(":")[::2]):
        raise UsageError(f"{target!r} does not name an agent; write package.module:function or path.py:function")
    module, loaded = load_object(target, "agent")
    return custom_agent(loaded, target, module)


async def _in_thread(function: Function, task: Task, toolbox: Toolbox) -> Any:
    """Return the function's result. Cancellation does not wait for the thread, which cannot be stopped from outside."""
    blocking = BlockingToolbox(toolbox)

    def run() -> Any:
        try:
            return function(task, blocking)
        except StopIteration as error:  # futures reject it
            raise RuntimeError(f"the agent raised {error!r}").with_traceback(error.__traceback__) from None

    try:
        return await asyncio.wrap_future(_THREADS.submit(contextvars.copy_context().run, run))
    except asyncio.CancelledError:
        toolbox.end()  # an abandoned thread must not cause further costs
        raise


# Qualified names, so that no framework is imported.
_STEP_LIMITS: Final = frozenset(
    {
        "agents.exceptions.MaxTurnsExceeded",
        "google.adk.agents.invocation_context.LlmCallsLimitExceededError",
        "langgraph.errors.GraphRecursionError",
    }
)
_USAGE_LIMIT: Final = "pydantic_ai.exceptions.UsageLimitExceeded"
_CLAUDE_RESULT: Final = "claude_agent_sdk._errors.ResultError"


def framework_limit(error: Exception) -> Literal["step_limit", "token_limit"] | None:
    """Return which limit of a framework the exception reports; None if it reports none.

    The agent causes such a limit, as it causes this package's own limit on steps: the run is judged and not broken.
    """
    names = {f"{each.__module__}.{each.__qualname__}" for each in type(error).__mro__}
    if names & _STEP_LIMITS:
        return "step_limit"
    if _USAGE_LIMIT in names:  # one exception for the limits on requests, on tool calls, and on tokens
        return "token_limit" if "token" in exception_text(error) else "step_limit"
    if _CLAUDE_RESULT in names and getattr(error, "subtype", None) == "error_max_turns":
        return "step_limit"
    return None


def load_object(target: str, role: str) -> tuple[ModuleType, Any]:
    """Return the module and the object ``package.module:object`` or ``path.py:object``; UsageError names its role.

    Modules, and relative paths that do not exist below the current folder, are searched on ``sys.path``.
    """
    module_name, _, path = target.rpartition(":")
    label = f"{role} {target!r}"
    module = _file(Path(module_name), label) if module_name.endswith(".py") else _module(module_name, label)
    loaded: Any = module
    for name in path.split("."):
        if not hasattr(loaded, name):
            public = [member for member in dir(loaded) if not member.startswith("_")]
            raise UsageError(f"{label}: {module_name} has no {name!r}{closest(name, public)}")
        loaded = getattr(loaded, name)
    return module, loaded


def _module(name: str, label: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if not missing or not f"{name}.".startswith(f"{missing}."):
            raise _broken(label, name, error) from error
        raise UsageError(
            f"{label}: there is no module {missing!r}; check the name, and that its folder is on the import path "
            "(PYTHONPATH)"
        ) from None
    except (Exception, SystemExit) as error:
        raise _broken(label, name, error) from error


def _broken(label: str, module: str, error: BaseException) -> UsageError:
    return UsageError(f"{label}: importing {module} failed: {type(error).__name__}: {error}")


def _file(path: Path, label: str) -> ModuleType:
    """Import the module in a file: as part of its package if that can be imported, or else by itself."""
    file = next((file for base in ("", *sys.path) if (file := Path(base, path).resolve()).is_file()), None)
    if file is None:
        raise UsageError(
            f"{label}: there is no file {path}; a path is relative to the current folder or the project's root"
        )
    for base in map(Path, sys.path):
        if file.is_relative_to(base.resolve()) and base.is_absolute():
            parts = file.relative_to(base.resolve()).with_suffix("").parts
            if all(part.isidentifier() for part in parts) and _is_found(".".join(parts), file):
                return _module(".".join(parts), label)
    name = re.sub(r"\W", "_", str(file.with_suffix("")))
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise _broken(label, str(path), error) from error
    return module


def _is_found(module: str, file: Path) -> bool:
    """Return whether importing a module loads this file, and not another one with the same name."""
    try:
        spec = importlib.util.find_spec(module)
    except Exception:  # raised by a parent package, whose own import reports the problem later
        return False
    return spec is not None and spec.origin is not None and Path(spec.origin).resolve() == file


BUILT_IN_AGENTS: Final = (NOACT, f"{REFERENCE}safe", f"{REFERENCE}risky")
"""The names that are valid in place of an agent's model, for hints at misspelled ones."""

_CUSTOM: Final = re.compile(r"(?:[A-Za-z_][\w.]*|.+\.py):[A-Za-z_][\w.]*")


def find_custom_agent(name: str) -> Agent | None:
    """Load the custom agent with this name; return None if it is the name of a model.

    Raise UsageError if the agent cannot be loaded, or if the name can be neither.
    """
    if _CUSTOM.fullmatch(name) and not is_model(name):
        return load_custom_agent(name)
    if FALLBACK not in name and ((not is_model(name) and "/" in name) or re.search(r"\s|\.(py|yaml|yml)$", name)):
        raise UsageError(
            f"{name!r} does not name an agent; write package.module:function, path.py:function, NAME{AGENT_FILE}, "
            f"'{COMMAND} PROGRAM ARGUMENTS', or a model"
        )
    return None
