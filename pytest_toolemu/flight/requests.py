"""The requests of a session: one throttle for each provider, key and model, and what all of them have used.

Pure, as the hub is, which it belongs to.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from pytest_toolemu.flight.throttle import Answer, Throttle

Ticket = int
Order = tuple[str, tuple[Any, ...]]
Who = tuple[str, Ticket]


class Requests:
    """``ask`` and ``back`` of all workers. ``account`` is a text that names provider, key and model."""

    def __init__(self, start: int) -> None:
        self.throttles: dict[str, Throttle[Who]] = {}
        self.answered = self.tokens = 0
        self._start = start
        self._lost: dict[str, str] = {}
        self._open: defaultdict[str, dict[Ticket, str]] = defaultdict(dict)

    def ask(self, worker: str, account: str, ticket: Ticket, now: float) -> list[Order]:
        """A worker wants to send a request; it may when the ticket is granted."""
        if reason := self._lost.get(account):
            return [(worker, ("lost", ticket, reason))]
        throttle = self.throttles.setdefault(account, Throttle(self._start))
        self._open[worker][ticket] = account
        throttle.ask((worker, ticket))
        return _grants(throttle, now)

    def back(self, worker: str, ticket: Ticket, answer: Answer, now: float) -> list[Order]:
        """A request is over, or will not be made."""
        account = self._open[worker].pop(ticket, None)
        if account is None:
            return []
        if answer.status == "ok":
            self.answered += 1
            self.tokens += answer.tokens
        throttle = self.throttles[account]
        throttle.back((worker, ticket), answer, now)
        return _grants(throttle, now)

    def lose(self, accounts: Iterable[str], reason: str) -> list[Order]:
        """Nobody answers these any more; who waits for leave to ask them is told so, and who asks from now on."""
        self._lost |= dict.fromkeys(accounts, reason)
        orders: list[Order] = []
        for worker, tickets in self._open.items():
            for ticket in [ticket for ticket, account in tickets.items() if account in self._lost]:
                self.throttles[tickets.pop(ticket)].forget((worker, ticket))
                orders.append((worker, ("lost", ticket, reason)))
        return orders

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


def _grants(throttle: Throttle[Who], now: float) -> list[Order]:
    return [(worker, ("grant", ticket)) for worker, ticket in throttle.granted(now)]
