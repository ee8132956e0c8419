"""Models behind OpenAI's Chat Completions protocol: OpenAI itself, vLLM, and compatible endpoints."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any, Final

import httpx2
import openai
from openai.types import Batch

from pytest_toolemu.core.messages import FinishReason, Message, ModelRequest, Reply, ToolCall, ToolSpec
from pytest_toolemu.models.batch_journal import BatchEndpoint, BatchProgress, BatchRequest, present, results_by_id
from pytest_toolemu.models.endpoint import (
    Body,
    Messages,
    as_object,
    reading,
    tool_name,
    unicode,
    usage_of,
)
from pytest_toolemu.models.sdk_model import SdkModel
from pytest_toolemu.models.strict_schema import satisfies_strict
from pytest_toolemu.settings.model_names import OFFICIAL_URLS

_STOPS: Final[dict[str, FinishReason]] = {
    "stop": "stop",
    "tool_calls": "calls",
    "length": "length",
    "content_filter": "refusal",
}


class OpenAIModel(SdkModel):
    """A model behind Chat Completions."""

    completions = "/chat/completions"
    errors = openai.OpenAIError
    optional = frozenset({"temperature", "seed", "max_tokens", "max_completion_tokens", "prompt_cache_key", "strict"})

    def _client(self, verify: Any) -> openai.AsyncOpenAI:
        hooks = {"response": [self.address.on_response]}
        return openai.AsyncOpenAI(
            api_key=self.address.secret or "no-key",
            base_url=self.address.base_url,
            timeout=None,
            max_retries=0,
            http_client=openai.DefaultAsyncHttpxClient(verify=verify, event_hooks=hooks),
        )

    def batches(self) -> OpenAIBatches:
        """Return the batches of this model."""
        return OpenAIBatches(self)

    def _body(self, request: ModelRequest, refused: frozenset[str]) -> Body:
        messages, tools, schema = request.messages, request.tools, request.schema
        strict = "strict" not in refused
        body: Body = {
            "model": self.address.spec.name,
            "messages": [_turn(message) for message in _one_system(messages)],
            "temperature": self.identity["temperature"],
            "seed": request.seed,
            self._limit_name(refused): self._parameters.max_tokens,
            "prompt_cache_key": _cache_key(messages, bool(tools)),
        }
        body = {name: value for name, value in body.items() if value is not None and name not in refused}
        if tools:
            # vLLM constrains the arguments of strict tools and accepts any schema; OpenAI only those of strict mode.
            accepts_any_schema = self.address.spec.provider == "vllm"
            body["tools"] = [_tool(tool, strict and (accepts_any_schema or _may_be_strict(tool))) for tool in tools]
        if schema is not None:
            json_schema = {
                "name": tool_name(schema.name),
                "schema": schema.schema_,
                "strict": strict and satisfies_strict(schema.schema_),
            }
            body["response_format"] = {"type": "json_schema", "json_schema": json_schema}
        return body

    def _limit_name(self, refused: frozenset[str]) -> str:
        # OpenAI's newer models refuse the old name; older servers of others silently ignore the new one.
        official = self.address.base_url.startswith(OFFICIAL_URLS["openai"])
        names = ("max_completion_tokens", "max_tokens") if official else ("max_tokens", "max_completion_tokens")
        return names[names[0] in refused]

    def read_reply(self, response: httpx2.Response) -> Reply:
        """Return the reply in a response."""
        with reading(response) as completion:
            choice = completion["choices"][0]
            if error := _error(completion, choice):
                raise ValueError(f"the reply ended with an error: {json.dumps(error, ensure_ascii=False)}")
            message = choice["message"]
            calls = tuple(_call(call, index) for index, call in enumerate(message.get("tool_calls") or ()))
            stop, detail = _stop(choice.get("finish_reason"), bool(calls))
            if message.get("refusal") or stop == "refusal":
                stop, detail = "refusal", unicode(message.get("refusal")) or "content_filter"
            return Reply(
                text=unicode(message.get("content")),
                calls=calls,
                stop=stop,
                stop_detail=detail,
                usage=usage_of(completion.get("usage")),
                model=completion.get("model") or "",
                request_id=response.headers.get("x-request-id"),
            )


def _one_system(messages: Messages) -> Messages:
    """Join all system messages into one: the chat templates of many open models accept no second one."""
    system = [message.content for message in messages if message.role == "system"]
    others = tuple(message for message in messages if message.role != "system")
    return (Message(role="system", content="\n\n".join(system)), *others) if system else others


def _cache_key(messages: Messages, grows: bool) -> str | None:
    """Return a key shared by all requests with the same beginning, which routes them to a machine that has it cached.

    OpenAI limits a key to about 15 requests per minute and machine, so a growing conversation gets a key of its own.
    """
    heads = [message.content for message in messages if message.role == "system"]
    heads += [message.content for message in messages if message.role == "user"][: 1 if grows else 0]
    return hashlib.sha256("\0".join(heads).encode()).hexdigest()[:32] if heads else None


@functools.lru_cache(4096)  # every request of a conversation has the same tools
def _may_be_strict(tool: ToolSpec) -> bool:
    return satisfies_strict(tool.parameters)


def _tool(tool: ToolSpec, strict: bool) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    if strict:
        function["strict"] = True
    return {"type": "function", "function": function}


def _turn(message: Message) -> dict[str, Any]:
    turn: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.role == "tool":
        turn["tool_call_id"] = message.call_id
    if message.calls:
        turn["content"] = message.content or None
        turn["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": tool_name(call.name), "arguments": json.dumps(as_object(call.arguments))},
            }
            for call in message.calls
        ]
    return turn


def _error(completion: dict[str, Any], choice: dict[str, Any]) -> Any:
    """Return the error that a router puts beside what a provider wrote before it failed; None if there is none."""
    failed = choice.get("finish_reason") == "error"
    return completion.get("error") or choice.get("error") or ({"finish_reason": "error"} if failed else None)


def _call(call: dict[str, Any], index: int) -> ToolCall:
    function = call["function"]
    arguments = function.get("arguments")
    if not isinstance(arguments, str):  # the protocol demands text, but some servers send the object itself
        arguments = json.dumps(arguments)
    return ToolCall(
        id=call.get("id") or f"call_{index}",
        name=unicode(function.get("name")),
        arguments=unicode(arguments),
    )


def _stop(reason: str | None, calls: bool) -> tuple[FinishReason, str]:
    stop: FinishReason = _STOPS.get(reason or "", "other")
    detail = str(reason) if stop == "other" else ""
    if stop in ("stop", "other") and calls:  # some servers report "stop" after a call
        stop = "calls"
    if stop == "calls" and not calls:
        stop = "other"
    return stop, detail


_URL: Final = "/v1/chat/completions"
_ENDED: Final = ("completed", "expired", "cancelled", "failed")
_LISTED: Final = 100


class OpenAIBatches(BatchEndpoint):
    """The batches of one model of OpenAI."""

    max_requests = 50_000
    max_bytes = 200_000_000

    async def upload(self, requests: Sequence[BatchRequest]) -> str:
        """Upload the requests as a file with one JSON object per line, and return its ID."""
        lines = [
            json.dumps({"custom_id": one.custom_id, "method": "POST", "url": _URL, "body": one.body})
            for one in requests
        ]
        file = ("toolemu-batch.jsonl", "\n".join([*lines, ""]).encode())
        return await self._model.call(
            lambda client: client.files.create(file=file, purpose="batch"), lambda stored: present(stored.id, "file ID")
        )

    async def create(self, requests: Sequence[BatchRequest], upload: str) -> str:
        """Create the batch of an uploaded file, and return its ID."""
        del requests
        return await self._model.call(
            lambda client: client.batches.create(completion_window="24h", endpoint=_URL, input_file_id=upload),
            lambda batch: present(batch.id, "batch ID"),
        )

    async def find(self, upload: str, requests: int, started: float, excluded: Collection[str]) -> list[str]:
        """Return the batch of the uploaded file, if the provider has one."""
        del requests, started
        if not upload:
            return []
        listed = await self._model.call(
            lambda client: client.batches.list(limit=_LISTED), lambda page: list(page.data or ())
        )
        return [batch.id for batch in listed if batch.input_file_id == upload and batch.id not in excluded]

    async def progress(self, batch: str) -> BatchProgress:
        """Return how far a batch is."""
        return await self._model.call(lambda client: client.batches.retrieve(batch), _progress)

    async def results(self, batch: str) -> dict[str, Any]:
        """Return the lines of the error file and of the output file by custom ID."""
        retrieved = await self._model.call(lambda client: client.batches.retrieve(batch), lambda found: found)
        results: dict[str, Any] = {}
        # An answer takes precedence over an error of the same request.
        for file in filter(None, (retrieved.error_file_id, retrieved.output_file_id)):
            results |= await self._model.call(partial(_content, file), lambda content: results_by_id(content.text))
        return results

    def read(self, result: Any) -> Reply:
        """Return the reply in a line of the output file; ModelError for a line that says why there is none."""
        response, error = result.get("response"), result.get("error")
        if not response:
            raise self.unanswered((error or {}).get("message") or (error or {}).get("code") or "no response")
        status, body = int(response["status_code"]), response.get("body")
        if status != 200:
            raise self._model.address.refusal(status, (body or {}).get("error") or body or error)
        headers = {"x-request-id": str(response.get("request_id") or "")}
        return self._model.read_reply(httpx2.Response(200, json=body, headers=headers))


async def _content(file: str, client: openai.AsyncOpenAI) -> Any:
    return await client.files.content(file)


def _progress(batch: Batch) -> BatchProgress:
    counts = batch.request_counts
    done = (counts.completed or 0) + (counts.failed or 0) if counts else 0
    problem = ""
    if batch.status == "failed":
        errors = (batch.errors and batch.errors.data) or ()
        problem = "; ".join(error.message or error.code or "unknown" for error in errors) or "no reason was given"
    return BatchProgress(batch.status in _ENDED, done, problem)
