"""The models of a session, by name: each is opened once, with its retries, its budget, and its price."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from pytest_toolemu.core.identity import provider_and_name
from pytest_toolemu.errors import UsageError
from pytest_toolemu.models import (
    KEYS,
    Endpoint,
    ModelSpec,
    Parameters,
    RemoteModel,
    ServedEndpoint,
    check_url,
    named_model,
    open_model,
    parse_spec,
    preflight,
)
from pytest_toolemu.models.batch_queue import Batches
from pytest_toolemu.models.pricing import Price, Prices
from pytest_toolemu.models.retrying import LocalRateLimiter, RateLimiter, RetryingModel
from pytest_toolemu.models.wrappers import BudgetedModel, FallbackModel, HarnessModel, parse_fallback
from pytest_toolemu.scheduling.budget import Budget, BudgetGuard
from pytest_toolemu.settings import Settings, fallback_parts


class ModelPool:
    """Opens models as the settings require. Components that name the same model share its connections."""

    def __init__(
        self,
        settings: Settings,
        rate_limiter: RateLimiter | None = None,
        budget: BudgetGuard | None = None,
        prices: Callable[[], Prices] | None = None,
        served: Callable[[], Mapping[str, ServedEndpoint]] = dict,
        batches: Batches | None = None,
    ) -> None:
        self._settings = settings
        self._rate_limiter = rate_limiter or LocalRateLimiter(settings.concurrency)
        self._budget = budget or Budget()
        self._prices = prices
        self._served = served
        self._batches = batches
        self._models: dict[str, Endpoint] = {}

    def model(self, name: str, others: Sequence[str] = ()) -> Endpoint:
        """Return the model with this name and its retries. If all requests are replayed, it needs only its name.

        ``others`` are the valid names in this role that are not models, for hints at misspelled ones.
        """
        if name not in self._models:
            plays_only = self._settings.plays_only
            if self._settings.offline and not plays_only:
                raise UsageError(
                    f"{name}: a model needs the network, but --toolemu-offline is set; remove one of the two"
                )
            parameters = Parameters(
                temperature=self._settings.temperature,
                max_tokens=self._settings.max_output_tokens,
                timeout=self._settings.request_timeout,
            )
            spec = parse_spec(name, others)
            self._models[name] = named_model(spec, parameters) if plays_only else self._opened(spec, parameters)
        return self._models[name]

    def harness_model(self, name: str, others: tuple[str, ...] = ()) -> HarnessModel:
        """Return the model with this name, or the fallback of several. As ``model``, else."""
        specs = parse_fallback(name, others)
        if len(specs) == 1:
            return self.model(name, others)
        return FallbackModel(tuple(self.model(part) for part in fallback_parts(name)))

    def limited(self, model: RemoteModel) -> RetryingModel:
        """Return a model that an agent's program has chosen, with the limits of the session."""
        price = self._prices().of(model.identity) if self._prices else None
        return RetryingModel(BudgetedModel(model, self._budget, price), self._rate_limiter)

    def rate_limit_keys(self, url: str) -> list[str]:
        """Return the rate-limit keys of the models that this session serves at a URL."""
        return [
            model.rate_limit_key
            for name, model in self._models.items()
            if isinstance(model, RetryingModel)
            and (endpoint := self._served_endpoint(parse_spec(name)))
            and endpoint.url == url
        ]

    async def preflight(self, *, served: bool) -> None:
        """Verify the endpoints of the models: those that the session serves itself, or all others.

        Raise UsageError for the first problem.
        """
        for name, model in self._models.items():
            if (self._served_endpoint(parse_spec(name)) is not None) is served:
                await preflight(model)

    async def close(self) -> None:
        """Close every connection."""
        for model in self._models.values():
            await model.aclose()
        self._models.clear()

    def _opened(self, spec: ModelSpec, parameters: Parameters) -> RetryingModel:
        environ = dict(os.environ)
        if self._settings.vllm_url:
            environ["VLLM_BASE_URL"] = check_url(self._settings.vllm_url, self._settings.source("vllm-url"))
        if self._settings.estimate:  # no request is sent, so no key is needed
            environ |= dict.fromkeys(KEYS, "not-needed") | os.environ
        model = open_model(spec, parameters, environ, self._served_endpoint(spec))
        price = self._price(model)
        if self._batches is not None:
            return self._batches.model(model, price)
        return RetryingModel(BudgetedModel(model, self._budget, price), self._rate_limiter)

    def _served_endpoint(self, spec: ModelSpec) -> ServedEndpoint | None:
        """Return the endpoint at which the session serves the model itself; None if it does not."""
        return self._served().get(spec.name) if spec.provider == "vllm" and spec.base_url is None else None

    def _price(self, model: RemoteModel) -> Price | None:
        """Return the price of the model, if known. Raise UsageError if it is not and the budget is in USD."""
        price = self._prices().of(model.identity, batch=self._batches is not None) if self._prices else None
        if self._budget.usd is not None and price is None:
            identity = model.identity
            kind = "price of batches" if self._batches is not None else "price"
            raise UsageError(
                f"--toolemu-budget-usd is set, but no {kind} is known for {provider_and_name(identity)} at "
                f"{identity['base_url']}; give one with --toolemu-prices=FILE (commands: "
                "TOOLEMU_PRICES=FILE), or set --toolemu-budget-tokens"
            )
        return price
