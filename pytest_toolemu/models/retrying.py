"""Wrappers of models: retries, the only layer that does, each with a permit of the rate limiter, and budgets."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

from pytest_toolemu.core import case_timer
from pytest_toolemu.core.messages import Model, ModelRequest, Reply, Usage
from pytest_toolemu.errors import ModelError, UsageError
from pytest_toolemu.models.endpoint import ModelSpec, Parameters, RemoteModel, model_identity, parse_spec
from pytest_toolemu.models.pricing import Price, usd_for_budget
from pytest_toolemu.scheduling.adaptive_limit import Quota, RequestOutcome
from pytest_toolemu.scheduling.budget import Budget, BudgetGuard
from pytest_toolemu.scheduling.coordinator_messages import Order, PermitReply
from pytest_toolemu.scheduling.request_limits import RequestLimits
from pytest_toolemu.scheduling.worker import PermitClient
from pytest_toolemu.settings.model_names import FALLBACK, fallback_parts

MAX_FAILURES: Final = 8
"""Failures of one request after which it is given up."""
MAX_REFUSALS: Final = 20
"""Refusals of one request because of load; more than failures, since a busy provider will answer eventually."""
MAX_SECONDS: Final = 180.0
"""Seconds that one request may spend on attempts and back-off. Waiting for permits is not counted."""

# A request stalls its case if it takes this many times longer than usual. What is usual is known after a number of
# replies, and a request that takes less than _MIN_SLOW_SECONDS is never slow.
_SLOW_FACTOR: Final = 2.0
_MIN_REPLIES: Final = 8
_MIN_SLOW_SECONDS: Final = 0.25
# Upper bounds of the jitter before the first retry and before any retry, in seconds.
_FIRST_DELAY: Final = 0.25
_LONGEST_DELAY: Final = 60.0
# Too many requests, and Anthropic's status for the same.
_BUSY: Final = (429, 529)

# Failures that would meet any other request too: no response, no reply in it, a refused credential, model, or route.
# They count towards the circuit breaker; failures that depend on the request, such as a too long prompt, do not.
_UNUSABLE: Final = (None, 200, 401, 402, 403, 404, 408, 429)

_log = logging.getLogger(__name__)


class WrapperModel:
    """A remote model that delegates everything to the model inside; subclasses override ``complete``."""

    def __init__(self, inner: RemoteModel) -> None:
        self._inner = inner

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

    async def preflight(self) -> None:
        """Check that the inner model is available."""
        await self._inner.preflight()

    async def aclose(self) -> None:
        """Close the inner model's connections."""
        await self._inner.aclose()


class RetryingModel(WrapperModel):
    """A model that retries transient failures. It holds a permit during an attempt, but not during the back-off."""

    def __init__(
        self,
        model: RemoteModel,
        rate_limiter: RateLimiter,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        draw: Callable[[float, float], float] = random.uniform,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(model)
        self._rate_limiter = rate_limiter
        self._sleep = sleep
        self._draw = draw
        self._clock = clock
        self._paces: defaultdict[str, _Pace] = defaultdict(_Pace)

    async def complete(self, request: ModelRequest) -> Reply:
        """Return the reply of the first attempt that succeeds.

        ModelError after 8 failures, 20 refusals because of load, or 180 s of attempts and back-off.
        """
        spent, failures, refusals, lost = 0.0, 0, 0, 0
        pace = self._paces[request.schema.name if request.schema else ""]
        while True:
            with case_timer.paused():
                ticket = await self._rate_limiter.acquire(self.rate_limit_key)
            started = self._clock()
            outcome = RequestOutcome("failed")  # also for a request that is canceled
            try:
                with case_timer.stalled(pace.slow_after):
                    reply = await self._inner.complete(request)
                outcome = self._outcome("ok", started, reply)
                pace.learn(outcome.seconds)
                return reply.model_copy(update={"lost_attempts": lost}) if lost else reply
            except ModelError as error:
                failure = error
                outcome = self._outcome("busy" if _is_busy(error) else "failed", started, retry_after=error.retry_after)
            finally:
                self._rate_limiter.release(ticket, outcome)
            if not failure.transient:
                raise self._final(failure)
            refusals += _is_busy(failure)
            failures += not _is_busy(failure)
            lost += failure.may_be_charged
            spent += outcome.seconds
            delay = self._delay(failures + refusals, failure.retry_after)
            if failures == MAX_FAILURES or refusals == MAX_REFUSALS or spent + delay > MAX_SECONDS:
                message = f"{failure} (given up after {failures + refusals} attempts in {spent:.0f} s)"
                raise self._final(
                    ModelError(message, status=failure.status, transient=True, retry_after=failure.retry_after)
                )
            _log.info("%s; attempt %d in %.1f s", failure, failures + refusals + 1, delay)
            with case_timer.paused(), case_timer.stalled(0.0):
                await self._sleep(delay)
            spent += delay

    def _final(self, failure: ModelError) -> ModelError:
        """Report a failure to the rate limiter if it would meet any request, and return it."""
        if failure.status in _UNUSABLE or (failure.status or 0) >= 500:
            self._rate_limiter.report_failure(self.rate_limit_key, str(failure.status), str(failure))
        return failure

    def _outcome(
        self, status: Any, started: float, reply: Reply | None = None, retry_after: float | None = None
    ) -> RequestOutcome:
        tokens = reply.usage.total if reply is not None else 0
        return RequestOutcome(status, self._clock() - started, tokens, retry_after, *self._inner.quotas())

    def _delay(self, attempt: int, retry_after: float | None) -> float:
        # Full jitter: clients that failed at the same time must not return at the same time. This also applies to a
        # Retry-After header, which tells all of them the same time.
        jitter = self._draw(0.0, min(_LONGEST_DELAY, _FIRST_DELAY * 2.0 ** (attempt - 1)))
        return jitter if retry_after is None else retry_after + jitter


@dataclass
class _Pace:
    """How long requests of one kind take. Kinds are separate because a judge writes longer replies than an agent."""

    answered: int = 0
    mean: float = 0.0

    @property
    def slow_after(self) -> float:
        """Seconds after which a request is slow; infinite until enough requests were answered."""
        if self.answered < _MIN_REPLIES:
            return math.inf
        return max(_MIN_SLOW_SECONDS, _SLOW_FACTOR * self.mean)

    def learn(self, seconds: float) -> None:
        """Add the time of an answered request to the moving mean over about 32 requests."""
        self.answered += 1
        self.mean += (seconds - self.mean) / min(self.answered, 4 * _MIN_REPLIES)


def _is_busy(error: ModelError) -> bool:
    return error.status in _BUSY and error.transient


class RateLimiter(Protocol):
    """Grants permits to send requests. ``key`` names what shares a rate limit: provider, credential, and model."""

    async def acquire(self, key: str) -> int:
        """Wait for a permit, and return its ticket for ``release``. Raise NotRunError if none will be granted."""

    def release(self, ticket: int, outcome: RequestOutcome) -> None:
        """Report how the request ended, which frees its permit."""

    def report_failure(self, key: str, kind: str, message: str) -> None:
        """Count a failure that no retry overcame; after too many of one kind in a row, permits are refused."""


class LocalRateLimiter(PermitClient):
    """A rate limiter for one process without a coordinator, with an adaptive limit for each key."""

    def __init__(self, start: int) -> None:
        self._limits = RequestLimits(start, Budget())
        self._limits.add_worker("")
        super().__init__(
            lambda function, *args: function(*args),
            lambda message: self._deliver(self._limits.receive("", message, time.monotonic())),
        )

    def _deliver(self, orders: Iterable[Order]) -> None:
        for order in orders:
            self.receive(cast(PermitReply, order.message))
        now = time.monotonic()
        if (due := self._limits.next_tick(now)) is not None:
            asyncio.get_running_loop().call_later(due - now, lambda: self._deliver(self._limits.tick(time.monotonic())))


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
    specs = tuple(map(parse_spec, parts))
    if len(set(specs)) < len(specs):
        raise UsageError(f"{text!r} names a model twice, but a fallback asks each model once; remove one of the two")
    return specs


class ReplayOnlyModel:
    """Names the model it stands for and cannot answer by itself."""

    def __init__(self, spec: ModelSpec, base_url: str | None, parameters: Parameters) -> None:
        self._spec = spec
        self.identity = model_identity(spec, base_url, parameters)

    async def complete(self, request: ModelRequest) -> Reply:  # noqa: ARG002  (part of the protocol)
        """Raise ModelError: only the recorder can answer, before the request gets here."""
        raise ModelError(f"{self._spec.label} is replayed, and cannot be called; use --toolemu-record=new to call it")

    async def preflight(self) -> None:
        """Do nothing: there is no endpoint."""

    async def aclose(self) -> None:
        """Do nothing: no connection is open."""
