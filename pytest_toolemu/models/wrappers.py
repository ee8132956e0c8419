"""Models around models: a budget, an ordered fallback, and a model that can only be replayed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final

from pytest_toolemu.core.messages import Model, ModelRequest, Reply, Usage
from pytest_toolemu.errors import ModelError, UsageError
from pytest_toolemu.models.endpoint import RemoteModel
from pytest_toolemu.models.pricing import Price, usd_for_budget
from pytest_toolemu.models.spec import ModelSpec, Parameters, model_identity, parse_spec
from pytest_toolemu.scheduling.adaptive_limit import Quota
from pytest_toolemu.scheduling.budget import BudgetGuard
from pytest_toolemu.settings.model_names import FALLBACK, fallback_parts, is_model


class WrapperModel:
    """A remote model that delegates everything to the model inside; subclasses override ``complete``."""

    def __init__(self, inner: RemoteModel) -> None:
        self._inner = inner

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._inner!r}>"

    @property
    def identity(self) -> dict[str, Any]:
        """Identity of the inner model: a wrapper changes no reply."""
        return self._inner.identity

    @property
    def rate_limit_key(self) -> str:
        """Name of what shares the inner model's rate limit."""
        return self._inner.rate_limit_key

    async def complete(self, request: ModelRequest) -> Reply:
        """Return the inner model's reply."""
        return await self._inner.complete(request)

    def quotas(self) -> tuple[Quota | None, Quota | None]:
        """Return the remaining requests and tokens from the inner model's rate-limit headers."""
        return self._inner.quotas()

    async def served(self) -> list[str]:
        """List the models at the inner model's URL."""
        return await self._inner.served()

    async def confirm(self, name: str) -> None:
        """Check that the inner model's URL knows this name or alias."""
        await self._inner.confirm(name)

    async def probe(self) -> None:
        """Check that the inner model's URL has a route for completions."""
        await self._inner.probe()

    async def aclose(self) -> None:
        """Close the inner model's connections."""
        await self._inner.aclose()


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


@dataclass(frozen=True)
class FallbackModel:
    """Models that are asked in turn until one gives a usable reply.

    It is not a ``Model`` itself: whether a reply is usable is known only to its reader, ``ask_structured``. Outages,
    rate limits, and timeouts are errors of the model that was asked; no other model is asked because of them.
    """

    models: tuple[Model, ...]

    @property
    def identity(self) -> dict[str, Any]:
        """Identity of the first model, with those of the others in their order, which changes results."""
        first, *others = (model.identity for model in self.models)
        return {**first, "fallback": others}


HarnessModel = Model | FallbackModel
"""What plays a role of the evaluation harness: a model, or an ordered fallback of models."""


def models_in_turn(model: HarnessModel) -> tuple[Model, ...]:
    """Return the models in the order in which they are asked."""
    return model.models if isinstance(model, FallbackModel) else (model,)


def model_names(model: HarnessModel) -> str:
    """Return the name of the model without its provider, or those of all models of a fallback: ``gpt-4o|llama``."""
    return FALLBACK.join(str(each.identity.get("name")) for each in models_in_turn(model))


def parse_fallback(text: str, others: tuple[str, ...] = ()) -> tuple[ModelSpec, ...]:
    """Parse ``A|B`` or the name of one model. Raise UsageError if a part is not a model, or occurs twice.

    ``others`` are names that are valid in place of all that, such as ``checks``.
    """
    parts = fallback_parts(text)
    if len(parts) == 1:
        return (parse_spec(text, others),)
    form = f"write models only, such as gpt-4o{FALLBACK}claude-sonnet-5-5"
    if "" in parts:
        raise UsageError(f"{text!r}: a model is missing before or after {FALLBACK!r}; {form}")
    if names := [part for part in parts if part in others and not is_model(part)]:
        raise UsageError(f"{text!r}: {names[0]!r} is not a model, so it cannot be part of a fallback; {form}")
    specs = tuple(map(parse_spec, parts))
    for index, spec in enumerate(specs):
        if spec in specs[:index]:
            raise UsageError(f"{text!r} names {spec} twice, but a fallback asks each model once; remove one of the two")
    return specs


class ReplayOnlyModel:
    """Names the model it stands for and cannot answer by itself."""

    def __init__(self, spec: ModelSpec, base_url: str | None, parameters: Parameters) -> None:
        self._spec = spec
        self.identity = model_identity(spec, base_url, parameters)

    def __repr__(self) -> str:
        return f"<Replayed {self._spec}>"

    async def complete(self, request: ModelRequest) -> Reply:  # noqa: ARG002  (part of the protocol)
        """Raise ModelError: only the recorder can answer, before the request gets here."""
        raise ModelError(f"{self._spec.label} is replayed, and cannot be called; use --toolemu-record=new to call it")

    async def served(self) -> list[str]:
        """Return no names: it is unknown what the endpoint serves."""
        return []

    async def confirm(self, name: str) -> None:
        """Accept any name."""

    async def probe(self) -> None:
        """Do nothing: there is no endpoint."""

    async def aclose(self) -> None:
        """Do nothing: no connection is open."""
