"""Collects the requests of one model into batches, follows the batches, and hands out the results.

A batch is sent when nothing more is going on in this process: all first requests of a number of evaluations are one
batch, and all requests for corrections of their replies are the next one.
"""

from __future__ import annotations

import asyncio
import json
from asyncio import sleep
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pytest_toolemu.core import case_timer
from pytest_toolemu.core.messages import Reply, Usage
from pytest_toolemu.errors import ModelError, NotRunError, ToolemuError
from pytest_toolemu.models.batches.batch_endpoint import UNANSWERED, BatchEndpoint, BatchRequest
from pytest_toolemu.models.batches.batch_journal import BatchJournal
from pytest_toolemu.models.batches.batch_sender import FIRST_LOOK, LONGEST_LOOK, BatchSender
from pytest_toolemu.models.capabilities import Body
from pytest_toolemu.models.pricing import Price, usd_for_budget
from pytest_toolemu.scheduling.budget import Budget

# Turns of the event loop without a new request after which every evaluation waits for a reply.
_QUIET_TURNS: Final = 20
# For the budget: fewer characters per token than English and JSON have, and the tokens of a long judgment.
_CHARACTERS: Final = 3
_OUTPUT: Final = 1_500
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
    """The requests of one model that wait for their batches.

    ``name`` is the model's name and URL, ``journal`` returns the journal of the command, ``price`` is that of batches,
    or None if it is unknown, and ``report`` shows a line to the user.
    """

    def __init__(
        self,
        endpoint: BatchEndpoint,
        name: tuple[str, str],
        journal: Callable[[], BatchJournal],
        budget: Budget,
        price: Price | None,
        report: Callable[[str], None],
    ) -> None:
        self._endpoint = endpoint
        self._model = name[0]
        self._sender = BatchSender(endpoint, *name, journal, report)
        self._journal = journal
        self._budget = budget
        self._price = price
        self._queued: dict[str, _Waiting] = {}
        self._sent: dict[str, _Waiting] = {}
        self._arrivals = 0
        self._worker: asyncio.Task[None] | None = None

    async def send(self, body: Body) -> Reply:
        """Send a request with the next batch, and return its reply. The timer of the case is paused meanwhile.

        ModelError if the request fails; NotRunError if the batch cannot be sent, or cannot be followed any longer.
        """
        request = BatchRequest(self._journal().custom_id(body), body)
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
        except ToolemuError as error:
            message = str(error)
            self._give_up(lambda: NotRunError(message))
        except OSError as error:
            unwritten = (
                f"{self._journal().folder}: the state of the batches cannot be written ({error.strerror}), so no more "
                "requests were sent; free disk space or restore the folder, and run the same command again"
            )
            self._give_up(lambda: NotRunError(unwritten))
        except Exception as error:
            failure = error
            self._give_up(lambda: failure)

    def _give_up(self, failure: Callable[[], Exception]) -> None:
        for waiting in (*self._queued.values(), *self._sent.values()):
            if not waiting.result.done():
                waiting.result.set_exception(failure())
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
        journal = self._journal()
        for sent in dict.fromkeys(filter(None, map(journal.batch_of, self._queued))):
            # An earlier call ended after it had stored the requests and before it knew the ID of their batch.
            if not sent.batch:
                await self._sender.confirm(sent)
        fresh = []
        for name, waiting in list(self._queued.items()):
            if journal.batch_of(name):
                self._move_to_sent(waiting)
            else:
                fresh.append(waiting)
        for chunk in self._chunks(self._covered(fresh)):
            await self._sender.send(chunk)
        if fresh and not self._sent:
            raise NotRunError(self._budget.too_small)

    def _covered(self, fresh: Sequence[_Waiting]) -> Iterator[_Waiting]:
        """Yield the requests that the budget covers, as sent; the others stay in the queue."""
        for waiting in fresh:
            if not self._budget.covers(waiting.tokens, waiting.usd):
                return
            self._move_to_sent(waiting)
            yield waiting

    def _move_to_sent(self, waiting: _Waiting) -> None:
        self._budget.hold(waiting.tokens, waiting.usd)
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
        journal, has_ended = self._journal(), False
        for sent in list(dict.fromkeys(filter(None, map(journal.batch_of, self._sent)))):
            if sent.status != "ended":
                if not await self._sender.ended(sent):
                    continue
                await self._sender.fetch_results(sent)
            self._hand_out(sent.number, sent.batch, journal.results(sent))
            has_ended = True
        return has_ended

    def _hand_out(self, number: int, batch: str, results: dict[str, Any]) -> None:
        """Hand out the results of a batch. A request without a result counts as not answered."""
        for name, waiting in list(self._sent.items()):
            sent = self._journal().batch_of(name)
            if sent is None or sent.number != number:
                continue
            del self._sent[name]
            # The model around this queue reports what the request has really used, as soon as it has the reply.
            self._budget.hold(-waiting.tokens, -(waiting.usd or 0.0))
            if not waiting.result.done():
                waiting.result.set_result((batch, results.get(name)))
