"""One process's cases in flight: it tells the hub what it can run, runs what the hub says, and waits for results."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import itertools
import os
import threading
from asyncio import get_running_loop
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Thread
from typing import Any, Final

from pytest_toolemu.core import case_timer
from pytest_toolemu.errors import ModelError, NotRunError, UsageError
from pytest_toolemu.scheduling.adaptive_limit import RequestOutcome
from pytest_toolemu.scheduling.coordinator import Message
from pytest_toolemu.scheduling.event_loop import TICK, CaseLoop, wait

Keep = Callable[[], Coroutine[Any, Any, Any]]
"""Puts a run where it can be read again; returns the case's result, of builtin types."""

Job = Callable[[], Coroutine[Any, Any, tuple[bool, Keep]]]
"""A case that can be run: whether it failed, and what keeps it, while which the next case may run."""

# A loop that has not come round for so long is blocked, in seconds.
_BLOCKED: Final = 1.0

_DEAD: Final = "the loop that runs cases has ended: an agent stopped it, or raised KeyboardInterrupt in a task"


class NotReadyError(Exception):
    """A job says that it cannot be run before its turn after all."""


class NoResultError(Exception):
    """There will be no result: ``stopped``, ``cut`` or ``broken``, and why."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


@dataclass
class _Running:
    attempt: int
    task: asyncio.Task[None] | None = None
    clock: case_timer.CaseTimer | None = None


class WorkerScheduler:
    """A worker of the hub, see there for the messages.

    ``trouble`` makes a result of what a job raises. A job ends itself in time; one that has run for ``patience``
    seconds blocks the loop, or ignores that it was cancelled, and whoever waits for it is told so.
    """

    def __init__(self, loop: CaseLoop, trouble: Callable[[BaseException], Any], patience: float) -> None:
        self._loop = loop
        self._trouble = trouble
        self._patience = patience
        self.tell: Callable[[Message], None] = _to_nobody
        # A case begins in the context in which it was offered, or asked for: the hub's orders come in that of another.
        self._jobs: dict[int, tuple[Job, contextvars.Context]] = {}
        self._offered: set[int] = set()
        self._running: dict[int, _Running] = {}
        self._changing = threading.Lock()
        self._results: dict[int, Future[Any]] = {}
        self._grants: dict[int, asyncio.Future[None]] = {}
        self._tickets = itertools.count(1)
        self._settled: set[int] = set()
        self._orphaned = False
        self._news = threading.Event()  # of what withdraw waits for
        self._over = threading.Event()
        self.halted = ""
        """Why no more requests are sent; empty while they are."""
        self.closed: dict[str, str] = {}
        """Accounts, and agents that ask a provider by themselves, that are not asked any more, each with the reason."""
        self._watch: threading.Thread | None = None

    # ---- for the items, on their thread

    def connect(self, tell: Callable[[Message], None]) -> None:
        """How the hub is told a message. From now on ``hear`` may be called, from any thread."""
        leader = os.getpid()

        def tell_unless_forked(message: Message) -> None:
            # A child that an agent forked and let return would carry the cases out, and pay for them, once more.
            if os.getpid() != leader:
                os._exit(1)
            tell(message)

        self.tell = tell_unless_forked
        self._watch = Thread(target=self._keep_watch, name="toolemu-watch", daemon=True)
        self._watch.start()

    def offer(self, jobs: Mapping[int, Job]) -> None:
        """These may be run before their turn."""
        context = contextvars.copy_context()
        known = self._offered | self._results.keys()
        fresh = {index: (job, context) for index, job in jobs.items() if index not in known}
        self._jobs |= fresh
        self._offered |= set(fresh)
        if fresh:
            self.tell(("able", list(fresh)))

    def withdraw(self, indices: Iterable[int]) -> None:
        """These may not be run here any more. Waits for those that are running, or that the hub has just ordered."""
        gone = self._offered.intersection(indices)
        if not gone:
            return
        self._offered -= gone
        token = next(self._tickets)
        self.tell(("unable", sorted(gone), token))
        while not self._over.is_set():
            self._news.clear()
            is_settled = token in self._settled or self._orphaned
            if is_settled and not gone & self._running.keys():
                return
            self._news.wait(TICK)

    def drain(self) -> None:
        """Run no more for others, and bring what runs to its end."""
        self.withdraw(list(self._offered))

    def result(self, index: int, job: Job, meanwhile: Callable[[], None] = lambda: None) -> Any:
        """The result of a case, wherever it has run; here, with this job, if nowhere. NoResultError where none comes.

        Asked again, it is run again.
        """
        self._jobs[index] = (job, contextvars.copy_context())
        future = self._results[index] = Future()
        self.tell(("want", index))
        try:
            meanwhile()
            return wait(future)
        except NoResultError:
            raise
        except BaseException:
            self.tell(("abandon", index))
            raise
        finally:
            self._results.pop(index, None)
            self._jobs.pop(index, None)
            self._offered.discard(index)

    def close(self) -> None:
        """Leave the hub. The loop cancels what runs."""
        self._over.set()
        self.tell(("leave",))
        self.tell = _to_nobody
        if self._watch is not None:
            self._watch.join()

    # ---- for the hub, on any thread

    def hear(self, message: Message) -> None:
        """An order of the hub. Never raises: it would end the thread of whoever carries it."""
        match message:
            case ("run", index, attempt):
                with self._changing:
                    self._running[index] = _Running(attempt)
                self._loop.call(self._begin, index, attempt)
            case ("cancel", index, attempt):
                self._loop.call(self._cancel, index, attempt)
            case ("settled", token):
                self._settled.add(token)
                self._news.set()
            case ("grant", ticket):
                self._loop.reach(self._granted, ticket, None)
            case ("refuse" | "lost" as kind, ticket, reason):
                error = NotRunError(reason) if kind == "refuse" else ModelError(reason)
                self._loop.reach(self._granted, ticket, error)
            case ("halt", reason):
                self.halted = reason
            case ("closed", key, reason):
                self.closed[key] = reason
            case ("result", index, result):
                self._settle(index, lambda future: future.set_result(result))
            case ("none", index, kind, reason):
                self._settle(index, lambda future: future.set_exception(NoResultError(kind, reason)))

    def orphaned(self) -> None:
        """The hub is gone: cancel what runs, and answer whoever waits."""
        self._orphaned = True
        self._news.set()
        for index, running in list(self._running.items()):
            self._loop.call(self._cancel, index, running.attempt)
        for index in list(self._results):
            self.hear(("none", index, "stopped", "the process that leads the session is gone"))

    def _settle(self, index: int, settle: Callable[[Future[Any]], None]) -> None:
        future = self._results.pop(index, None)
        if future is not None and future.set_running_or_notify_cancel():
            settle(future)

    # ---- on the loop

    async def enter(self, account: str) -> int:
        """Wait for leave to send a request; the ticket goes back with ``leave``. NotRunError where none is given, and
        ModelError where nobody would answer.
        """
        ticket = next(self._tickets)
        granted = self._grants[ticket] = get_running_loop().create_future()
        self.tell(("ask", account, ticket))
        try:
            await granted
        except asyncio.CancelledError:
            self.leave(ticket, RequestOutcome("unsent"))
            raise
        finally:
            self._grants.pop(ticket, None)
        return ticket

    def leave(self, ticket: int, answer: RequestOutcome) -> None:
        """A request is over."""
        self.tell(("back", ticket, tuple(answer)))

    def fail(self, account: str, kind: str, message: str) -> None:
        """Report a failure that no retry overcame."""
        self.tell(("outage", account, kind, message))

    def _granted(self, ticket: int, refusal: NotRunError | ModelError | None) -> None:
        future = self._grants.pop(ticket, None)
        if future is not None and not future.done():
            if refusal is None:
                future.set_result(None)
            else:
                future.set_exception(refusal)

    def _begin(self, index: int, attempt: int) -> None:
        running, found = self._running.get(index), self._jobs.get(index)
        if running is None or running.attempt != attempt:
            return
        if found is None:  # withdrawn while the order was on its way
            self._ended(index, attempt, ("dropped", index, attempt))
            return
        job, context = found
        running.task = get_running_loop().create_task(
            self._run(index, running, job), name=f"toolemu-{index}", context=context.copy()
        )

    async def _run(self, index: int, running: _Running, job: Job) -> None:
        running.clock = case_timer.begin(lambda held: self.tell(("held" if held else "freed", index, running.attempt)))
        message: Message
        try:
            failed, keep = await job()
            self.tell(("made", index, running.attempt, failed))
            message = ("done", index, running.attempt, failed, await keep())
        except asyncio.CancelledError:
            message = ("dropped", index, running.attempt)
        except NotReadyError:
            message = ("declined", index, running.attempt)
        except BaseException as error:
            message = ("done", index, running.attempt, True, self._trouble(error))
        self._ended(index, running.attempt, message)

    def _cancel(self, index: int, attempt: int) -> None:
        running = self._running.get(index)
        if running is not None and running.attempt == attempt:
            if running.task is not None:
                running.task.cancel()
            if running.clock is None:  # a task that is cancelled before its first step never takes it, and tells nobody
                self._ended(index, attempt, ("dropped", index, attempt))

    def _ended(self, index: int, attempt: int, message: Message) -> None:
        running = self._running.get(index)
        if running is not None and running.attempt == attempt:
            # Told first: whoever waits until nothing runs is about to leave the hub, and must not leave before this.
            self.tell(message)
            with self._changing:  # the hub may have ordered another attempt meanwhile
                if self._running.get(index) is running:
                    del self._running[index]
            self._news.set()

    # ---- the watch, on its own thread

    def _keep_watch(self) -> None:
        warned = False
        while not self._over.wait(TICK):
            with contextlib.suppress(Exception):  # the process is ending
                silent = self._loop.unanswered()
                if silent > _BLOCKED and not warned and (place := self._loop.place()):
                    warned = True
                    self.tell(("notice", _blocks(place)))
                self._end_stuck(silent)

    def _end_stuck(self, silent: float) -> None:
        if self._loop.is_dead:
            self._end_all(_DEAD)
        elif silent > self._patience:
            self._end_all(_overdue(self._patience))
        else:
            for index, running in list(self._running.items()):
                if running.clock is not None and running.clock.seconds > self._patience:
                    self._give_up(index, running, _overdue(self._patience))

    def _end_all(self, reason: str) -> None:
        if self._offered:
            self.tell(("unable", sorted(self._offered), next(self._tickets)))
            self._offered.clear()
        for index, running in list(self._running.items()):
            self._give_up(index, running, reason)

    def _give_up(self, index: int, running: _Running, reason: str) -> None:
        trouble = self._trouble(UsageError(reason))
        self._ended(index, running.attempt, ("done", index, running.attempt, True, trouble))


def _to_nobody(message: Message) -> None:
    del message


def _overdue(patience: float) -> str:
    return (
        f"a case has not ended after {patience:g} s: its agent blocks the event loop (a blocking call in an async "
        "function; use a plain 'def', which runs in a thread) or ignores that it was cancelled"
    )


def _blocks(place: str) -> str:
    return (
        f"the event loop was blocked for over {_BLOCKED:g} s at {place}; meanwhile no case in this process gets on. "
        "Declare that agent with a plain 'def', which runs in a thread, or await what it waits for"
    )
