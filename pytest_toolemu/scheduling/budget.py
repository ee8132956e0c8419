"""What a session may still spend, in USD, tokens, and time.

When it is spent, no more requests are sent. Requests in flight are completed, as they are paid for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from pytest_toolemu.errors import NotRunError
from pytest_toolemu.formats.text import counted, usd_text


class BudgetGuard(Protocol):
    """What a model checks before a request and reports to after it: a Budget, or its proxy in another process."""

    usd: float | None

    def check(self) -> None:
        """Raise NotRunError if nothing more may be spent."""
        ...

    def report(self, tokens: int, usd: float | None, *, estimated: bool = False) -> None:
        """Count what a request has used; ``usd`` is None if its price is unknown."""
        ...


class Budget:
    """The limits of a session, None for no limit, and what it has used.

    ``until`` is the deadline as a time of ``clock``; ``seconds`` is the same limit as the user has set it, for
    messages. ``estimated`` counts requests whose response reported no usage; their usage is estimated from the length
    of their text. ``unpriced`` counts requests without a known price; they are missing in ``spent_usd``.
    """

    def __init__(
        self,
        usd: float | None = None,
        tokens: int | None = None,
        seconds: float | None = None,
        until: float | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.usd, self.tokens, self.seconds, self.until = usd, tokens, seconds, until
        self._clock = clock
        self._lock = threading.Lock()
        self.spent_usd = 0.0
        self.spent_tokens = 0
        self.estimated = self.unpriced = 0
        self._held_tokens = 0
        self._held_usd = 0.0

    def check(self) -> None:
        """Raise NotRunError if a limit is reached; its text names the limit and the option that raises it."""
        if reason := self.reached:
            raise NotRunError(reason)

    def report(self, tokens: int, usd: float | None, *, estimated: bool = False) -> None:
        """Count what a request has used; ``usd`` is None if its price is unknown."""
        with self._lock:
            self.spent_tokens += tokens
            self.spent_usd += usd or 0.0
            self.unpriced += usd is None
            self.estimated += estimated

    def covers(self, tokens: int, usd: float | None) -> bool:
        """Return whether the limits cover another request in addition to what is spent and held."""
        with self._lock:
            tokens += self.spent_tokens + self._held_tokens
            usd = (usd or 0.0) + self.spent_usd + self._held_usd
        return (self.tokens is None or tokens <= self.tokens) and (self.usd is None or usd <= self.usd)

    def hold(self, tokens: int, usd: float | None) -> None:
        """Set a part of the limits aside for a request whose reply comes much later; negative values give it back."""
        with self._lock:
            self._held_tokens += tokens
            self._held_usd += usd or 0.0

    @property
    def too_small(self) -> str:
        """Why no further request is covered, with the option that raises the limit."""
        spent = f"{self.spent_tokens:,} tokens, {self.spent_text}"
        limit, option = f"{self.tokens or 0:,} tokens", "tokens"
        if self.tokens is None:
            limit, option = f"{usd_text(self.usd or 0.0)} USD", "usd"
        return (
            f"the budget of {limit} does not cover the next request (used: {spent}; in a batch, a request is sent only "
            f"if the budget covers its estimated cost); raise --toolemu-budget-{option}"
        )

    @property
    def spent_text(self) -> str:
        """The amount spent so far, as far as prices are known."""
        if not self.unpriced:
            return f"{usd_text(self.spent_usd)} USD"
        return f"over {usd_text(self.spent_usd)} USD" if self.spent_usd else "cost unknown"

    @property
    def reached(self) -> str:
        """Which limit is reached, with the option that raises it; empty if none is."""
        if self.usd is not None and self.spent_usd >= self.usd:
            return (
                f"the budget of {usd_text(self.usd)} USD is spent ({usd_text(self.spent_usd)} USD"
                f"{self._estimates}); raise --toolemu-budget-usd, or run fewer cases with --toolemu-sample"
            )
        if self.tokens is not None and self.spent_tokens >= self.tokens:
            return (
                f"the budget of {self.tokens:,} tokens is spent ({self.spent_tokens:,}{self._estimates}); "
                "raise --toolemu-budget-tokens, or run fewer cases with --toolemu-sample"
            )
        if self.until is not None and self._clock() >= self.until:
            return f"the deadline of {self.seconds:g} s has passed; raise --toolemu-deadline"
        return ""

    @property
    def _estimates(self) -> str:
        return (
            f", {counted(self.estimated, 'request')} without usage estimated from the text's length"
            if self.estimated
            else ""
        )
