"""Count every request against the session's budget, and refuse requests once it is spent."""

from __future__ import annotations

import asyncio
from typing import Final

from pytest_toolemu.core.messages import ModelRequest, Reply, Usage
from pytest_toolemu.errors import ModelError
from pytest_toolemu.models.endpoint import RemoteModel
from pytest_toolemu.models.pricing import Price, usd_for_budget
from pytest_toolemu.models.wrapper import WrapperModel
from pytest_toolemu.scheduling.budget import BudgetGuard

# English and JSON have 4.1 to 4.3 characters per token; a lower number makes the estimate too high, never too low.
_CHARACTERS: Final = 3


class BudgetedModel(WrapperModel):
    """A remote model whose requests count against a budget; ``price`` is None if the model's price is unknown.

    It sits inside the retrying model, so every attempt counts, even one whose reply was lost on the way.
    """

    def __init__(self, model: RemoteModel, budget: BudgetGuard, price: Price | None) -> None:
        super().__init__(model)
        self._budget = budget
        self._price = price

    async def complete(self, request: ModelRequest) -> Reply:
        """Return the model's reply and report its tokens; NotRunError once the budget is spent."""
        self._budget.check()
        try:
            reply = await self._inner.complete(request)
        except (ModelError, asyncio.CancelledError) as error:
            if not isinstance(error, ModelError) or error.may_be_charged:
                self._report(Usage(input=_prompt_tokens(request)), estimated=True)
            raise
        if reply.usage.unknown:
            output = len(reply.text) + sum(len(call.arguments) for call in reply.calls)
            self._report(Usage(input=_prompt_tokens(request), output=output // _CHARACTERS), estimated=True)
        else:
            self._report(reply.usage)
        return reply

    def _report(self, usage: Usage, *, estimated: bool = False) -> None:
        self._budget.report(usage.total, usd_for_budget(self._price, usage), estimated=estimated)


def _prompt_tokens(request: ModelRequest) -> int:
    """Estimate the tokens of a request from its length."""
    return sum(len(part.model_dump_json()) for part in (*request.messages, *request.tools)) // _CHARACTERS
