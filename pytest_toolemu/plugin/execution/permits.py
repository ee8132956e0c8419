"""What models ask of the session: leave to send a request, and a budget that is one for all processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_toolemu.errors import NotRunError

if TYPE_CHECKING:
    from pytest_toolemu.plugin.session import ToolemuSession
    from pytest_toolemu.scheduling.adaptive_limit import RequestOutcome


class Permits:
    """The hub as models see it, by way of the cases in flight: a gate and a purse."""

    def __init__(self, session: ToolemuSession) -> None:
        self._session = session
        self.usd: float | None = session.settings.budget_usd

    async def enter(self, account: str) -> int:
        """Wait for leave, and return a ticket. NotRunError where none is given any more."""
        return await self._session.flight().schedule.enter(account)

    def leave(self, ticket: int, answer: RequestOutcome) -> None:
        """A request is over."""
        self._session.flight().schedule.leave(ticket, answer)

    def fail(self, account: str, kind: str, message: str) -> None:
        """Report a failure that no retry overcame."""
        self._session.flight().schedule.fail(account, kind, message)

    def ask(self) -> None:
        """NotRunError once the hub has said that no more may be spent."""
        if reason := self._session.flight().schedule.halted:
            raise NotRunError(reason)

    def report(self, tokens: int, usd: float | None, *, guessed: bool = False) -> None:
        """A request has used this."""
        self._session.flight().schedule.tell(("spent", tokens, usd, guessed))
