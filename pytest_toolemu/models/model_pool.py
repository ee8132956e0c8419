"""Models: from a name on the command line to an object that answers requests, with retries, budget, and price."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final
from urllib.parse import urlsplit

from pytest_toolemu.core.identity import provider_and_name
from pytest_toolemu.errors import UsageError
from pytest_toolemu.models.batch_journal import BatchableModel
from pytest_toolemu.models.batch_queue import Batches
from pytest_toolemu.models.endpoint import (
    Endpoint,
    EndpointAddress,
    ModelSpec,
    Parameters,
    RemoteModel,
    ServedEndpoint,
    check_url,
    parse_spec,
)
from pytest_toolemu.models.pricing import Price, Prices
from pytest_toolemu.models.retrying import (
    BudgetedModel,
    FallbackModel,
    HarnessModel,
    LocalRateLimiter,
    RateLimiter,
    ReplayOnlyModel,
    RetryingModel,
    parse_fallback,
)
from pytest_toolemu.models.sdk_versions import require_sdk
from pytest_toolemu.scheduling.budget import Budget, BudgetGuard
from pytest_toolemu.settings.model_names import KEY_VARIABLES, OFFICIAL_URLS, fallback_parts
from pytest_toolemu.settings.option_table import Settings

KEYS: Final = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "VLLM_API_KEY")
"""The variables that are searched for keys first."""


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
                await model.preflight()

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
                f"{identity['base_url']}; give one with -o toolemu_prices=FILE (commands: "
                "TOOLEMU_PRICES=FILE), or set --toolemu-budget-tokens"
            )
        return price


def open_model(
    spec: ModelSpec,
    parameters: Parameters,
    environ: Mapping[str, str] | None = None,
    served: ServedEndpoint | None = None,
) -> BatchableModel:
    """Open a model without sending a request. UsageError if its SDK, key, or URL is missing.

    ``OPENAI_BASE_URL``, ``ANTHROPIC_BASE_URL``, and ``VLLM_BASE_URL`` apply if the spec has no ``@base_url``.
    ``served`` says where the session serves the model itself.
    """
    variables = dict(os.environ if environ is None else environ)
    address = _address(spec, variables | {"VLLM_BASE_URL": served.url} if served else variables)
    address = replace(address, recorded_as=served.recorded_as) if served else address
    extra = "anthropic" if spec.provider == "anthropic" else "openai"
    require_sdk(extra, spec)
    # Importing an SDK takes half a second or more, so a session imports only those it uses.
    if extra == "anthropic":
        from pytest_toolemu.models.anthropic import AnthropicModel

        return AnthropicModel(address, parameters)
    from pytest_toolemu.models.openai import OpenAIModel

    return OpenAIModel(address, parameters)


def named_model(spec: ModelSpec, parameters: Parameters) -> Endpoint:
    """Return a model that can only be replayed: no SDK, key, or running server is needed."""
    try:
        base_url = _base_url(spec, os.environ)
    except UsageError:
        base_url = None
    return ReplayOnlyModel(spec, base_url, parameters)


def _address(spec: ModelSpec, environ: Mapping[str, str]) -> EndpointAddress:
    base_url = _base_url(spec, environ)
    for variable in KEY_VARIABLES[spec.provider]:
        key = environ.get(variable, "").strip()
        if key and not re.fullmatch(r"[!-~]+", key):
            raise UsageError(
                f"{variable} contains a space, a line break, or a character that never occurs in a key; copy the key "
                f"for {spec} again"
            )
        if key:
            return EndpointAddress(spec, base_url, variable, key)
    if spec.provider != "vllm" and not _is_loopback(base_url):
        variables = " or ".join(KEY_VARIABLES[spec.provider])
        raise UsageError(f"{spec} needs a key: set {variables} in the environment or in the .env file")
    return EndpointAddress(spec, base_url, KEY_VARIABLES[spec.provider][0], None)


def _base_url(spec: ModelSpec, environ: Mapping[str, str]) -> str:
    variable = f"{spec.provider.upper()}_BASE_URL"
    value = environ.get(variable, "").strip()
    url = spec.base_url or (value and check_url(value, variable))
    if spec.provider == "anthropic":
        return (url or OFFICIAL_URLS["anthropic"]).removesuffix("/v1")  # the SDK adds it
    if not url and spec.provider == "vllm":
        raise UsageError(
            f"{spec} needs the URL of its server: write {spec}@http://host:8000/v1, "
            f"or set {variable} in the environment or in the .env file"
        )
    url = url or OFFICIAL_URLS["openai"]
    return url if urlsplit(url).path else f"{url}/v1"


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
