"""Which request may be sent: the part of the coordinator that grants permits, for the requests of all workers.

There is one adaptive limit per rate-limit key, one circuit breaker, and one budget for the session. Like the rest of
the coordinator this is a pure state machine: it knows no clock, thread, or process, and returns orders.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Final

from pytest_toolemu.scheduling import coordinator_messages as messages
from pytest_toolemu.scheduling.adaptive_limit import AdaptiveLimit, RequestOutcome
from pytest_toolemu.scheduling.budget import Budget
from pytest_toolemu.scheduling.coordinator_messages import Order

Request = tuple[str, int]
"""A worker and its ticket; tickets are unique within a worker only."""


class RequestLimits:
    """Grants and refuses permits. ``start`` is the number of concurrent requests that each limit starts with."""

    def __init__(self, start: int, budget: Budget) -> None:
        self.budget = budget
        self.limits: dict[str, AdaptiveLimit[Request]] = {}
        self.breaker = CircuitBreaker()
        self.answered = self.tokens = 0
        self._start = start
        # The key of every request that is waiting or in flight, by worker and ticket.
        self._open: dict[str, dict[int, str]] = {}
        self._lost_keys: dict[str, str] = {}
        self._stopped = self._halted = ""

    def add_worker(self, worker: str) -> None:
        """Include a worker in messages to all workers."""
        self._open[worker] = {}

    def remove_worker(self, worker: str) -> None:
        """Forget a worker that has ended, with its requests."""
        # Nobody will release these: they would count as in flight, and lower the limit, for the rest of the session.
        for ticket, key in self._open.pop(worker, {}).items():
            self.limits[key].forget((worker, ticket))

    def receive(self, worker: str, message: messages.RequestMessage, now: float) -> list[Order]:
        """Process a message about a request, and return the orders that follow from it."""
        match message:
            case messages.PermitRequested(key, ticket):
                return self._acquire(worker, key, ticket, now)
            case messages.PermitReleased(ticket, outcome):
                return self._release(worker, ticket, outcome, now)
            case messages.UsageReported(tokens, usd, estimated):
                self.budget.report(tokens, usd, estimated=estimated)
                return self.check_budget()
            case messages.SessionHalted(reason):
                return self._halt(reason)
            case messages.ProviderFailed():
                return self._count_failure(message)
            case messages.ProviderSucceeded(key, for_good):
                self.breaker.record_success(key, for_good=for_good)
        return []

    def restrictions(self, worker: str) -> list[Order]:
        """Return the orders that tell a new worker what may no longer be sent."""
        halted = [Order(worker, messages.RequestsHalted(self._halted))] if self._halted else []
        open_breakers = [
            Order(worker, messages.ProviderClosed(key, reason)) for key, reason in self.breaker.open.items()
        ]
        return halted + open_breakers

    def stop(self, reason: str) -> None:
        """Refuse all further requests, as the session ends."""
        self._stopped = reason

    def check_budget(self) -> list[Order]:
        """Halt requests once the budget is spent.

        Cases still start: one may be resumed from an earlier session, or need no model.
        """
        reason = self.budget.reached
        return self._halt(reason) if reason else []

    def lose(self, keys: Iterable[str], reason: str) -> list[Order]:
        """Refuse requests to a server that has died: those that wait, those in flight, and all later ones.

        The cases that sent them break, and their runs record the whole reason. Cases that have not started are not run,
        as with any provider that is closed.
        """
        lost_keys = dict.fromkeys(keys, reason)
        self._lost_keys |= lost_keys
        brief = f"{reason.splitlines()[0].removesuffix('; its log says:')}, so no more cases that need it are started"
        self.breaker.open |= dict.fromkeys(lost_keys, brief)
        dropped = [
            Order(worker, messages.PermitRefused(ticket, reason, is_lost=True))
            for worker, ticket in self._drop(self._lost_keys)
        ]
        return dropped + [
            Order(worker, messages.ProviderClosed(key, brief)) for worker in self._open for key in lost_keys
        ]

    def tick(self, now: float) -> list[Order]:
        """Grant the permits that have become available with time."""
        return [order for limit in self.limits.values() for order in _grants(limit, now)]

    def next_tick(self, now: float) -> float | None:
        """Return the time by which ``tick`` should be called; None if only a message can change anything."""
        times = (limit.next_grant(now) for limit in self.limits.values())
        return min((time for time in times if time is not None), default=None)

    def _acquire(self, worker: str, key: str, ticket: int, now: float) -> list[Order]:
        if reply := self._refusal(key, ticket):
            return [Order(worker, reply)]
        limit = self.limits.setdefault(key, AdaptiveLimit(self._start))
        self._open[worker][ticket] = key
        limit.enqueue((worker, ticket))
        return _grants(limit, now)

    def _refusal(self, key: str, ticket: int) -> messages.PermitReply | None:
        # What concerns the whole session comes before what concerns one provider, so that the cause is named.
        ended, lost = self._stopped or self._halted, self._lost_keys.get(key, "")
        reason = ended or lost or self.breaker.open.get(key, "")
        return messages.PermitRefused(ticket, reason, is_lost=bool(lost and not ended)) if reason else None

    def _release(self, worker: str, ticket: int, outcome: RequestOutcome, now: float) -> list[Order]:
        # It is absent if the server was lost, or the breaker opened, while the request was in flight.
        key = self._open[worker].pop(ticket, None)
        if key is None:
            return []
        if outcome.status == "ok":
            self.breaker.record_success(key)
            self.answered += 1
            self.tokens += outcome.tokens
        limit = self.limits[key]
        limit.release((worker, ticket), outcome, now)
        return _grants(limit, now)

    def _count_failure(self, failure: messages.ProviderFailed) -> list[Order]:
        """Count a failure; if it opens the breaker, refuse waiting requests and inform all workers."""
        key = failure.key
        if not self.breaker.record_failure(key, failure.kind, failure.message, failure.subject, failure.limit or LIMIT):
            return []
        reason = self.breaker.open[key]
        refused = [Order(worker, messages.PermitRefused(ticket, reason)) for worker, ticket in self._drop([key])]
        return refused + [Order(worker, messages.ProviderClosed(key, reason)) for worker in self._open]

    def _halt(self, reason: str) -> list[Order]:
        """Send no more requests, and inform all workers. Only the first reason counts."""
        if self._halted:
            return []
        self._halted = reason
        return [Order(worker, messages.RequestsHalted(reason)) for worker in self._open]

    def _drop(self, keys: Container[str]) -> list[Request]:
        """Forget and return all requests to these keys, waiting or in flight."""
        dropped = []
        for worker, tickets in self._open.items():
            for ticket in [ticket for ticket, key in tickets.items() if key in keys]:
                self.limits[tickets.pop(ticket)].forget((worker, ticket))
                dropped.append((worker, ticket))
        return dropped


def _grants(limit: AdaptiveLimit[Request], now: float) -> list[Order]:
    return [Order(worker, messages.PermitGranted(ticket)) for worker, ticket in limit.grant(now)]


LIMIT: Final = 5
"""Equal failures in a row, without a success in between, after which a session stops using a provider.

Only failures that no retry overcame are counted, so one minute of overload does not count several times.
"""


class CircuitBreaker:
    """Counts failures per key: a rate-limit key, an agent that calls a provider with its own client, or its runs."""

    def __init__(self) -> None:
        # The keys that may not be used any more, each with the reason. A key never leaves this state.
        self.open: dict[str, str] = {}
        self._failures: dict[str, tuple[str, int]] = {}
        self._proven: set[str] = set()

    def record_failure(self, key: str, kind: str, reason: str, subject: str = "a provider", limit: int = LIMIT) -> bool:
        """Count a failure, and return whether it is the one that opens the breaker, because it reaches the limit.

        Failures of one ``kind`` count as equal. ``subject`` is what failed, in words.
        """
        previous_kind, count = self._failures.get(key, (kind, 0))
        count = count + 1 if previous_kind == kind else 1
        self._failures[key] = kind, count
        if count < limit or key in self.open or key in self._proven:
            return False
        self.open[key] = (
            f"{subject} failed {limit} times in a row in the same way, with no success in between, so no more "
            f"cases that need it are started: {reason}"
        )
        return True

    def record_success(self, key: str, *, for_good: bool = False) -> None:
        """Restart the count, or end it ``for_good``; a breaker that is open stays open."""
        self._failures.pop(key, None)
        self._proven |= {key} if for_good else set()
