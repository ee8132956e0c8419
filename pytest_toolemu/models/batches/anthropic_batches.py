"""Anthropic's Message Batches: a batch object with its requests, and a file of results."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final, cast

import anthropic
import httpx2
from anthropic.types.messages import MessageBatch

from pytest_toolemu.core.messages import Reply
from pytest_toolemu.errors import ModelError
from pytest_toolemu.models.batches.batch_endpoint import (
    UNANSWERED,
    BatchAccess,
    BatchProgress,
    BatchRequest,
    CreatedBatch,
    present,
    results_by_id,
)

_LISTED: Final = 1000
# Results have no HTTP status, only the type of the error that has it elsewhere.
_STATUS: Final = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "timeout_error": 504,
    "overloaded_error": 529,
}


class AnthropicBatches:
    """The batches of one model of Anthropic."""

    max_requests = 100_000
    max_bytes = 256_000_000

    def __init__(self, access: BatchAccess[anthropic.AsyncAnthropic]) -> None:
        self._access = access

    async def upload(self, requests: Sequence[BatchRequest]) -> str:
        """Return an empty ID: the requests are sent with the batch."""
        del requests
        return ""

    async def create(self, requests: Sequence[BatchRequest], upload: str) -> str:
        """Create a batch of these requests, and return its ID."""
        del upload
        listed = [{"custom_id": one.custom_id, "params": one.body} for one in requests]
        async with self._access.clients.one() as client:
            created = client.messages.batches.create(requests=cast(Any, listed))
            return await self._access.send(created, lambda batch: present(batch.id, "batch ID"))

    async def find(self, upload: str, requests: int, started: float, excluded: Collection[str]) -> list[str]:
        """Return the batches of this size that were created at that time; the list says no more about them."""
        del upload
        async with self._access.clients.one() as client:
            created = await self._access.send(
                client.messages.batches.list(limit=_LISTED), lambda page: [_created(batch) for batch in page.data or ()]
            )
        return [one.batch for one in created if one.may_be(requests, started, excluded)]

    async def progress(self, batch: str) -> BatchProgress:
        """Return how far a batch is."""
        async with self._access.clients.one() as client:
            return await self._access.send(client.messages.batches.retrieve(batch), _progress)

    async def results(self, batch: str) -> dict[str, Any]:
        """Return the results by custom ID."""
        # Not from the URL in the batch: the credential goes only to the configured endpoint.
        async with self._access.clients.one() as client:
            request = client.get(f"/v1/messages/batches/{batch}/results", cast_to=httpx2.Response)
            return await self._access.send(request, lambda response: results_by_id(response.text))

    def reply(self, result: Any) -> Reply:
        """Return the reply in a line of the results; ModelError for a request that did not succeed."""
        try:
            content = result["result"]
            kind = content["type"]
            if kind == "succeeded":
                return self._access.read_reply(httpx2.Response(200, json=content["message"]))
            if kind == "errored":
                error = content["error"]
                inner = error.get("error") or error
                raise self._access.address.refusal(_STATUS.get(str(inner.get("type")), 500), error)
            raise ModelError(
                f"{self._access.address.spec.label}: the batch did not answer the request: {kind}",
                status=UNANSWERED,
                transient=True,
            )
        except (AttributeError, LookupError, TypeError, ValueError) as problem:
            raise self._access.address.malformed(str(problem)) from None


def _progress(batch: MessageBatch) -> BatchProgress:
    counts = batch.request_counts
    done = counts.succeeded + counts.errored + counts.canceled + counts.expired
    return BatchProgress(batch.processing_status == "ended", done)


def _created(batch: MessageBatch) -> CreatedBatch:
    counts = batch.request_counts
    requests = counts.processing + counts.succeeded + counts.errored + counts.canceled + counts.expired
    return CreatedBatch(batch.id, batch.created_at.timestamp(), requests)
