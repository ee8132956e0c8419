"""Anybody's own function as an agent, without a base class and without waiting for it longer than its case lasts."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import importlib
import importlib.util
import inspect
import pkgutil
import re
import sys
from asyncio import get_running_loop
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

from pytest_toolemu.core.identity import own_identity
from pytest_toolemu.core.toolbox import BlockingToolbox, Task, Toolbox
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.yaml_document import closest, show

Function = Callable[[Task, Any], Any]
"""Takes the task and a toolbox, returns the final answer: ``async`` with a Toolbox, else with a BlockingToolbox."""


@dataclass(frozen=True)
class CustomAgent:
    """An agent made by ``custom_agent``. What is no final answer as ``str`` is a TypeError."""

    function: Function
    name: str

    @property
    def identity(self) -> dict[str, Any]:
        """Kind, name, and a hash of the file: what the function does may change under the same name."""
        return own_identity(self.function, self.name)

    async def __call__(self, task: Task, toolbox: Toolbox) -> str:
        """What the function answers; its errors pass through."""
        try:
            if _is_async(self.function):
                with _recursion_limit_kept():
                    answer = await self.function(task, toolbox)
            else:
                answer = await _in_thread(self.function, task, toolbox)
        except SystemExit as error:  # it would end the event loop, and all other cases with it
            told = RuntimeError(f"the agent {self.name} raised SystemExit({error.code!r}); return an answer")
            raise told.with_traceback(error.__traceback__) from None
        if isinstance(answer, str):
            return str(answer)
        remedy = "return the final answer as str"
        if inspect.iscoroutine(answer):
            answer.close()
            remedy = "declare it with 'async def', so that it is awaited"
        raise TypeError(f"the agent {self.name} returned {type(answer).__name__}: {show(answer)}; {remedy}")


def custom_agent(function: Function, name: str) -> CustomAgent:
    """A function of task and toolbox, or an object that is called so, as an agent; ``name`` is for the record.

    An ``async`` one is awaited. A plain one runs in a daemon thread with a copy of the current context variables, so
    it may block; when its case is cancelled nobody waits for it, and its next tool call ends it with AgentStopped.
    """
    if not callable(function):
        raise UsageError(f"the agent {name!r} is {show(function)}, which cannot be called; name a function")
    return CustomAgent(function, name)


def load_custom_agent(target: str) -> CustomAgent:
    """Load the agent ``package.module:function`` or ``path.py:function``; UsageError if there is none.

    Modules, and relative paths that are not below the current folder, are looked for on ``sys.path``.
    """
    module_name, _, path = target.rpartition(":")
    if not module_name or not path:
        raise UsageError(f"{target!r} names no agent; write package.module:function or path.py:function")
    found: Any = _file(Path(module_name), target) if module_name.endswith(".py") else _module(module_name, target)
    for name in path.split("."):
        if not hasattr(found, name):
            public = [known for known in dir(found) if not known.startswith("_")]
            raise UsageError(f"agent {target!r}: {module_name} has no {name!r}{closest(name, public)}")
        found = getattr(found, name)
    return custom_agent(found, target)


def _module(name: str, target: str) -> Any:
    parent: Any = None
    parts = name.split(".")
    for index, part in enumerate(parts):
        current = ".".join(parts[: index + 1])
        try:
            parent = importlib.import_module(current)
        except ImportError as error:
            if getattr(error, "name", None) != current:
                raise UsageError(f"agent {target!r}: importing {current} failed: {error}") from error
            siblings = pkgutil.iter_modules(getattr(parent, "__path__", None if index == 0 else ()))
            near = closest(part, [module.name for module in siblings if not module.name.startswith("_")])
            # Of all that can be imported, only a near miss is worth a word.
            near = near if "mean" in near else ""
            raise UsageError(
                f"agent {target!r}: there is no module {current!r}{near}; is its folder on the path?"
            ) from None
        except Exception as error:
            raise _broken(target, current, error) from error
    return parent


def _broken(target: str, what: str, error: Exception) -> UsageError:
    return UsageError(f"agent {target!r}: importing {what} failed: {type(error).__name__}: {error}")


def _file(path: Path, target: str) -> Any:
    """The module in a file: as part of its package where that can be imported, else by itself."""
    file = next((file for base in ("", *sys.path) if (file := Path(base, path).resolve()).is_file()), None)
    if file is None:
        raise UsageError(
            f"agent {target!r}: there is no file {path}; a path is relative to the current folder or the project's root"
        )
    for base in map(Path, sys.path):
        if file.is_relative_to(base.resolve()) and base.is_absolute():
            parts = file.relative_to(base.resolve()).with_suffix("").parts
            if all(part.isidentifier() for part in parts) and _is_found(".".join(parts), file):
                return _module(".".join(parts), target)
    name = re.sub(r"\W", "_", str(file.with_suffix("")))
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise _broken(target, str(path), error) from error
    return module


def _is_found(module: str, file: Path) -> bool:
    """Whether importing a module loads this file, not another one of the same name."""
    try:
        spec = importlib.util.find_spec(module)
    except Exception:  # of a package on the way, whose own import then says what is wrong
        return False
    return spec is not None and spec.origin is not None and Path(spec.origin).resolve() == file


@contextlib.contextmanager
def _recursion_limit_kept() -> Iterator[None]:
    """Raise the recursion limit again if the agent has lowered it: it is one for all threads, and for pytest."""
    limit = sys.getrecursionlimit()
    try:
        yield
    finally:
        if sys.getrecursionlimit() < limit:
            sys.setrecursionlimit(limit)


def _is_async(function: Function) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


async def _in_thread(function: Function, task: Task, toolbox: Toolbox) -> Any:
    """The function's result. Cancellation is not held up by the thread, which cannot be stopped from outside."""
    blocking = BlockingToolbox(toolbox, get_running_loop())
    outcome: concurrent.futures.Future[Any] = concurrent.futures.Future()
    context = contextvars.copy_context()

    def play() -> None:
        if not outcome.set_running_or_notify_cancel():
            return
        try:
            with _recursion_limit_kept():  # here, as this very thread may need it for what comes next
                answer = context.run(function, task, blocking)
            outcome.set_result(answer)
        except (StopIteration, GeneratorExit) as error:  # no future takes the one, no coroutine the other
            told = RuntimeError(f"the agent raised {error!r}")
            outcome.set_exception(told.with_traceback(error.__traceback__))
        except BaseException as error:
            outcome.set_exception(error)

    Thread(target=play, name="toolemu agent", daemon=True).start()
    try:
        return await asyncio.wrap_future(outcome)
    finally:
        toolbox.end()  # a thread left behind cannot go on spending
