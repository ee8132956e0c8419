"""Run a user's function as an agent. It needs no base class, and its case never waits for it beyond the time limit."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Thread
from typing import Any

from pytest_toolemu.agents.framework_limits import framework_limit
from pytest_toolemu.agents.python_objects import load_object
from pytest_toolemu.core.identity import own_identity
from pytest_toolemu.core.toolbox import BlockingToolbox, Task, Toolbox
from pytest_toolemu.errors import AgentStopped, UsageError
from pytest_toolemu.formats.exception_text import exception_text
from pytest_toolemu.formats.yaml_document import show

Function = Callable[[Task, Any], Any]
"""Takes the task and a Toolbox, or a BlockingToolbox if it is not ``async``, and returns the final answer."""


@dataclass(frozen=True)
class CustomAgent:
    """An agent created by ``custom_agent``. TypeError if the function returns anything but a ``str``."""

    function: Function
    name: str

    @property
    def identity(self) -> dict[str, Any]:
        """Kind, name, and a hash of the file, because the function may change under the same name."""
        return own_identity(self.function, self.name)

    async def __call__(self, task: Task, toolbox: Toolbox) -> str:
        """Return the function's answer; its errors are not caught."""
        try:
            if _is_async(self.function):
                with _recursion_limit_kept():
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


def custom_agent(function: Function, name: str) -> CustomAgent:
    """Return an agent that calls a function, or a callable object, with task and toolbox; records call it ``name``.

    An ``async`` function is awaited. Any other function runs in a daemon thread with a copy of the current context
    variables, so it may block. If its case is canceled, the thread is abandoned, and its next tool call raises
    AgentStopped.
    """
    if not callable(function):
        raise UsageError(f"the agent {name!r} is {show(function)}, which is not callable; name a function")
    return CustomAgent(function, name)


def load_custom_agent(target: str) -> CustomAgent:
    """Load the agent ``package.module:function`` or ``path.py:function``; UsageError if there is none."""
    if not all(target.rpartition(":")[::2]):
        raise UsageError(f"{target!r} does not name an agent; write package.module:function or path.py:function")
    return custom_agent(load_object(target, "agent"), target)


@contextlib.contextmanager
def _recursion_limit_kept() -> Iterator[None]:
    """Restore the recursion limit if the agent lowers it: all threads share it, including pytest's."""
    limit = sys.getrecursionlimit()
    try:
        yield
    finally:
        if sys.getrecursionlimit() < limit:
            sys.setrecursionlimit(limit)


def _is_async(function: Function) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


async def _in_thread(function: Function, task: Task, toolbox: Toolbox) -> Any:
    """Return the function's result. Cancellation does not wait for the thread, which cannot be stopped from outside."""
    blocking = BlockingToolbox(toolbox)
    outcome: concurrent.futures.Future[Any] = concurrent.futures.Future()
    context = contextvars.copy_context()

    def run() -> None:
        if not outcome.set_running_or_notify_cancel():
            return
        try:
            with _recursion_limit_kept():  # restored in this thread, which needs the limit right afterwards
                answer = context.run(function, task, blocking)
            outcome.set_result(answer)
        except (StopIteration, GeneratorExit) as error:  # futures reject the former, coroutines swallow the latter
            replacement = RuntimeError(f"the agent raised {error!r}")
            outcome.set_exception(replacement.with_traceback(error.__traceback__))
        except BaseException as error:
            outcome.set_exception(error)

    Thread(target=run, name="toolemu agent", daemon=True).start()
    try:
        return await asyncio.wrap_future(outcome)
    except asyncio.CancelledError:
        toolbox.end()  # an abandoned thread must not cause further costs
        raise
