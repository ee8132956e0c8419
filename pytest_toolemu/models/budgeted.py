"""Every request asks the session's budget for leave and reports what it used."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from pytest_toolemu.core.messages import Message, Reply, ReplySchema, ToolSpec, Usage
from pytest_toolemu.errors import ModelError
from pytest_toolemu.models.endpoint import RemoteModel
from pytest_toolemu.models.pricing import Price
from pytest_toolemu.scheduling.budget import BudgetGuard

# Fewer characters a token than English and JSON have (4.1 to 4.3): a guess had better be too high.
_CHARACTERS: Final = 3


class BudgetedModel:
    """A remote model on a budget. NotRunError instead of a request once that is spent; ``price`` is None where unknown.

    It sits inside of whatever retries, so each attempt counts: also one whose answer was lost on the way.
    """

    def __init__(self, model: RemoteModel, budget: BudgetGuard, price: Price | None) -> None:
        self._model = model
        self._budget = budget
        self._price = price
        self.account = model.account
        self.quotas = model.quotas
        self.served = model.served
        self.confirm = model.confirm
        self.probe = model.probe
        self.aclose = model.aclose

    def __repr__(self) -> str:
        return f"<Metered {self._model!r}>"

    @property
    def identity(self) -> dict[str, Any]:
        """The model's own: a budget changes no answer."""
        return self._model.identity

    async def complete(
        self,
        messages: tuple[Message, ...],
        *,
        tools: tuple[ToolSpec, ...] = (),
        schema: ReplySchema | None = None,
        seed: int | None = None,
    ) -> Reply:
        """As the model, within the budget."""
        self._budget.ask()
        try:
            reply = await self._model.complete(messages, tools=tools, schema=schema, seed=seed)
        except (ModelError, asyncio.CancelledError) as error:
            # An endpoint that said no charged nothing; one whose answer did not arrive may have worked for it.
            if not isinstance(error, ModelError) or error.status in (None, 200):
                self._report(Usage(input=_guess(messages, tools)), guessed=True)
            raise
        if reply.usage.unknown:
            output = len(reply.text) + sum(len(call.arguments) for call in reply.calls)
            self._report(Usage(input=_guess(messages, tools), output=output // _CHARACTERS), guessed=True)
        else:
            self._report(reply.usage)
        return reply

    def _report(self, usage: Usage, *, guessed: bool = False) -> None:
        usd = self._price.of(usage) if self._price else None
        if usd is None and self._price:  # a prompt longer than the price is known for: not for nothing
            usd = self._price.model_copy(update={"up_to": None}).of(usage)
        self._budget.report(usage.total, usd, guessed=guessed)


def _guess(messages: tuple[Message, ...], tools: tuple[ToolSpec, ...]) -> int:
    """Tokens of a prompt, by its length."""
    return sum(len(part.model_dump_json()) for part in (*messages, *tools)) // _CHARACTERS
