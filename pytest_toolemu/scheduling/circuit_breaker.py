"""A circuit breaker per provider: after enough equal failures in a row, no more requests are sent to it."""

from __future__ import annotations

from typing import Final

LIMIT: Final = 5
"""Equal failures in a row, without a success in between, after which a session stops using a provider.

Only failures that no retry overcame are counted, so one minute of overload does not count several times.
"""


class CircuitBreaker:
    """Counts failures per key: a rate-limit key, or an agent that calls a provider with a client of its own."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.open: dict[str, str] = {}
        """The keys that may not be used any more, each with the reason. A key never leaves this state."""
        self._limit = limit
        self._failures: dict[str, tuple[str, int]] = {}

    def record_failure(self, key: str, kind: str, message: str, subject: str = "a provider") -> bool:
        """Count a failure, and return whether it is the one that opens the breaker.

        Failures of one ``kind`` count as equal. ``subject`` is what failed, in words.
        """
        previous_kind, count = self._failures.get(key, (kind, 0))
        count = count + 1 if previous_kind == kind else 1
        self._failures[key] = kind, count
        if count < self._limit or key in self.open:
            return False
        self.open[key] = (
            f"{subject} failed {self._limit} times in a row in the same way, with no success in between, so no more "
            f"cases that need it are started: {message}"
        )
        return True

    def record_success(self, key: str) -> None:
        """Restart the count; a breaker that is open stays open."""
        self._failures.pop(key, None)
