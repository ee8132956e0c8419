"""OpenAI's Batch API: an uploaded file of requests, a batch object, an output file, and an error file."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any, Final

import httpx2
import openai
from openai.types import Batch

from pytest_toolemu.core.messages import Reply
from pytest_toolemu.errors import ModelError
from pytest_toolemu.models.batches.batch_endpoint import (
    UNANSWERED,
    BatchAccess,
    BatchProgress,
    BatchRequest,
    present,
    results_by_id,
)

_URL: Final = "/v1/chat/completions"
_ENDED: Final = ("completed", "expired", "cancelled", "failed")
_LISTED: Final = 100


class OpenAIBatches:
    """The batches of one model of OpenAI."""

    max_requests = 50_000
    max_bytes = 200_000_000

    def __init__(self, access: BatchAccess[openai.AsyncOpenAI]) -> None:
        self._access = access

    async def upload(self, requests: Sequence[BatchRequest]) -> str:
        """Upload the requests as a file with one JSON object per line, and return its ID."""
        lines = [
            json.dumps({"custom_id": one.custom_id, "method": "POST", "url": _URL, "body": one.body})
            for one in requests
        ]
        file = ("toolemu-batch.jsonl", "\n".join([*lines, ""]).encode())
        async with self._access.clients.one() as client:
            upload = client.files.create(file=file, purpose="batch")
            return await self._access.send(upload, lambda stored: present(stored.id, "file ID"))

    async def create(self, requests: Sequence[BatchRequest], upload: str) -> str:
        """Create the batch of an uploaded file, and return its ID."""
        del requests
        async with self._access.clients.one() as client:
            created = client.batches.create(completion_window="24h", endpoint=_URL, input_file_id=upload)
            return await self._access.send(created, lambda batch: present(batch.id, "batch ID"))

    async def find(self, upload: str, requests: int, started: float, excluded: Collection[str]) -> list[str]:
        """Return the batch of the uploaded file, if the provider has one."""
        del requests, started
        if not upload:
            return []
        async with self._access.clients.one() as client:
            return await self._access.send(
                client.batches.list(limit=_LISTED),
                lambda page: [
                    batch.id for batch in page.data or () if batch.input_file_id == upload and batch.id not in excluded
                ],
            )

    async def progress(self, batch: str) -> BatchProgress:
        """Return how far a batch is."""
        return _progress(await self._retrieved(batch))

    async def results(self, batch: str) -> dict[str, Any]:
        """Return the lines of the error file and of the output file by custom ID."""
        retrieved = await self._retrieved(batch)
        results: dict[str, Any] = {}
        # An answer takes precedence over an error of the same request.
        for file in (retrieved.error_file_id, retrieved.output_file_id):
            if file:
                async with self._access.clients.one() as client:
                    results |= await self._access.send(
                        client.files.content(file), lambda content: results_by_id(content.text)
                    )
        return results

    def reply(self, result: Any) -> Reply:
        """Return the reply in a line of the output file; ModelError for a line that says why there is none."""
        try:
            response, error = result.get("response"), result.get("error")
            if not response:
                message = (error or {}).get("message") or (error or {}).get("code") or "no response"
                raise ModelError(
                    f"{self._access.address.spec.label}: the batch did not answer the request: {message}",
                    status=UNANSWERED,
                    transient=True,
                )
            status, body = int(response["status_code"]), response.get("body")
            if status != 200:
                raise self._access.address.refusal(status, (body or {}).get("error") or body or error)
            headers = {"x-request-id": str(response.get("request_id") or "")}
            return self._access.read_reply(httpx2.Response(200, json=body, headers=headers))
        except (AttributeError, LookupError, TypeError, ValueError) as problem:
            raise self._access.address.malformed(str(problem)) from None

    async def _retrieved(self, batch: str) -> Batch:
        async with self._access.clients.one() as client:
            return await self._access.send(client.batches.retrieve(batch), lambda retrieved: retrieved)


def _progress(batch: Batch) -> BatchProgress:
    counts = batch.request_counts
    done = (counts.completed or 0) + (counts.failed or 0) if counts else 0
    problem = ""
    if batch.status == "failed":
        errors = (batch.errors and batch.errors.data) or ()
        problem = "; ".join(error.message or error.code or "unknown" for error in errors) or "no reason was given"
    return BatchProgress(batch.status in _ENDED, done, problem)
