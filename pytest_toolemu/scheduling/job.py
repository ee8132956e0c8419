"""A case as the scheduler sees it: a coroutine function to run, and a typed result that can travel between processes.

The scheduler knows no case, no agent, and no pytest. The plugin builds a job for each item and interprets its result.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class CaseRun:
    """The case was run, or an earlier session's run was resumed; its record can be read at ``path``.

    ``sections`` holds what the case printed and logged, by the names ``stdout``, ``stderr``, and ``log``.
    """

    path: str
    resumed: bool = False
    sections: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CaseNotRun:
    """The case has no run, for a ``reason`` that is not its agent's. ``summary`` is its run summary, as JSON data."""

    reason: str
    summary: dict[str, Any] = field(default_factory=dict)
    sections: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobError:
    """The evaluation harness failed. ``is_usage_error``: the user can fix it by an option, a key, or a file."""

    message: str
    is_usage_error: bool = False
    sections: dict[str, str] = field(default_factory=dict)


WrittenResult = CaseRun | CaseNotRun
JobResult = WrittenResult | JobError
"""The result of a job. Its fields are of builtin types, so that it can be sent to another process."""


@dataclass(frozen=True, slots=True)
class FinishedJob:
    """A job whose agent, emulator, and evaluators have finished, and whose record is still to be written.

    ``failed``: the item will fail. ``write`` writes the record; the next case may start meanwhile.
    """

    failed: bool
    write: Callable[[], Coroutine[Any, Any, WrittenResult]]


Job = Callable[[], Coroutine[Any, Any, FinishedJob]]
"""Runs a case once for each call."""


class NotReadyError(Exception):
    """Raised by a job that cannot be run before its item's turn after all."""
