"""The scheduler of one process: it offers cases to the coordinator, runs those that are ordered, and waits for results.

Four kinds of threads meet here. Items call ``result`` on pytest's main thread. Jobs run on the event loop's thread. The
coordinator's messages arrive on any thread: this one, the coordinator's timer, or that of an xdist channel. A watchdog
thread ends what the event loop cannot end.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import itertools
import threading
import types
from asyncio import get_running_loop
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from pytest_toolemu.core import case_timer
from pytest_toolemu.errors import ModelError, NotRunError, UsageError
from pytest_toolemu.scheduling import coordinator_messages as messages
from pytest_toolemu.scheduling.adaptive_limit import RequestOutcome
from pytest_toolemu.scheduling.event_loop import TICK, CaseLoop, wait

# An event loop that has not answered for this long is blocked, in seconds.
_BLOCKED: Final = 1.0

_LOOP_ENDED: Final = (
    "the event loop that runs cases has ended: an agent stopped it, or raised KeyboardInterrupt in a task"
)


class NoResultError(Exception):
    """Raised for an item that gets no result; the text is the reason."""

    def __init__(self, kind: messages.NoResultKind, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


@dataclass
class _Attempt:
    """An attempt of a case that the coordinator has ordered and that has not ended. ``timer`` exists once it runs."""

    index: int
    number: int
    task: asyncio.Task[None] | None = None
    timer: case_timer.CaseTimer | None = None
    failed: bool = True


class WorkerScheduler:
    """Runs jobs by item index, as the coordinator orders.

    ``describe_error`` turns the index of a job and its exception into its result. A job limits its own time. One that
    has run for ``patience`` seconds blocks the event loop or ignores its cancellation, and is given up with an error
    that says so.
    """

    def __init__(
        self, loop: CaseLoop, describe_error: Callable[[int, BaseException], messages.JobError], patience: float
    ) -> None:
        self._loop = loop
        self._describe_error = describe_error
        self._patience = patience
        self.transmit: Callable[[messages.WorkerMessage], None] = lambda _: None
        self.permits = PermitClient(loop.call_now, self.send)
        # A job starts in the context in which it was offered or requested. The coordinator's orders often arrive in the
        # context of another job: starting there would hand on that job's timer, among other things.
        self._jobs: dict[int, tuple[messages.Job, contextvars.Context]] = {}
        self._offered: set[int] = set()
        self._attempts: dict[int, _Attempt] = {}
        self._attempts_lock = threading.Lock()
        self._results: dict[int, Future[messages.JobResult]] = {}
        self._tokens = itertools.count(1)
        self._confirmed: set[int] = set()
        self.is_coordinator_lost = False
        """Whether the process of the coordinator has ended before this one."""
        # Set when something happens that ``withdraw`` may be waiting for.
        self._changed = threading.Event()
        self._is_closed = threading.Event()
        self._watchdog: threading.Thread | None = None

    def send(self, message: messages.WorkerMessage) -> None:
        """Send a message to the coordinator, from any thread."""
        self.transmit(message)

    # ---- for the items, on the main thread

    def connect(self, transmit: Callable[[messages.WorkerMessage], None]) -> None:
        """Set how to send a message to the coordinator. From now on ``receive`` may be called, from any thread."""
        self.transmit = transmit
        self._watchdog = threading.Thread(target=self._watch, name="toolemu-watch", daemon=True)
        self._watchdog.start()

    def offer(self, jobs: Mapping[int, messages.Job]) -> None:
        """Let these cases run before their items' turn."""
        context = contextvars.copy_context()
        present = self._offered | self._results.keys()
        new = {index: (job, context) for index, job in jobs.items() if index not in present}
        self._jobs |= new
        self._offered |= set(new)
        if new:
            self.send(messages.CasesOffered(tuple(new)))

    def withdraw(self, indices: Iterable[int]) -> None:
        """Withdraw cases that were offered, and wait until none of them runs, as a fixture they use is torn down."""
        withdrawn = self._offered.intersection(indices)
        if not withdrawn:
            return
        self._offered -= withdrawn
        token = next(self._tokens)
        self.send(messages.CasesWithdrawn(tuple(sorted(withdrawn)), token))
        # The coordinator may have ordered one of them before it received this. Its orders arrive in sequence, so once
        # it has confirmed, every case that was ordered is known.
        while not self._is_closed.is_set():
            self._changed.clear()
            is_confirmed = token in self._confirmed or self.is_coordinator_lost
            if is_confirmed and not withdrawn & self._attempts.keys():
                return
            self._changed.wait(TICK)

    def drain(self) -> None:
        """Start no more cases for other workers, and wait for those that run."""
        self.withdraw(list(self._offered))

    def result(
        self, index: int, job: messages.Job, offered: Mapping[int, messages.Job] = types.MappingProxyType({})
    ) -> messages.JobResult:
        """Return the result of a case, wherever it has run; run this job if it has not run anywhere.

        A second call for the same case runs it again. ``offered`` are further cases that may run from now on. Raise
        NoResultError if there will be no result.
        """
        self._jobs[index] = (job, contextvars.copy_context())
        future = self._results[index] = Future()
        self.send(messages.ResultRequested(index))
        try:
            self.offer(offered)
            return wait(future)
        except NoResultError:
            raise
        except BaseException:
            self.send(messages.RequestAbandoned(index))
            raise
        finally:
            self._results.pop(index, None)
            self._jobs.pop(index, None)
            self._offered.discard(index)

    def close(self) -> None:
        """Sign off from the coordinator. What still runs is canceled when the event loop closes."""
        self._is_closed.set()
        self.send(messages.WorkerClosed())
        self.transmit = lambda _: None
        if self._watchdog is not None:
            self._watchdog.join()

    # ---- for the coordinator, on any thread

    def receive(self, message: messages.CoordinatorMessage) -> None:
        """Process a message of the coordinator. Never raise, as that would end the thread that delivers messages."""
        match message:
            case messages.RunCase(index, number):
                with self._attempts_lock:
                    self._attempts[index] = _Attempt(index, number)
                self._loop.call(self._begin, index, number)
            case messages.CancelCase(index, number):
                self._loop.call(self._cancel, index, number)
            case messages.WithdrawalConfirmed(token):
                self._confirmed.add(token)
                self._changed.set()
            case messages.ResultReady(index, result):
                self._resolve(index, lambda future: future.set_result(result))
            case messages.ResultUnavailable(index, kind, reason):
                self._resolve(index, lambda future: future.set_exception(NoResultError(kind, reason)))
            case _:
                self.permits.receive(message)

    def coordinator_lost(self) -> None:
        """Cancel what runs and release the items that wait, as the coordinator's process is gone."""
        self.is_coordinator_lost = True
        self._changed.set()
        for index, attempt in list(self._attempts.items()):
            self._loop.call(self._cancel, index, attempt.number)
        for index in list(self._results):
            self.receive(
                messages.ResultUnavailable(index, "stopped", "the process that controls the session has ended")
            )

    def _resolve(self, index: int, set_outcome: Callable[[Future[messages.JobResult]], None]) -> None:
        future = self._results.pop(index, None)
        if future is not None and future.set_running_or_notify_cancel():
            set_outcome(future)

    # ---- on the event loop

    def _begin(self, index: int, number: int) -> None:
        attempt, entry = self._attempts.get(index), self._jobs.get(index)
        if attempt is None or attempt.number != number:
            return
        if entry is None:  # the case was withdrawn while the order was on its way
            self._end(attempt, messages.CaseCanceled(index, number))
            return
        job, context = entry
        attempt.task = asyncio.get_running_loop().create_task(
            self._run(attempt, job), name=f"toolemu-{index}", context=context.copy()
        )

    async def _run(self, attempt: _Attempt, job: messages.Job) -> None:
        index, number = attempt.index, attempt.number

        def report_stall(is_stalled: bool) -> None:
            self.send(messages.CaseStalled(index, number, is_stalled))

        def report_outcome(failed: bool) -> None:
            attempt.failed = failed
            self.send(messages.CaseFinished(index, number, failed))

        attempt.timer = case_timer.begin(report_stall)
        message: messages.AttemptEnded
        try:
            result = await job(report_outcome)
            message = messages.CaseCompleted(index, number, attempt.failed, result)
        except asyncio.CancelledError:
            message = messages.CaseCanceled(index, number)
        except messages.NotReadyError:
            message = messages.CaseCanceled(index, number, is_deferred=True)
        except BaseException as error:
            message = messages.CaseCompleted(index, number, True, self._describe_error(index, error))
        self._end(attempt, message)

    def _cancel(self, index: int, number: int) -> None:
        attempt = self._attempts.get(index)
        if attempt is not None and attempt.number == number:
            if attempt.task is not None:
                attempt.task.cancel()
            # A task that is canceled before its first step never runs, so it cannot report its own end.
            if attempt.timer is None:
                self._end(attempt, messages.CaseCanceled(index, number))

    def _end(self, attempt: _Attempt, message: messages.AttemptEnded) -> None:
        if self._attempts.get(attempt.index) is not attempt:
            return
        # Send before removing the attempt: ``drain`` waits until no attempt is left and then signs off, and this
        # message must come before that.
        self.send(message)
        with self._attempts_lock:  # the coordinator may have ordered another attempt in response
            if self._attempts.get(attempt.index) is attempt:
                del self._attempts[attempt.index]
        self._changed.set()

    # ---- on the watchdog's thread

    def _watch(self) -> None:
        has_warned = False
        while not self._is_closed.wait(TICK):
            with contextlib.suppress(Exception):  # the process is ending
                blocked = self._loop.blocked_seconds()
                if blocked > _BLOCKED and not has_warned and (location := self._loop.current_location()):
                    has_warned = True
                    self.send(messages.NoticePosted(_blocked_text(location)))
                self._end_overdue(blocked)

    def _end_overdue(self, blocked: float) -> None:
        if self._loop.is_dead:
            self._give_up_all(_LOOP_ENDED)
        elif blocked > self._patience:
            self._give_up_all(_overdue_text(self._patience))
        else:
            for attempt in list(self._attempts.values()):
                if attempt.timer is not None and attempt.timer.seconds > self._patience:
                    self._give_up(attempt, _overdue_text(self._patience))

    def _give_up_all(self, reason: str) -> None:
        # Withdraw first: the coordinator would start the next case here in response to each end.
        if self._offered:
            self.send(messages.CasesWithdrawn(tuple(sorted(self._offered)), next(self._tokens)))
            self._offered.clear()
        for attempt in list(self._attempts.values()):
            self._give_up(attempt, reason)

    def _give_up(self, attempt: _Attempt, reason: str) -> None:
        error = self._describe_error(attempt.index, UsageError(reason))
        self._end(attempt, messages.CaseCompleted(attempt.index, attempt.number, True, error))


def _overdue_text(patience: float) -> str:
    return (
        f"a case has not ended after {patience:g} s: its agent blocks the event loop (a blocking call in an async "
        "function; use a plain 'def', which runs in a thread) or ignores that it was canceled"
    )


def _blocked_text(location: str) -> str:
    return (
        f"the event loop was blocked for more than {_BLOCKED:g} s at {location}, and no case in this process made "
        "progress. Declare that agent with a plain 'def', which runs in a thread, or await the call that blocks"
    )


class PermitClient:
    """Requests permits from the coordinator. ``call`` calls a function on the event loop; ``send`` sends a message."""

    def __init__(self, call: Callable[..., object], send: Callable[[messages.RequestMessage], None]) -> None:
        self._call = call
        self._send = send
        self._replies: dict[int, asyncio.Future[None]] = {}
        self._tickets = itertools.count(1)
        # Why no more requests are sent; empty while they are
        self.halted = ""
        # The keys for which the circuit breaker is open, each with the reason
        self.closed: dict[str, str] = {}

    async def acquire(self, key: str) -> int:
        """Wait for a permit to send a request, and return its ticket for ``release``.

        Raise NotRunError if the session sends no more requests, and ModelError if the server has died.
        """
        ticket = next(self._tickets)
        reply = self._replies[ticket] = get_running_loop().create_future()
        self._send(messages.PermitRequested(key, ticket))
        try:
            await reply
        except asyncio.CancelledError:
            # The permit may be granted already, or its grant may be on the way: without this it would be lost.
            self.release(ticket, RequestOutcome("unsent"))
            raise
        finally:
            self._replies.pop(ticket, None)
        return ticket

    def release(self, ticket: int, outcome: RequestOutcome) -> None:
        """Report how a request ended, which frees its permit."""
        self._send(messages.PermitReleased(ticket, outcome))

    def report_failure(self, key: str, kind: str, message: str) -> None:
        """Report a failure that no retry overcame."""
        self._send(messages.ProviderFailed(key, kind, message))

    def receive(self, message: messages.PermitReply | messages.RequestsHalted | messages.ProviderClosed) -> None:
        """Process a message of the coordinator, on any thread."""
        match message:
            case messages.PermitGranted(ticket):
                self._call(self._resolve, ticket, None)
            case messages.PermitRefused(ticket, reason, is_lost):
                self._call(self._resolve, ticket, ModelError(reason) if is_lost else NotRunError(reason))
            case messages.RequestsHalted(reason):
                self.halted = reason
            case messages.ProviderClosed(key, reason):
                self.closed[key] = reason

    def _resolve(self, ticket: int, error: NotRunError | ModelError | None) -> None:
        reply = self._replies.pop(ticket, None)
        if reply is not None and not reply.done():
            if error is None:
                reply.set_result(None)
            else:
                reply.set_exception(error)
