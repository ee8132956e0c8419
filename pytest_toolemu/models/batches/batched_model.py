"""A model whose requests are sent in batches, and the retries of those that a batch did not answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_toolemu.core.identity import provider_and_name
from pytest_toolemu.core.messages import ModelRequest, Reply
from pytest_toolemu.errors import NotRunError, UsageError
from pytest_toolemu.models.batches.batch_endpoint import BatchableModel
from pytest_toolemu.models.batches.batch_journal import BatchJournal
from pytest_toolemu.models.batches.batch_queue import BatchQueue
from pytest_toolemu.models.budgeted import BudgetedModel
from pytest_toolemu.models.pricing import Price
from pytest_toolemu.models.retrying import RetryingModel
from pytest_toolemu.models.wrapper import WrapperModel
from pytest_toolemu.scheduling.adaptive_limit import RequestOutcome
from pytest_toolemu.scheduling.budget import Budget
from pytest_toolemu.scheduling.request_limits import CircuitBreaker


class BatchedModel(WrapperModel):
    """A model whose requests wait for the next batch of a queue."""

    def __init__(self, model: BatchableModel, queue: BatchQueue) -> None:
        super().__init__(model)
        self._batchable = model
        self._queue = queue

    async def complete(self, request: ModelRequest) -> Reply:
        """Return the reply to a request that was sent in a batch."""
        return await self._batchable.complete_with(request, self._queue.send)


class BatchPermits:
    """A rate limiter that grants every permit at once, because providers do not limit the rate within a batch."""

    def __init__(self) -> None:
        self._breaker = CircuitBreaker()
        self._keys: dict[int, str] = {}
        self._last_ticket = 0

    async def acquire(self, key: str) -> int:
        """Return a ticket. Raise NotRunError once too many requests with this key failed."""
        if reason := self._breaker.open.get(key):
            raise NotRunError(reason)
        self._last_ticket += 1
        self._keys[self._last_ticket] = key
        return self._last_ticket

    def release(self, ticket: int, outcome: RequestOutcome) -> None:
        """Count a success."""
        key = self._keys.pop(ticket)
        if outcome.status == "ok":
            self._breaker.record_success(key)

    def report_failure(self, key: str, kind: str, message: str) -> None:
        """Count a failure that no retry overcame."""
        self._breaker.record_failure(key, kind, message)


@dataclass
class Batches:
    """The batches of one command: the models that are asked in them, their journal, and the lines about them.

    ``report`` shows a line to the user. The journal is opened once the folder of the records is known.
    """

    budget: Budget
    report: Callable[[str], None]
    _journals: list[BatchJournal] = field(default_factory=list)
    _permits: BatchPermits = field(default_factory=BatchPermits)

    def use(self, journal: BatchJournal) -> None:
        """Note in this journal what is sent from now on."""
        self._journals[:] = [journal]

    @property
    def journal(self) -> BatchJournal:
        """The journal of the command."""
        return self._journals[0]

    @property
    def is_open(self) -> bool:
        """Whether there is a journal."""
        return bool(self._journals)

    def model(self, model: BatchableModel, price: Price | None) -> RetryingModel:
        """Return the model with its batches, its part of the budget, and retries, which wait for the next batch."""
        identity = model.identity
        if identity["provider"] == "vllm":
            raise UsageError(
                f"--batch: vllm:{identity['name']} is your own server, which has no batches; judge without --batch, "
                "or name a model of OpenAI or Anthropic with --evaluator"
            )
        name = _name(identity)
        queue = BatchQueue(model.batches(), name, lambda: self.journal, self.budget, price, self.report)
        budgeted = BudgetedModel(BatchedModel(model, queue), self.budget, price)
        # A retry waits for the next batch anyway, and its age says nothing about the provider.
        return RetryingModel(budgeted, self._permits, sleep=_no_pause, draw=min, clock=_no_time)


def _name(identity: Mapping[str, Any]) -> tuple[str, str]:
    return provider_and_name(identity), str(identity["base_url"])


async def _no_pause(seconds: float) -> None:
    del seconds


def _no_time() -> float:
    return 0.0
