"""Tasks of asyncio that agents started and did not await, or that do not end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from pathlib import Path
from threading import Event, Thread
from types import CodeType
from typing import Any, Final

from pytest_toolemu.formats.visible_text import in_log, visible

_PACKAGE: Final = Path(__file__).parents[1]
_MAX_LENGTH: Final = 200


def leaked_tasks(tasks: Iterable[asyncio.Task[Any]]) -> list[str]:
    """Describe each task whose coroutine is not of this package: its name, its coroutine, and where it waits."""
    return sorted(_description(task) for task in tasks if not _is_ours(_code(task)))


def keep_uncollected(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Keep tasks from being collected for the rest of the process, also while the interpreter ends.

    Python ends the coroutine of a collected task with GeneratorExit. A coroutine that catches it, and has no event loop
    to wait on any more, can loop without end, and the process with it.
    """
    kept = list(tasks)

    def hold() -> None:
        # The interpreter never clears the frames of a daemon thread.
        held = kept
        Event().wait()
        del held

    if kept:
        with contextlib.suppress(RuntimeError):  # the interpreter is already ending
            Thread(target=hold, name="toolemu-hold", daemon=True).start()


def _is_ours(code: CodeType | None) -> bool:
    return code is not None and Path(code.co_filename).is_relative_to(_PACKAGE)


def _description(task: asyncio.Task[Any]) -> str:
    frames = task.get_stack(limit=1)
    location = f" at {Path(frames[0].f_code.co_filename).name}:{frames[0].f_lineno}" if frames else ""
    coroutine = getattr(task.get_coro(), "__qualname__", "a coroutine")
    text = f"task {task.get_name()!r}{location} ({coroutine})"
    return in_log(visible(" ".join(text.split())))[:_MAX_LENGTH]


def _code(task: asyncio.Task[Any]) -> CodeType | None:
    return getattr(task.get_coro(), "cr_code", None)
