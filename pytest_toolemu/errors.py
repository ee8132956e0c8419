"""The exceptions of this package.

::

    ToolemuError
    ├── UsageError        an option, key, model, or package prevents what the user requested
    │   └── MissingToolError  an agent lacks tools or a reference, a case a judge; ends the session
    ├── DocumentError     a file is not valid; each problem has a line and a column
    ├── WorldError        declared operations or rows of a world do not work
    ├── AgentProgramError a program or service that is the agent failed
    ├── InconclusiveError an emulator or evaluator gave no valid reply, even after repair
    ├── ModelError        a request to a model failed; states whether a retry can help
    │   └── ReplayMissError   no cassette contains a request that had to be replayed
    └── NotRunError       the session ended a case before it had a verdict

    AgentStopped          (BaseException) ends an agent's turn from inside a tool call

The user can fix the causes of the first two, which end the session before a case runs. An AgentProgramError is the
agent's failure. The others are failures of the evaluation harness. All of them become pytest errors, never a verdict on
the agent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pathlib import Path

StopKind = Literal["quit", "step_limit", "token_limit", "timeout"]
"""How an agent's turn can be ended from inside a tool call."""


class ToolemuError(Exception):
    """Base class of the errors of this package."""


class UsageError(ToolemuError):
    """An option, credential, model name, or package is missing or not valid; the message states the fix."""


class MissingToolError(UsageError):
    """An agent lacks tools, a reference, or a judge that its cases need; the session ends.

    An existing agent may have tools that no toolkit of its case has, or that cannot be emulated.

    ``model_calls`` are the calls that the case had made by then, which were paid for.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.model_calls: tuple[Any, ...] = ()


class DocumentError(ToolemuError):
    """One or more problems in a YAML file, each with the position at which to fix it.

    ``problems`` holds ``(line, column, message)``, both counted from 1.
    """

    def __init__(self, path: Path | str, problems: list[tuple[int, int, str]]) -> None:
        self.path = path
        self.problems = sorted(problems)
        super().__init__("\n".join(f"{path}:{line}:{column}: {message}" for line, column, message in self.problems))


class WorldError(ToolemuError):
    """A declared operation or the rows of a case cannot be executed, so the run says nothing about the agent."""


class OpenEntityError(ToolemuError):
    """A call names something that the rows of an open entity do not contain, so the emulator must answer it."""


class AgentProgramError(ToolemuError):
    """The agent is a program or service that aborted or gave no usable answer: the agent's own failure."""


class InconclusiveError(ToolemuError):
    """An emulator or evaluator gave no usable reply, so the run says nothing about the agent."""


class ModelError(ToolemuError):
    """A request to a model endpoint failed.

    ``status`` is the HTTP status, or None if no response arrived. ``transient``: a retry can help. ``retry_after`` is
    the pause that the endpoint asked for, in seconds.
    """

    def __init__(
        self, message: str, *, status: int | None = None, transient: bool = False, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.transient = transient
        self.retry_after = retry_after

    @property
    def may_be_charged(self) -> bool:
        """Whether a reply may have been lost on the way; an endpoint that refuses a request charges nothing."""
        return self.status in (None, 200)


class ReplayMissError(ModelError):
    """No cassette contains the request, which must not be sent; the message shows how the closest one differs."""


class NotRunError(ToolemuError):
    """A case was not run or not completed, because the session sends no more requests.

    ``model_calls`` are the calls that it had made by then, which were paid for.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.model_calls: tuple[Any, ...] = ()


class AgentStopped(BaseException):
    """Ends the agent's turn. A BaseException, so that an agent's ``except Exception`` does not catch it.

    ``stop`` is ``timeout`` only in an abandoned thread. ``reason`` is for the record.
    """

    def __init__(self, stop: StopKind, reason: str = "") -> None:
        super().__init__(stop, reason)
        self.stop = stop
        self.reason = reason
