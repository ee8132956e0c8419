"""Counts the tokens that custom agents report against the budget of the session."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pytest_toolemu.models.pricing import Prices, usd_for_budget

if TYPE_CHECKING:
    from pytest_toolemu.core.messages import Usage
    from pytest_toolemu.plugin.execution.permits import Permits


class AgentUsageMeter:
    """Implements ``UsageMeter``. ``prices`` is called at the first report, because it reads a file."""

    def __init__(self, permits: Permits, prices: Callable[[], Prices]) -> None:
        self._permits = permits
        self._prices = prices

    def check(self) -> None:
        """Raise NotRunError if the session may spend nothing more."""
        self._permits.check()

    def report(self, model: dict[str, Any], usage: Usage) -> None:
        """Report tokens and cost to the coordinator."""
        self._permits.report(usage.total, usd_for_budget(self._prices().of(model), usage))
