"""Sends batches, so that one that is interrupted while it is sent is not sent twice, and asks for their progress."""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from pytest_toolemu.errors import ModelError, NotRunError
from pytest_toolemu.formats.counted import counted
from pytest_toolemu.models.batches.batch_endpoint import BatchEndpoint, BatchRequest
from pytest_toolemu.models.batches.batch_journal import STATE, BatchJournal, SentBatch
from pytest_toolemu.models.retrying import MAX_FAILURES

T = TypeVar("T")

FIRST_LOOK: Final = 5.0
"""Seconds between the first two looks at a batch, or attempts; each pause is twice as long as the one before."""
LONGEST_LOOK: Final = 60.0
"""Seconds of the longest pause."""
# The statuses with which a provider says that it does not have a batch or its results.
_GONE: Final = (404, 410)


class BatchSender:
    """Sends the batches of one model. ``journal`` returns the journal, ``report`` shows a line to the user."""

    def __init__(
        self,
        endpoint: BatchEndpoint,
        model: str,
        url: str,
        journal: Callable[[], BatchJournal],
        report: Callable[[str], None],
    ) -> None:
        self._endpoint = endpoint
        self._model, self._url = model, url
        self._journal = journal
        self._report = report
        self._shown: dict[int, int] = {}

    async def send(self, requests: list[BatchRequest]) -> None:
        """Send a batch. NotRunError if the provider does not accept it."""
        journal = self._journal()
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
        self._report(f"{self._model}: batch {batch} with {counted(len(requests), 'request')} was sent")

    async def _created(self, sent: SentBatch, requests: list[BatchRequest]) -> str:
        """Create a batch once. If the answer is lost, the provider may have created it anyway."""
        is_first = True

        async def create() -> str:
            nonlocal is_first
            if not is_first and (batch := await self._surely_found(sent)):
                return batch
            is_first = False
            return await self._endpoint.create(requests, sent.upload)

        return await self._persist(create)

    async def _surely_found(self, sent: SentBatch) -> str:
        """Return the ID of a batch that may have been created. NotRunError if the provider refuses to say so."""
        try:
            return await self._found(sent)
        except ModelError as error:
            if error.transient:
                raise
            remedy = "the provider may have the batch; run the same command again to continue"
            raise NotRunError(f"{error}; {remedy}") from None

    async def confirm(self, sent: SentBatch) -> None:
        """Find out whether the provider has received a batch that an earlier call was about to send."""
        batch = await self._persist(lambda: self._found(sent))
        self._journal().update(sent, batch=batch, status="sent" if batch else "refused")

    async def ended(self, sent: SentBatch) -> bool:
        """Return whether a batch has ended, and show how far it is. NotRunError if the provider refused it."""
        try:
            progress = await self._persist(lambda: self._endpoint.progress(sent.batch))
        except ModelError as error:
            raise self._unreadable(sent, error) from None
        if progress.problem:
            self._journal().update(sent, status="refused")
            raise NotRunError(f"{self._model}: the provider refused the batch {sent.batch}: {progress.problem}")
        if not progress.ended and self._shown.get(sent.number) != progress.done:
            self._shown[sent.number] = progress.done
            self._report(f"{self._model}: batch {sent.batch}: {progress.done:,} of {sent.requests:,} requests done")
        return progress.ended

    async def fetch_results(self, sent: SentBatch) -> None:
        """Store the results of a batch that has ended. NotRunError if the provider does not have them."""
        try:
            results = await self._persist(lambda: self._endpoint.results(sent.batch))
        except ModelError as error:
            raise self._unreadable(sent, error) from None
        self._journal().store_results(sent, results)
        self._report(f"{self._model}: batch {sent.batch} has ended")

    def _unreadable(self, sent: SentBatch, error: ModelError) -> NotRunError:
        remedy = "it continues at the provider; run the same command again to resume"
        if error.status in _GONE:
            state = self._journal().folder / STATE
            remedy = f"if the provider no longer has it, delete {state} to send all requests again"
        return NotRunError(f"{self._model}: the batch {sent.batch} cannot be read: {error}; {remedy}")

    async def _found(self, sent: SentBatch) -> str:
        """Return the ID of a batch that was sent, if the provider has it. NotRunError if several may be that batch."""
        journal = self._journal()
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
