"""Collects the requests of one model into batches, follows the batches, and hands out the results.

A batch is sent when nothing more is going on in this process: all first requests of a number of evaluations are one
batch, and all requests for corrections of their replies are the next one.
"""

from __future__ import annotations

import asyncio
import json
from asyncio import sleep
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from pytest_toolemu.core import case_timer
from pytest_toolemu.core.identity import provider_and_name
from pytest_toolemu.core.messages import ModelRequest, Reply, Usage
from pytest_toolemu.errors import ModelError, NotRunError, ToolemuError, UsageError
from pytest_toolemu.formats.text import counted
from pytest_toolemu.models.batch_journal import (
    STATE,
    UNANSWERED,
    BatchableModel,
    BatchJournal,
    BatchRequest,
    SentBatch,
)
from pytest_toolemu.models.endpoint import Body
from pytest_toolemu.models.pricing import Price, usd_for_budget
from pytest_toolemu.models.retrying import MAX_FAILURES, BudgetedModel, LocalRateLimiter, RetryingModel, WrapperModel
from pytest_toolemu.scheduling.adaptive_limit import Quota
from pytest_toolemu.scheduling.budget import Budget

T = TypeVar("T")

FIRST_LOOK: Final = 5.0
"""Seconds between the first two looks at a batch, or attempts; each pause is twice as long as the one before."""
LONGEST_LOOK: Final = 60.0
"""Seconds of the longest pause."""
# The statuses with which a provider says that it does not have a batch or its results.
_GONE: Final = (404, 410)
# Turns of the event loop without a new request after which every evaluation waits for a reply.
_QUIET_TURNS: Final = 20
# For the budget: fewer characters per token than English and JSON have, and the tokens of a long judgment.
_CHARACTERS: Final = 3
_OUTPUT: Final = 1_500
# As many permits as anybody may ask for.
_UNLIMITED: Final = 10**9
# Characters around the body of a request in a file of requests.
_ENVELOPE: Final = 200


@dataclass
class _Waiting:
    """A request whose reply is awaited: the result comes with the ID of its batch."""

    request: BatchRequest
    result: asyncio.Future[tuple[str, Any]]
    tokens: int
    usd: float | None


class BatchQueue:
    """The requests of one model that wait for their batches; ``price`` is that of batches, or None if it is unknown."""

    def __init__(self, batches: Batches, model: BatchableModel, price: Price | None) -> None:
        self._batches, self._price = batches, price
        self._endpoint = model.batches()
        self._model, self._url = provider_and_name(model.identity), str(model.identity["base_url"])
        self._shown: dict[int, int] = {}
        self._queued: dict[str, _Waiting] = {}
        self._sent: dict[str, _Waiting] = {}
        self._arrivals = 0
        self._worker: asyncio.Task[None] | None = None

    async def send(self, body: Body) -> Reply:
        """Send a request with the next batch, and return its reply. The timer of the case is paused meanwhile.

        ModelError if the request fails; NotRunError if the batch cannot be sent, or cannot be followed any longer.
        """
        request = BatchRequest(self._batches.journal.custom_id(body), body)
        usage = Usage(input=len(json.dumps(body)) // _CHARACTERS, output=_OUTPUT, calls=1)
        future: asyncio.Future[tuple[str, Any]] = asyncio.get_running_loop().create_future()
        waiting = _Waiting(request, future, usage.total, usd_for_budget(self._price, usage))
        self._queued[request.custom_id] = waiting
        self._arrivals += 1
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        with case_timer.paused():
            batch, result = await future
        if result is None:
            problem = f"{self._model}: the batch {batch} has no result for the request"
            raise ModelError(problem, status=UNANSWERED, transient=True)
        return self._endpoint.reply(result).model_copy(update={"batch": batch})

    async def _work(self) -> None:
        """Send and follow batches until no request waits; an error ends all of them."""
        try:
            delay = FIRST_LOOK
            while self._queued or self._sent:
                await self._quiet()
                await self._send_queued()
                if await self._collect():
                    delay = FIRST_LOOK
                elif self._sent:
                    await sleep(delay)
                    delay = min(2 * delay, LONGEST_LOOK)
        except OSError as error:
            self._give_up(
                NotRunError(
                    f"{self._batches.journal.folder}: the state of the batches cannot be written ({error.strerror}), "
                    "so no more requests were sent; free disk space or restore the folder, and run the same command "
                    "again"
                )
            )
        except Exception as error:
            self._give_up(NotRunError(str(error)) if isinstance(error, ToolemuError) else error)

    def _give_up(self, failure: Exception) -> None:
        for waiting in (*self._queued.values(), *self._sent.values()):
            if not waiting.result.done():
                waiting.result.set_exception(failure)
        self._queued.clear()
        self._sent.clear()

    async def _quiet(self) -> None:
        """Wait until every evaluation waits for a reply. A request that comes later goes into a later batch."""
        arrivals = -1
        while arrivals != self._arrivals:
            arrivals = self._arrivals
            for _ in range(_QUIET_TURNS):
                await asyncio.sleep(0)

    async def _send_queued(self) -> None:
        """Send what was never sent, as far as the budget covers it; wait for what an earlier call has sent."""
        journal = self._batches.journal
        for sent in dict.fromkeys(filter(None, map(journal.batch_of, self._queued))):
            # An earlier call ended after it had stored the requests and before it knew the ID of their batch.
            if not sent.batch:
                batch = await self._persist(partial(self._found, sent))
                journal.update(sent, batch=batch, status="sent" if batch else "refused")
        fresh = []
        for name, waiting in list(self._queued.items()):
            if journal.batch_of(name):
                self._move_to_sent(waiting)
            else:
                fresh.append(waiting)
        for chunk in self._chunks(self._covered(fresh)):
            await self._send_batch(chunk)
        if fresh and not self._sent:
            raise NotRunError(self._batches.budget.too_small)

    def _covered(self, fresh: Sequence[_Waiting]) -> Iterator[_Waiting]:
        """Yield the requests that the budget covers, as sent; the others stay in the queue."""
        for waiting in fresh:
            if not self._batches.budget.covers(waiting.tokens, waiting.usd):
                return
            self._move_to_sent(waiting)
            yield waiting

    def _move_to_sent(self, waiting: _Waiting) -> None:
        self._batches.budget.hold(waiting.tokens, waiting.usd)
        self._sent[waiting.request.custom_id] = self._queued.pop(waiting.request.custom_id)

    def _chunks(self, requests: Iterator[_Waiting]) -> Iterator[list[BatchRequest]]:
        """Divide requests into batches that the provider accepts."""
        chunk: list[BatchRequest] = []
        size = 0
        for waiting in requests:
            length = len(json.dumps(waiting.request.body)) + _ENVELOPE
            if chunk and (len(chunk) == self._endpoint.max_requests or size + length > self._endpoint.max_bytes):
                yield chunk
                chunk, size = [], 0
            chunk.append(waiting.request)
            size += length
        if chunk:
            yield chunk

    async def _collect(self) -> bool:
        """Hand out the results of the batches that have ended; return whether there was one."""
        journal, has_ended = self._batches.journal, False
        for sent in list(dict.fromkeys(filter(None, map(journal.batch_of, self._sent)))):
            if sent.status != "ended":
                if not await self._has_ended(sent):
                    continue
                results = await self._read(sent, self._endpoint.results)
                journal.store(sent, "results", results.values())
                journal.update(sent, status="ended")
                self._batches.report(f"{self._model}: batch {sent.batch} has ended")
            self._hand_out(sent.number, sent.batch, journal.read(sent, "results"))
            has_ended = True
        return has_ended

    def _hand_out(self, number: int, batch: str, results: dict[str, Any]) -> None:
        """Hand out the results of a batch. A request without a result counts as not answered."""
        for name, waiting in list(self._sent.items()):
            sent = self._batches.journal.batch_of(name)
            if sent is None or sent.number != number:
                continue
            del self._sent[name]
            # The model around this queue reports what the request has really used, as soon as it has the reply.
            self._batches.budget.hold(-waiting.tokens, -(waiting.usd or 0.0))
            if not waiting.result.done():
                waiting.result.set_result((batch, results.get(name)))

    async def _send_batch(self, requests: list[BatchRequest]) -> None:
        """Send a batch. NotRunError if the provider does not accept it."""
        journal = self._batches.journal
        sent = journal.begin(self._model, self._url, requests)
        try:
            upload = await self._persist(lambda: self._endpoint.upload(requests))
            sent = journal.update(sent, upload=upload)
            batch = await self._created(sent, requests)
        except ModelError as error:
            journal.update(sent, status="refused")
            hint = "; if it does not support batches, judge without --batch" if error.status in (404, 405) else ""
            raise NotRunError(f"{error}{hint}") from None
        journal.update(sent, batch=batch, status="sent")
        self._batches.report(f"{self._model}: batch {batch} with {counted(len(requests), 'request')} was sent")

    async def _created(self, sent: SentBatch, requests: list[BatchRequest]) -> str:
        """Create a batch once. If the answer is lost, the provider may have created it anyway."""
        is_first = True

        async def create() -> str:
            nonlocal is_first
            try:
                if not is_first and (batch := await self._found(sent)):
                    return batch
            except ModelError as error:
                if error.transient:
                    raise
                remedy = "the provider may have the batch; run the same command again to continue"
                raise NotRunError(f"{error}; {remedy}") from None
            is_first = False
            return await self._endpoint.create(requests, sent.upload)

        return await self._persist(create)

    async def _has_ended(self, sent: SentBatch) -> bool:
        """Return whether a batch has ended, and show how far it is. NotRunError if the provider refused it."""
        progress = await self._read(sent, self._endpoint.progress)
        if progress.problem:
            self._batches.journal.update(sent, status="refused")
            raise NotRunError(f"{self._model}: the provider refused the batch {sent.batch}: {progress.problem}")
        if not progress.ended and self._shown.get(sent.number) != progress.done:
            self._shown[sent.number] = progress.done
            self._batches.report(
                f"{self._model}: batch {sent.batch}: {progress.done:,} of {sent.requests:,} requests done"
            )
        return progress.ended

    async def _read(self, sent: SentBatch, request: Callable[[str], Awaitable[T]]) -> T:
        """Return what the provider says about a batch. NotRunError if it does not have it."""
        try:
            return await self._persist(lambda: request(sent.batch))
        except ModelError as error:
            remedy = "it continues at the provider; run the same command again to resume"
            if error.status in _GONE:
                state = self._batches.journal.folder / STATE
                remedy = f"if the provider no longer has it, delete {state} to send all requests again"
            raise NotRunError(f"{self._model}: the batch {sent.batch} cannot be read: {error}; {remedy}") from None

    async def _found(self, sent: SentBatch) -> str:
        """Return the ID of a batch that was sent, if the provider has it. NotRunError if several may be that batch."""
        journal = self._batches.journal
        candidates = await self._endpoint.find(sent.upload, sent.requests, sent.started, journal.known)
        if len(candidates) > 1:
            raise NotRunError(
                f"{self._model}: sending a batch of {counted(sent.requests, 'request')} was interrupted, and "
                f"{' and '.join(candidates)} may be that batch; cancel them at the provider and delete "
                f"{journal.folder / STATE} to send all requests again"
            )
        return candidates[0] if candidates else ""

    async def _persist(self, request: Callable[[], Awaitable[T]]) -> T:
        """Repeat a request to the batch API while it fails in passing. NotRunError if that does not end."""
        delay, failures = FIRST_LOOK, 0
        while True:
            try:
                return await request()
            except ModelError as error:
                failures += 1
                if not error.transient:
                    raise
                if failures == MAX_FAILURES:
                    raise NotRunError(
                        f"{error} ({failures} attempts); what was sent continues at the provider; run the same "
                        "command again to resume"
                    ) from None
                delay = max(delay, error.retry_after or 0.0)
            await sleep(delay)
            delay = min(2 * delay, LONGEST_LOOK)


class BatchedModel(WrapperModel):
    """A model whose requests wait for the next batch of a queue."""

    def __init__(self, model: BatchableModel, queue: BatchQueue) -> None:
        super().__init__(model)
        self._batchable = model
        self._queue = queue

    async def complete(self, request: ModelRequest) -> Reply:
        """Return the reply to a request that was sent in a batch."""
        return await self._batchable.complete_with(request, self._queue.send)

    def quotas(self) -> tuple[Quota | None, Quota | None]:
        """Return none: providers do not limit the rate within a batch."""
        return None, None


@dataclass
class Batches:
    """The batches of one command: the models that are asked in them, their journal, and the lines about them.

    ``report`` shows a line to the user. The journal is opened once the folder of the records is known.
    """

    budget: Budget
    report: Callable[[str], None]
    opened: BatchJournal | None = None
    _permits: LocalRateLimiter = field(default_factory=lambda: LocalRateLimiter(_UNLIMITED))

    @property
    def journal(self) -> BatchJournal:
        """The journal of the command."""
        assert self.opened is not None, "requests are sent once the journal is open"
        return self.opened

    def model(self, model: BatchableModel, price: Price | None) -> RetryingModel:
        """Return the model with its batches, its part of the budget, and retries, which wait for the next batch."""
        if model.identity["provider"] == "vllm":
            raise UsageError(
                f"--batch: vllm:{model.identity['name']} is your own server, which has no batches; judge without "
                "--batch, or name a model of OpenAI or Anthropic with --evaluator"
            )
        budgeted = BudgetedModel(BatchedModel(model, BatchQueue(self, model, price)), self.budget, price)
        # A retry waits for the next batch anyway, and its age says nothing about the provider.
        return RetryingModel(budgeted, self._permits, sleep=lambda _: asyncio.sleep(0), draw=min, clock=lambda: 0.0)
