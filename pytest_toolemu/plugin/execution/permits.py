"""The rate limiter and the budget of a session as its models and agents use them; all processes share them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pytest_toolemu.errors import NotRunError
from pytest_toolemu.models.pricing import Prices, usd_for_budget
from pytest_toolemu.scheduling.coordinator_messages import UsageReported

if TYPE_CHECKING:
    from pytest_toolemu.core.messages import Usage
    from pytest_toolemu.scheduling.adaptive_limit import RequestOutcome
    from pytest_toolemu.scheduling.worker import WorkerScheduler


class Permits:
    """Implements ``RateLimiter`` and ``BudgetGuard`` with messages to the coordinator."""

    def __init__(self, scheduler: WorkerScheduler, budget_usd: float | None) -> None:
        self._scheduler = scheduler
        self.usd = budget_usd

    async def acquire(self, key: str) -> int:
        """Wait for a permit, and return its ticket. Raise NotRunError if none will be granted."""
        return await self._scheduler.permits.acquire(key)

    def release(self, ticket: int, outcome: RequestOutcome) -> None:
        """Report how a request ended, which frees its permit."""
        self._scheduler.permits.release(ticket, outcome)

    def report_failure(self, key: str, kind: str, message: str) -> None:
        """Report a failure that no retry overcame."""
        self._scheduler.permits.report_failure(key, kind, message)

    def check(self) -> None:
        """Raise NotRunError once the coordinator has halted requests."""
        if reason := self._scheduler.permits.halted:
            raise NotRunError(reason)

    def report(self, tokens: int, usd: float | None, *, estimated: bool = False) -> None:
        """Report what a request has used."""
        self._scheduler.send(UsageReported(tokens, usd, estimated))


class AgentUsageMeter:
    """Counts the tokens that custom agents report against the budget. Implements ``UsageMeter``.

    ``prices`` is called at the first report, because it reads a file."""

    def __init__(self, permits: Permits, prices: Callable[[], Prices]) -> None:
        self._permits = permits
        self._prices = prices

    def check(self) -> None:
        """Raise NotRunError if the session may spend nothing more."""
        self._permits.check()

    def report(self, model: dict[str, Any], usage: Usage) -> None:
        """Report tokens and cost to the coordinator."""
        self._permits.report(usage.total, usd_for_budget(self._prices().of(model), usage))
