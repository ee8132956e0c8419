"""Everything this package raises on purpose.

::

    ToolemuError
    ├── UsageError        what was asked for cannot be done: an option, a key, a model, a package
    ├── DocumentError     a toolkit or case file is wrong; names file, line and column
    ├── InconclusiveError an emulator or evaluator refused, or stayed invalid after bounded repair
    ├── ModelError        a model endpoint failed; knows whether a retry may help
    │   └── ReplayMissError   a request that was to be replayed was never recorded
    └── NotRunError       the session's budget or deadline ended a case before it had a verdict

    AgentStopped          (BaseException) ends an agent's turn from inside a tool call

The first two are the user's to mend and stop before a case runs. The others are the instrument's trouble: pytest
errors, never a verdict on the agent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


class ToolemuError(Exception):
    """Base of all errors of this package."""


class UsageError(ToolemuError):
    """An option, credential, model name or missing package; the message says the remedy."""


class DocumentError(ToolemuError):
    """One or more problems in a YAML file, each with the position at which it is mended.

    ``problems`` holds ``(line, column, message)``, both counted from 1.
    """

    def __init__(self, path: Path | str, problems: list[tuple[int, int, str]]) -> None:
        self.path = path
        self.problems = sorted(problems)
        super().__init__("\n".join(f"{path}:{line}:{column}: {message}" for line, column, message in self.problems))


class InconclusiveError(ToolemuError):
    """The instrument gave no usable answer, so nothing can be said about the agent."""


class ModelError(ToolemuError):
    """A request to a model endpoint failed.

    ``status`` is the HTTP status, None when no answer arrived. ``retry_after`` is in seconds, as the endpoint asked.
    """

    def __init__(
        self, message: str, *, status: int | None = None, transient: bool = False, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.transient = transient
        self.retry_after = retry_after


class ReplayMissError(ModelError):
    """No recording answers a request, and no model may; the message names the nearest one and how it differs."""


class NotRunError(ToolemuError):
    """A case that was not run, or not to its end, because the session may spend no more.

    ``exchanges`` are the requests that it had made by then; they cost what they cost.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.exchanges: tuple[Any, ...] = ()


class AgentStopped(BaseException):
    """Ends the agent's turn; a BaseException, so that an agent's own ``except Exception`` lets it through.

    ``stop`` is ``quit``, ``step_limit``, ``token_limit`` or, in a thread that was given up, ``timeout``; ``reason`` is
    text for the record.
    """

    def __init__(self, stop: str, reason: str = "") -> None:
        super().__init__(stop, reason)
        self.stop = stop
        self.reason = reason
