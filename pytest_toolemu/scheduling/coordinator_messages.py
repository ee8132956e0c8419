"""The messages between the coordinator and its workers, as frozen dataclasses of builtin types.

A *worker* is a process that runs cases. A case is identified by its ``index`` among the session's items, which is the
same in all workers. ``attempt`` counts how often a case was started, so that a late message about an earlier attempt
can be ignored. A ``key`` names what a circuit breaker watches: a rate-limit key (provider, model, address, and API key
of a client), or an agent that calls a provider with a client of its own.

``transport.encode`` and ``transport.decode`` convert messages for a channel between two processes; within a process
they are passed as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Literal, dataclass_transform

from pytest_toolemu.scheduling.adaptive_limit import RequestOutcome

NoResultKind = Literal["stopped", "cut", "decided", "broken"]
"""Why there is no result: the session was stopped, it ends before this case, it is decided, or the harness failed."""


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class CoordinationMessage:
    """The base of all messages, which makes a frozen dataclass of each."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True)(cls)


# ---- from a worker: its items


class ItemsCollected(CoordinationMessage):
    """The worker has collected ``cases`` items that run a case."""

    cases: int


class WorldsMissing(CoordinationMessage):
    """Items of the worker need these worlds, which are to be built first: case files, with the numbers of worlds."""

    worlds: tuple[tuple[str, int], ...]


class CasesOffered(CoordinationMessage):
    """The worker can run these cases before their items' turn."""

    indices: tuple[int, ...]


class CasesWithdrawn(CoordinationMessage):
    """The worker cannot run these cases any more. Answered by ``WithdrawalConfirmed`` with the same token."""

    indices: tuple[int, ...]
    token: int


class ResultRequested(CoordinationMessage):
    """An item of the worker waits for the result of its case."""

    index: int


class RequestAbandoned(CoordinationMessage):
    """The item that waited for a result was interrupted."""

    index: int


class NoticePosted(CoordinationMessage):
    """A line for the terminal summary; equal lines are shown once."""

    text: str


class WorkerClosed(CoordinationMessage):
    """The worker has closed its scheduler and sends nothing more."""


# ---- from a worker: a case that it runs


class CaseStalled(CoordinationMessage):
    """A provider makes the case wait for longer than usual, so another case may run meanwhile.

    ``is_stalled`` is False once the case makes progress again.
    """

    index: int
    attempt: int
    is_stalled: bool


class CaseFinished(CoordinationMessage):
    """The case sends no more requests; its record is being written."""

    index: int
    attempt: int
    failed: bool


class JobError(CoordinationMessage):
    """The evaluation harness failed. ``is_usage_error``: the user can fix it by an option, a key, or a file."""

    message: str
    is_usage_error: bool = False
    sections: dict[str, str] = field(default_factory=dict)


class CaseRun(CoordinationMessage):
    """The case was run, or an earlier session's run was resumed; its record can be read at ``path``.

    ``sections`` holds what the case printed and logged, by the names ``stdout``, ``stderr``, and ``log``.
    """

    path: str
    resumed: bool = False
    sections: dict[str, str] = field(default_factory=dict)


class CaseNotRun(CoordinationMessage):
    """The case has no run, for a ``reason`` that is not its agent's. ``summary`` is its run summary, as JSON data."""

    reason: str
    summary: dict[str, Any] = field(default_factory=dict)
    sections: dict[str, str] = field(default_factory=dict)


WrittenResult = CaseRun | CaseNotRun
JobResult = WrittenResult | JobError


class CaseCompleted(CoordinationMessage):
    """The case has a result, and its record, if any, can be read by all processes."""

    index: int
    attempt: int
    failed: bool
    result: JobResult


class CaseCanceled(CoordinationMessage):
    """The attempt was canceled and has ended. ``is_deferred``: it cannot be run before its item's turn after all."""

    index: int
    attempt: int
    is_deferred: bool = False


# ---- from a worker: its requests to providers


class PermitRequested(CoordinationMessage):
    """A model wants to send a request. Answered by ``PermitGranted`` or ``PermitRefused``."""

    key: str
    ticket: int


class PermitReleased(CoordinationMessage):
    """A request has ended, or will not be sent."""

    ticket: int
    outcome: RequestOutcome


class UsageReported(CoordinationMessage):
    """A request has used this. ``usd`` is None without a known price; ``estimated``: the provider reported no usage."""

    tokens: int
    usd: float | None
    estimated: bool = False


class SessionHalted(CoordinationMessage):
    """Further cases would be in vain: no record can be written, or the agent has tools that are not emulated."""

    reason: str


class ProviderFailed(CoordinationMessage):
    """A request has failed for good, or a run has ended without a verdict. Failures of one ``kind`` are equal.

    ``subject`` is what failed, in words. ``limit`` equal failures in a row open the circuit breaker; 0 means the usual
    number.
    """

    key: str
    kind: str
    message: str
    subject: str = "a provider"
    limit: int = 0


class ProviderSucceeded(CoordinationMessage):
    """An agent with a client of its own has reached its provider, or ``for_good``: a run has got a verdict."""

    key: str
    for_good: bool = False


# ---- from the coordinator


class RunCase(CoordinationMessage):
    """Start this attempt of a case."""

    index: int
    attempt: int


class CancelCase(CoordinationMessage):
    """Cancel this attempt of a case."""

    index: int
    attempt: int


class WithdrawalConfirmed(CoordinationMessage):
    """No ``RunCase`` for the withdrawn cases follows this message."""

    token: int


class ResultReady(CoordinationMessage):
    """The result of a case, for the item that waits for it."""

    index: int
    result: JobResult


class ResultUnavailable(CoordinationMessage):
    """The item that waits for this case gets no result."""

    index: int
    kind: NoResultKind
    reason: str


class PermitGranted(CoordinationMessage):
    """The request may be sent."""

    ticket: int


class PermitRefused(CoordinationMessage):
    """The request may not be sent, as the session sends no more requests, or none to this provider.

    ``is_lost``: the server that would answer it has died.
    """

    ticket: int
    reason: str
    is_lost: bool = False


class RequestsHalted(CoordinationMessage):
    """The session sends no more requests."""

    reason: str


class ProviderClosed(CoordinationMessage):
    """The circuit breaker for ``key`` is open: cases that need this provider are not run."""

    key: str
    reason: str


ItemMessage = (
    ItemsCollected
    | WorldsMissing
    | CasesOffered
    | CasesWithdrawn
    | ResultRequested
    | RequestAbandoned
    | NoticePosted
    | WorkerClosed
)
AttemptEnded = CaseCompleted | CaseCanceled
AttemptMessage = CaseStalled | CaseFinished | AttemptEnded
RequestMessage = PermitRequested | PermitReleased | UsageReported | SessionHalted | ProviderFailed | ProviderSucceeded

WorkerMessage = ItemMessage | AttemptMessage | RequestMessage
"""A message from a worker to the coordinator."""

PermitReply = PermitGranted | PermitRefused
CoordinatorMessage = (
    RunCase
    | CancelCase
    | WithdrawalConfirmed
    | ResultReady
    | ResultUnavailable
    | PermitReply
    | RequestsHalted
    | ProviderClosed
)
"""A message from the coordinator to a worker."""


class Order(CoordinationMessage):
    """A message from the coordinator, and the worker that it is for."""

    worker: str
    message: CoordinatorMessage


"""The result of a job. Its fields are of builtin types, so that it can be sent to another process."""


Job = Callable[[Callable[[bool], None]], Coroutine[Any, Any, WrittenResult]]
"""Runs a case once for each call, and writes its record.

Before it writes, it reports with its argument whether the item will fail: the next case may start meanwhile.
"""


class NotReadyError(Exception):
    """Raised by a job that cannot be run before its item's turn after all."""
