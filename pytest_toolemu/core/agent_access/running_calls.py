"""The calls that are being answered, each in a task of its own, so that they outlast a caller that gives up."""

from __future__ import annotations

import asyncio

# Bound now: an agent may replace these functions in their module.
from asyncio import current_task, get_running_loop
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class RunningCalls:
    """The tool calls and messages of one agent that are being answered. Belongs to the event loop of the case."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[Any], tuple[str, Any] | None] = {}

    def begin(self, answer: Coroutine[Any, Any, T], call: tuple[str, Any] | None = None) -> asyncio.Task[T]:
        """Start a task that answers a tool call, given by name and arguments, or a message if there is none."""
        task = get_running_loop().create_task(answer)
        self._tasks[task] = call
        task.add_done_callback(self._forget)
        return task

    @property
    def tasks(self) -> tuple[asyncio.Task[Any], ...]:
        """The tasks that have not ended."""
        return tuple(task for task in self._tasks if not task.done())

    @property
    def tool_calls(self) -> dict[asyncio.Task[Any], tuple[str, Any]]:
        """The tool calls that have not been answered, by name and arguments."""
        return {task: call for task, call in self._tasks.items() if call is not None and not task.done()}

    def cancel(self) -> None:
        """Cancel all tasks but the current one."""
        for task in self.tasks:
            if task is not current_task():
                task.cancel()

    def _forget(self, task: asyncio.Task[Any]) -> None:
        del self._tasks[task]
        if not task.cancelled():
            task.exception()  # otherwise asyncio logs that nobody has read it: the caller may have given up
