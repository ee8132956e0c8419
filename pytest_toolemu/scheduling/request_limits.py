"""The requests of a session: one throttle for each provider, key and model, and what all of them have used.

Pure, as the hub is, which it belongs to.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable
from typing import Any

from pytest_toolemu.scheduling.adaptive_limit import AdaptiveLimit, RequestOutcome
from pytest_toolemu.scheduling.circuit_breaker import Breaker

Ticket = int
Order = tuple[str, tuple[Any, ...]]
Who = tuple[str, Ticket]


class RequestLimits:
    """``ask`` and ``back`` of all workers. ``account`` is a text that names provider, key and model."""

    def __init__(self, start: int) -> None:
        self.throttles: dict[str, AdaptiveLimit[Who]] = {}
        self.answered = self.tokens = 0
        self.breaker = Breaker()
        self._start = start
        self._lost: dict[str, str] = {}
        self._open: defaultdict[str, dict[Ticket, str]] = defaultdict(dict)

    def ask(self, worker: str, account: str, ticket: Ticket, now: float) -> list[Order]:
        """A worker wants to send a request; it may when the ticket is granted."""
        if reason := self._lost.get(account):
            return [(worker, ("lost", ticket, reason))]
        if reason := self.breaker.open.get(account):
            return [(worker, ("refuse", ticket, reason))]
        throttle = self.throttles.setdefault(account, AdaptiveLimit(self._start))
        self._open[worker][ticket] = account
        throttle.ask((worker, ticket))
        return _grants(throttle, now)

    def back(self, worker: str, ticket: Ticket, answer: RequestOutcome, now: float) -> list[Order]:
        """A request is over, or will not be made."""
        account = self._open[worker].pop(ticket, None)
        if account is None:
            return []
        if answer.status == "ok":
            self.breaker.succeeded(account)
            self.answered += 1
            self.tokens += answer.tokens
        throttle = self.throttles[account]
        throttle.back((worker, ticket), answer, now)
        return _grants(throttle, now)

    def lose(self, accounts: Iterable[str], reason: str) -> list[Order]:
        """Nobody answers these any more; who waits for leave to ask them is told so, and who asks from now on."""
        self._lost |= dict.fromkeys(accounts, reason)
        return [(worker, ("lost", ticket, reason)) for worker, ticket in self._drop(self._lost)]

    def fail(self, account: str, kind: str, message: str) -> list[Order]:
        """Count a failure that no retry overcame. Once there are too many, refuse requests that wait to be sent."""
        if not self.breaker.failed(account, kind, message):
            return []
        reason = self.breaker.open[account]
        return [(worker, ("refuse", ticket, reason)) for worker, ticket in self._drop([account])]

    def _drop(self, accounts: Container[str]) -> list[Who]:
        """Forget all requests to these, sent or not."""
        dropped = []
        for worker, tickets in self._open.items():
            for ticket in [ticket for ticket, account in tickets.items() if account in accounts]:
                self.throttles[tickets.pop(ticket)].forget((worker, ticket))
                dropped.append((worker, ticket))
        return dropped

    def leave(self, worker: str) -> None:
        """A worker is gone, and its requests with it."""
        for ticket, account in self._open.pop(worker, {}).items():
            self.throttles[account].forget((worker, ticket))

    def tick(self, now: float) -> list[Order]:
        """What may be sent now because time has passed."""
        return [order for throttle in self.throttles.values() for order in _grants(throttle, now)]

    def due(self, now: float) -> float | None:
        """When to ``tick`` at the latest."""
        return min((due for t in self.throttles.values() if (due := t.due(now)) is not None), default=None)


def _grants(throttle: AdaptiveLimit[Who], now: float) -> list[Order]:
    return [(worker, ("grant", ticket)) for worker, ticket in throttle.granted(now)]
