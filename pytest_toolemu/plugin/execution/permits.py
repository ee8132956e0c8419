"""The rate limiter and the budget of a session as its models use them; both are shared by all processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pytest_toolemu.errors import NotRunError
from pytest_toolemu.scheduling.coordinator_messages import UsageReported

if TYPE_CHECKING:
    from pytest_toolemu.scheduling.adaptive_limit import RequestOutcome
    from pytest_toolemu.scheduling.worker import WorkerScheduler


class Permits:
    """Implements ``RateLimiter`` and ``BudgetGuard`` with messages to the coordinator.

    ``scheduler`` returns the scheduler of this process. Models are opened before it exists, but only asked afterwards.
    """

    def __init__(self, scheduler: Callable[[], WorkerScheduler], budget_usd: float | None) -> None:
        self._scheduler = scheduler
        self.usd = budget_usd

    async def acquire(self, key: str) -> int:
        """Wait for a permit, and return its ticket. Raise NotRunError if none will be granted."""
        return await self._scheduler().permits.acquire(key)

    def release(self, ticket: int, outcome: RequestOutcome) -> None:
        """Report how a request ended, which frees its permit."""
        self._scheduler().permits.release(ticket, outcome)

    def report_failure(self, key: str, kind: str, message: str) -> None:
        """Report a failure that no retry overcame."""
        self._scheduler().permits.report_failure(key, kind, message)

    def check(self) -> None:
        """Raise NotRunError once the coordinator has halted requests."""
        if reason := self._scheduler().permits.halted:
            raise NotRunError(reason)

    def report(self, tokens: int, usd: float | None, *, estimated: bool = False) -> None:
        """Report what a request has used."""
        self._scheduler().send(UsageReported(tokens, usd, estimated))
