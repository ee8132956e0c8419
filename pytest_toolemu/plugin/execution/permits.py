"""The rate limiter and the budget of a session as its models use them; both are shared by all processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_toolemu.errors import NotRunError
from pytest_toolemu.scheduling.coordinator_messages import UsageReported

if TYPE_CHECKING:
    from pytest_toolemu.plugin.session import ToolemuSession
    from pytest_toolemu.scheduling.adaptive_limit import RequestOutcome
    from pytest_toolemu.scheduling.permit_client import PermitClient


class Permits:
    """Implements ``RateLimiter`` and ``BudgetGuard`` with messages to the coordinator."""

    def __init__(self, session: ToolemuSession) -> None:
        self._session = session
        self.usd: float | None = session.settings.budget_usd

    async def acquire(self, account: str) -> int:
        """Wait for a permit, and return its ticket. Raise NotRunError if none will be granted."""
        return await self._permits.acquire(account)

    def release(self, ticket: int, outcome: RequestOutcome) -> None:
        """Report how a request ended, which frees its permit."""
        self._permits.release(ticket, outcome)

    def report_failure(self, account: str, kind: str, message: str) -> None:
        """Report a failure that no retry overcame."""
        self._permits.report_failure(account, kind, message)

    def check(self) -> None:
        """Raise NotRunError once the coordinator has halted requests."""
        if reason := self._permits.halted:
            raise NotRunError(reason)

    def report(self, tokens: int, usd: float | None, *, estimated: bool = False) -> None:
        """Report what a request has used."""
        self._session.flight().schedule.send(UsageReported(tokens, usd, estimated))

    @property
    def _permits(self) -> PermitClient:
        return self._session.flight().schedule.permits
