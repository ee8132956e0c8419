"""Which case runs where and when, and which request may be sent: one hub for a session, however many processes it has.

A state machine without threads, clocks or processes: a message of a worker goes in, orders to workers come out. A
*worker* is a process that runs cases. A case is known by its index among the session's items, which is the same in all
workers. Times are seconds of any clock that only goes forward.

    worker says                           is ordered
    plan(total)                           run(index, attempt)      cancel(index, attempt)
    able(indices)                         result(index, result)    none(index, kind, reason)
    unable(indices, token)                settled(token)           (no order to run them comes after it)
    want(index)    abandon(index)         grant(ticket)            refuse(ticket, reason)
    held(index, attempt)                  (a provider makes it wait, longer than usual)
    freed(index, attempt)                 (it goes on)
    made(index, attempt, failed)          (it asks nobody any more, and is being kept)
    done(index, attempt, failed, result)
    dropped(index, attempt)               (it was cancelled)
    declined(index, attempt)              (it has to wait its turn)
    ask(account, ticket)  back(ticket, answer)      lost(ticket, reason)
    spent(tokens, usd, guessed)           halt(reason)
    unwritable(reason)                    (records cannot be written any more)
    outage(key, kind, message)            closed(key, reason)
    fine(key)                             (``key``: an account, or an agent that asks a provider by itself)
    notice(text)          leave()
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from pytest_toolemu.scheduling.adaptive_limit import RequestOutcome
from pytest_toolemu.scheduling.budget import Budget
from pytest_toolemu.scheduling.case_queue import CaseQueue, WorkerState
from pytest_toolemu.scheduling.request_limits import RequestLimits

Message = tuple[Any, ...]
"""A name and arguments, all of them of builtin types: it may travel between processes."""

Order = tuple[str, Message]
"""A message, and the worker that it is for."""

# How often a case may take its worker down; and how long nothing may happen, in seconds, while an item waits for a
# case that cannot matter any more.
_CRASHES: Final = 2
_STANDSTILL: Final = 1.0


class Coordinator:
    """Starts cases in the order of their items, each in a worker that is able to, while fewer than ``concurrency`` run.

    A case that is held up does not count as long as it is, of at most half as many: so up to half as many again run.
    One that is made does not count while its record is written; with those that run, there are at most twice as many.

    ``maxfail`` failures end the session (0: never): once so many are known, cases after them are cancelled, and not
    started.
    """

    def __init__(self, concurrency: int, maxfail: int = 0, budget: Budget | None = None) -> None:
        # Both judges of a case are asked at the same time.
        self.requests = RequestLimits(2 * concurrency)
        self.budget = budget or Budget()
        self.total = self.finished = self.running = self.held = self.unkept = 0
        self.taken_over = 0
        """Cases whose run an earlier session had made."""
        self._expected: set[int] = set()
        self.notices: list[str] = []
        self.cutoff: int | None = None
        self._begun = False
        self._concurrency = concurrency
        self._maxfail = maxfail
        self._failed: set[int] = set()
        self._will_fail: set[int] = set()  # made, and not yet kept
        self._roster = CaseQueue(self._matters)
        self._case, self._workers = self._roster.case, self._roster.workers
        self._stopped = self._halted = ""
        self._orders: list[Order] = []
        self._last_heard = 0.0

    # ---- what happens

    def begin(self) -> list[Order]:
        """All is ready: cases may start. What workers say before is kept."""
        self._begun = True
        return self._start_more()

    def expect(self, indices: Iterable[int]) -> list[Order]:
        """Earlier sessions have runs of these cases, which will probably be taken over."""
        self._expected.update(indices)
        return []

    @property
    def to_make(self) -> int:
        """Count the cases that are not finished and have to be run, as far as is known."""
        return self.total - self.finished - len(self._expected)

    def join(self, worker: str) -> None:
        """A process is there that will run cases."""
        self._workers[worker] = WorkerState()

    def leave(self, worker: str) -> list[Order]:
        """A process is gone. What it ran runs again elsewhere, once; the item it died with needs no result."""
        gone = self._workers.pop(worker, None)
        if gone is None:
            return []
        self.requests.leave(worker)
        for index, case in self._roster.cases.items():
            if worker in case.waiting:
                self._give_up(worker, index)
        for index in sorted(gone.running):
            self._lost(index)
        return self._start_more()

    def hear(self, worker: str, message: Message, now: float) -> list[Order]:
        """What a worker says; nothing from one that has left."""
        if worker not in self._workers:
            return []
        self._last_heard = now
        self._check_budget()
        if message[0] in ("ask", "back", "spent", "unwritable", "outage", "fine"):
            self._hear_of_request(worker, message, now)
            return self._flush()
        if message[0] == "leave":
            return self.leave(worker)
        if message[0] in ("held", "freed", "made", "done", "dropped", "declined"):
            self._hear_of_run(worker, message)
        else:
            self._hear_of_item(worker, message)
        return self._start_more()

    def tick(self, now: float) -> list[Order]:
        """Time has passed."""
        if self.cutoff is not None and not self.running + self.unkept and now - self._last_heard > _STANDSTILL:
            # The failure that ends the session may stand behind these in the queue of their worker.
            for index, case in self._roster.cases.items():
                if case.state == "free" and case.waiting and index > self.cutoff:
                    self._answer(index, "cut", "enough cases before it have failed to end the session")
        self._check_budget()
        return self._flush() + self.requests.tick(now)

    def due(self, now: float) -> float | None:
        """When ``tick`` should be called at the latest."""
        return self.requests.due(now)

    def stop(self, reason: str) -> list[Order]:
        """The session ends: start nothing more, cancel what runs, refuse requests, and answer so whoever waits."""
        if not self._stopped:
            self._stopped = reason
            for index, case in self._roster.cases.items():
                if case.is_under_way:
                    self._cancel(index)
                if case.state in ("free", "running"):
                    self._answer(index, "stopped", reason)
        return self._flush()

    def lose(self, accounts: Iterable[str], reason: str) -> list[Order]:
        """A server has died: the cases that ask it are told why, and the others go on."""
        return self.requests.lose(accounts, reason)

    def reported(self, index: int, failed: bool) -> list[Order]:
        """pytest has reported an item, which may be a test that is no case."""
        if failed:
            self._failed.add(index)
        else:
            self._failed.discard(index)
        self._cut()
        return self._start_more()

    def running_on(self, worker: str) -> list[int]:
        """The cases a worker runs now."""
        return sorted(self._workers[worker].running) if worker in self._workers else []

    # ---- messages of workers

    def _hear_of_request(self, worker: str, message: Message, now: float) -> None:
        match message:
            case ("ask", _, ticket) if refusal := self._stopped or self._halted:
                self._orders.append((worker, ("refuse", ticket, refusal)))
            case ("ask", account, ticket):
                self._orders += self.requests.ask(worker, account, ticket, now)
            case ("back", ticket, answer):
                self._orders += self.requests.back(worker, ticket, RequestOutcome(*answer), now)
            case ("spent", tokens, usd, guessed):
                self.budget.report(tokens, usd, guessed=guessed)
                self._check_budget()
            case ("unwritable", reason):
                self._halt(reason)
            case ("outage", key, kind, text):
                self._count_outage(key, kind, text)
            case ("fine", key):
                self.requests.breaker.succeeded(key)

    def _count_outage(self, key: str, kind: str, text: str) -> None:
        """Count a failure of a provider, and tell all workers of the one after which it is not asked any more."""
        known = self.requests.breaker.open.get(key)
        self._orders += self.requests.fail(key, kind, text)
        if known is None and (reason := self.requests.breaker.open.get(key)):
            self._orders += [(worker, ("closed", key, reason)) for worker in self._workers]

    def _hear_of_item(self, worker: str, message: Message) -> None:
        match message:
            case ("plan", total):
                self.total = max(self.total, total)
                if self._halted:
                    self._orders.append((worker, ("halt", self._halted)))
                self._orders += [(worker, ("closed", *found)) for found in self.requests.breaker.open.items()]
            case ("able", indices):
                self._roster.able(worker, indices)
            case ("unable", indices, token):
                self._workers[worker].able.difference_update(indices)
                self._orders.append((worker, ("settled", token)))
            case ("want", index):
                self._want(worker, index)
            case ("abandon", index):
                self._give_up(worker, index)
            case ("notice", text) if text not in self.notices:
                self.notices.append(text)

    def _hear_of_run(self, worker: str, message: Message) -> None:
        """A case does not get on, or has ended, or all but; nothing of an attempt that was given up before."""
        name, index, attempt, *rest = message
        case = self._case(index)
        if case.state != "running" or (case.runner, case.attempt) != (worker, attempt):
            return
        if name == "made":
            self._made(index, *rest)
        elif name in ("held", "freed"):
            self._hold(index, name == "held" and not case.made)
        else:
            self._ended(worker, index, name, *rest)

    def _ended(self, worker: str, index: int, name: str, failed: bool = False, result: Any = None) -> None:
        case = self._case(index)
        self._workers[worker].running.discard(index)
        self._vacate(index)
        if name == "done" and not case.unwanted:
            self._done(index, failed, result)
        elif name == "declined":
            for other in self._workers.values():
                other.able.discard(index)
            self._drop(index) if case.unwanted else self._roster.free(index)
        elif case.unwanted:
            self._drop(index)
        else:
            self._finish(index, ("none", index, "broken", "its run was cancelled, by its agent or an emulator"))

    def _want(self, worker: str, index: int) -> None:
        case = self._case(index)
        if case.state == "over":  # a rerun
            case.state, case.crashes = "free", 0
            self.finished -= case.finished
            case.finished = False
        case.waiting.add(worker)
        if case.state == "done":
            self._deliver(index)
        elif self._stopped:
            self._answer(index, "stopped", self._stopped)
        elif case.state == "free":
            self._roster.want(worker, index)

    def _give_up(self, worker: str, index: int) -> None:
        """An item does not wait any more: it was interrupted, or died."""
        case = self._case(index)
        case.waiting.discard(worker)
        if case.waiting:
            return
        if case.is_under_way:
            self._cancel(index)
        elif case.state == "free":
            case.state = "over"

    def _made(self, index: int, failed: bool) -> None:
        case = self._case(index)
        if case.is_under_way:
            self._vacate(index)
            case.made = True
            self.unkept += 1
            if failed:
                self._will_fail.add(index)
                self._cut()

    def _hold(self, index: int, held: bool) -> None:
        case = self._case(index)
        self.held += held - case.held
        case.held = held

    def _vacate(self, index: int) -> None:
        """A case's slot is free."""
        case = self._case(index)
        self._hold(index, False)
        if case.made:
            self.unkept -= 1
        else:
            self.running -= 1
        case.made = False
        if index in self._will_fail:
            self._will_fail.remove(index)
            self._cut()

    def _done(self, index: int, failed: bool, result: Any) -> None:
        if isinstance(result, dict) and result.get("resumed"):
            self.taken_over += 1
        if failed:
            self._failed.add(index)
            self._cut()
        self._finish(index, ("result", index, result))

    # ---- decisions

    def _check_budget(self) -> None:
        """Once it is spent, no request is granted. Cases still start: one may be done already, or need no model."""
        if reason := self.budget.reached:
            self._halt(reason)

    def _halt(self, reason: str) -> None:
        """Grant no more requests, and tell all workers why; for the first reason only."""
        if not self._halted:
            self._halted = reason
            self._orders += [(worker, ("halt", reason)) for worker in self._workers]

    def _start_more(self) -> list[Order]:
        while self._begun and not self._stopped and self._has_room:
            pick = self._roster.next()
            if pick is None:
                break
            self._start(*pick)
        return self._flush()

    @property
    def _has_room(self) -> bool:
        taken = self.running - min(self.held, self._concurrency // 2)
        return taken < self._concurrency and self.running + self.unkept < 2 * self._concurrency

    def _flush(self) -> list[Order]:
        orders, self._orders = self._orders, []
        return orders

    def _start(self, worker: str, index: int) -> None:
        case = self._case(index)
        case.state, case.runner, case.attempt = "running", worker, case.attempt + 1
        case.unwanted = False
        self._workers[worker].running.add(index)
        self.running += 1
        self._orders.append((worker, ("run", index, case.attempt)))

    def _cancel(self, index: int) -> None:
        case = self._case(index)
        case.unwanted = True
        if case.runner in self._workers:
            self._orders.append((case.runner, ("cancel", index, case.attempt)))

    def _cut(self) -> None:
        """Find the last case that can matter; cancel what runs beyond it, let go what waits before it."""
        failed = sorted(self._failed | self._will_fail)
        self.cutoff = failed[self._maxfail - 1] if 0 < self._maxfail <= len(failed) else None
        for worker in self._workers.values():
            for index in worker.running:
                if not self._matters(index) and self._case(index).is_under_way:
                    self._cancel(index)

    def _lost(self, index: int) -> None:
        """A case whose worker died while it ran."""
        case = self._case(index)
        self._vacate(index)
        case.crashes += 1
        if case.unwanted:
            self._drop(index)
        elif case.crashes >= _CRASHES:
            reason = f"the worker process died while it ran this case, {_CRASHES} times; its agent ends the process"
            self._finish(index, ("none", index, "broken", reason))
        else:
            self._roster.free(index)

    def _drop(self, index: int) -> None:
        """A cancelled case has ended. It may be wanted again: by a rerun, or as what cut it off was no failure."""
        case = self._case(index)
        case.unwanted = False
        if not self._stopped and (case.waiting or not self._matters(index)):
            self._roster.free(index)
        else:
            case.state = "over"

    def _finish(self, index: int, outcome: Message) -> None:
        case = self._case(index)
        case.state, case.outcome = "done", outcome
        case.finished = True
        self.finished += 1
        self._expected.discard(index)
        self._deliver(index)

    def _deliver(self, index: int) -> None:
        """Hand the outcome to the items that wait, once: who asks again wants another run."""
        case = self._case(index)
        if case.waiting:
            self._orders += [(worker, case.outcome) for worker in sorted(case.waiting)]
            case.waiting.clear()
            case.state, case.outcome = "over", ()

    def _answer(self, index: int, kind: str, reason: str) -> None:
        """Tell whoever waits that there will be no result."""
        case = self._case(index)
        self._orders += [(worker, ("none", index, kind, reason)) for worker in sorted(case.waiting)]
        case.waiting.clear()

    def _matters(self, index: int) -> bool:
        return self.cutoff is None or index <= self.cutoff
