"""What a session may still spend: ask leave before a request, report what it used.

Requests in flight when it is spent go on to their end, as they are paid for; no other is sent.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from pytest_toolemu.errors import NotRunError
from pytest_toolemu.formats.usd import usd_text


class BudgetGuard(Protocol):
    """What a model asks before a request, and tells after it; a Budget, or what stands for one in another process."""

    usd: float | None

    def ask(self) -> None:
        """NotRunError when no more may be spent."""
        ...

    def report(self, tokens: int, usd: float | None, *, guessed: bool = False) -> None:
        """A request has used this; ``usd`` is None where no price is known."""
        ...


class Budget:
    """Bounds of a session; None where there is none. ``until`` is a time of ``clock``, ``seconds`` how it is told.

    ``guessed`` counts the requests that did not say what they used; they are in the sums by their length. ``unpriced``
    counts those whose price nobody knows; they are not in the sum of USD.
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
        self.guessed = self.unpriced = 0

    def ask(self) -> None:
        """Leave for one request, or for a case to begin; NotRunError says which bound was reached."""
        if reason := self.reached:
            raise NotRunError(reason)

    def report(self, tokens: int, usd: float | None, *, guessed: bool = False) -> None:
        """A request has used this; ``usd`` is None where no price is known."""
        with self._lock:
            self.spent_tokens += tokens
            self.spent_usd += usd or 0.0
            self.unpriced += usd is None
            self.guessed += guessed

    @property
    def spent_text(self) -> str:
        """What was spent so far, as far as prices are known."""
        if not self.unpriced:
            return f"{usd_text(self.spent_usd)} USD"
        return f"over {usd_text(self.spent_usd)} USD" if self.spent_usd else "cost unknown"

    @property
    def reached(self) -> str:
        """Which bound was reached, with the option that moves it; empty while none was."""
        if self.usd is not None and self.spent_usd >= self.usd:
            return (
                f"the budget of {usd_text(self.usd)} USD is spent ({usd_text(self.spent_usd)} USD"
                f"{self._guesses}); raise --toolemu-budget-usd, or run fewer cases with --toolemu-sample"
            )
        if self.tokens is not None and self.spent_tokens >= self.tokens:
            return (
                f"the budget of {self.tokens:,} tokens is spent ({self.spent_tokens:,}{self._guesses}); "
                "raise --toolemu-budget-tokens, or run fewer cases with --toolemu-sample"
            )
        if self.until is not None and self._clock() >= self.until:
            return f"the deadline of {self.seconds:g} s has passed; raise --toolemu-deadline"
        return ""

    @property
    def _guesses(self) -> str:
        return f", {self.guessed} requests of unknown usage counted by their length" if self.guessed else ""
