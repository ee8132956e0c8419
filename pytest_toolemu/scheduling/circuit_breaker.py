"""A circuit breaker for each provider: after enough equal failures in a row, nothing more is asked of it."""

from __future__ import annotations

from typing import Final

LIMIT: Final = 5
"""Equal failures in a row, with no success in between, that stop a session from asking a provider again.

Each is a failure that no retry overcame, so one overloaded minute does not count as several.
"""


class Breaker:
    """Counts failures by key: an account, or an agent that asks a provider by itself. Pure, as the hub is."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.open: dict[str, str] = {}
        """Keys that may not be asked any more, each with the reason."""
        self._limit = limit
        self._failures: dict[str, tuple[str, int]] = {}

    def failed(self, key: str, kind: str, message: str) -> bool:
        """Count a failure; True for the one that opens the breaker. Failures of one ``kind`` are equal."""
        former, count = self._failures.get(key, (kind, 0))
        count = count + 1 if former == kind else 1
        self._failures[key] = kind, count
        if count < self._limit or key in self.open:
            return False
        self.open[key] = (
            f"a provider failed {self._limit} times in a row in the same way and answered nothing in between, so no "
            f"more cases that need it are started: {message}"
        )
        return True

    def succeeded(self, key: str) -> None:
        """Start counting anew; what is open stays open."""
        self._failures.pop(key, None)
