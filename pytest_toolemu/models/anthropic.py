"""Models behind Anthropic's Messages protocol: Anthropic itself, and compatible endpoints."""

from __future__ import annotations

import functools
import json
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, ClassVar, Final

import anthropic
import httpx2
from anthropic.types.messages import MessageBatch

from pytest_toolemu.core.messages import FinishReason, Message, ModelRequest, Reply, ReplySchema, ToolCall
from pytest_toolemu.models.batch_journal import BatchEndpoint, BatchProgress, BatchRequest, present, results_by_id
from pytest_toolemu.models.endpoint import (
    Body,
    Messages,
    as_object,
    reading,
    tool_name,
    unicode,
    usage_of,
    with_schema_in_words,
)
from pytest_toolemu.models.sdk_model import SdkModel
from pytest_toolemu.models.strict_schema import is_closed, without_type_lists

_STOPS: Final[dict[str, FinishReason]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}
# The protocol allows four cache marks; one is reserved for the conversation.
_MARKED_SYSTEM_BLOCKS: Final = 3
_CACHED: Final = {"cache_control": {"type": "ephemeral"}}


class AnthropicModel(SdkModel):
    """A model behind the Messages protocol, which has no seed and no longer a temperature; neither is sent."""

    completions = "/v1/messages"
    errors = anthropic.AnthropicError
    optional = frozenset({"cache_control"})
    listing: ClassVar = {"limit": 1000}

    def _client(self, verify: Any) -> anthropic.AsyncAnthropic:
        address, hooks = self.address, {"response": [self.address.on_response]}
        # Without either, the SDK would look for profiles on the disk.
        bearer = address.variable == "ANTHROPIC_AUTH_TOKEN"
        return anthropic.AsyncAnthropic(
            api_key=None if bearer else address.secret or "no-key",
            auth_token=address.secret if bearer else None,
            base_url=address.base_url,
            timeout=None,
            max_retries=0,
            http_client=anthropic.DefaultAsyncHttpxClient(verify=verify, event_hooks=hooks),
        )

    async def complete_with(self, request: ModelRequest, send: Callable[[Body], Awaitable[Reply]]) -> Reply:
        """Return the reply to a request whose bodies ``send`` sends."""
        fallback = ""
        if request.schema is not None:
            try:
                output_schema(request.schema)
            except ValueError as error:
                request, fallback = with_schema_in_words(request), str(error)
        reply = await super().complete_with(request, send)
        return reply.model_copy(update={"schema_fallback": fallback}) if fallback else reply

    def batches(self) -> AnthropicBatches:
        """Return the batches of this model."""
        return AnthropicBatches(self)

    def _body(self, request: ModelRequest, refused: frozenset[str]) -> Body:
        messages, tools = request.messages, request.tools
        system = [_text(message.content) for message in messages if message.role == "system"]
        turns = _turns(messages)
        if "cache_control" not in refused:
            _mark_cached(system, turns, grows=bool(tools) or any(turn["role"] == "assistant" for turn in turns))
        body: Body = {"model": self.address.spec.name, "max_tokens": self.identity["max_tokens"], "messages": turns}
        if system:
            body["system"] = system
        if tools:
            body["tools"] = [
                {"name": tool.name, "description": tool.description, "input_schema": tool.parameters} for tool in tools
            ]
        if request.schema is not None:
            body["output_config"] = {"format": {"type": "json_schema", "schema": output_schema(request.schema)}}
        return body

    def read_reply(self, response: httpx2.Response) -> Reply:
        """Return the reply in a response."""
        with reading(response) as message:
            blocks = message["content"]
            texts = [unicode(block.get("text")) for block in blocks if block["type"] == "text"]
            calls = [
                ToolCall(id=block["id"], name=unicode(block["name"]), arguments=json.dumps(block.get("input")))
                for block in blocks
                if block["type"] == "tool_use"
            ]
            stop: FinishReason = _STOPS.get(message.get("stop_reason") or "", "other")
            # Thinking blocks must be sent back unchanged; text and calls can be rebuilt from the reply.
            can_be_rebuilt = all(block["type"] in ("text", "tool_use") for block in blocks)
            return Reply(
                text="".join(texts),
                calls=tuple(calls),
                stop=stop,
                stop_detail=_detail(message, stop),
                usage=usage_of(message.get("usage")),
                model=message.get("model") or "",
                request_id=response.headers.get("request-id"),
                native=None if can_be_rebuilt else tuple(blocks),
            )


@functools.lru_cache(256)  # every request of a judge or an emulator has the same schema
def output_schema(schema: ReplySchema) -> dict[str, Any]:
    """Return the schema as Anthropic's constrained decoding accepts it. ValueError says why it cannot be expressed.

    All objects are closed there. Bounds that are not enforced (lengths, ranges) move into descriptions, so callers
    still validate the reply against the schema itself.
    """
    if not is_closed(schema.schema_):
        raise ValueError("Anthropic's structured output cannot express an object that may have any members")
    try:
        # The format has no field for the name, so it becomes the title.
        return anthropic.transform_schema({**without_type_lists(schema.schema_), "title": schema.name})
    except (ValueError, TypeError, AssertionError) as error:
        why = str(error) or type(error).__name__
        raise ValueError(f"the Anthropic SDK cannot convert the schema ({why})") from None


def _turns(messages: Messages) -> list[dict[str, Any]]:
    """Group messages into alternating turns: results of calls belong to the user, with the user messages after them."""
    turns: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "system":
            continue
        role = "assistant" if message.role == "assistant" else "user"
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += _blocks(message)
        else:
            turns.append({"role": role, "content": _blocks(message)})
    return turns


def _blocks(message: Message) -> list[dict[str, Any]]:
    if message.role == "tool":
        return [{"type": "tool_result", "tool_use_id": message.call_id, "content": message.content}]
    if message.native is not None:
        return [dict(block) for block in message.native]
    blocks = [_text(message.content)] if message.content.strip() or not message.calls else []
    blocks += [
        {"type": "tool_use", "id": call.id, "name": tool_name(call.name), "input": as_object(call.arguments)}
        for call in message.calls
    ]
    return blocks


def _text(content: str) -> dict[str, Any]:
    # The endpoint refuses a block without text, but a model may have written nothing.
    return {"type": "text", "text": content if content.strip() else "(empty)"}


def _mark_cached(system: list[dict[str, Any]], turns: list[dict[str, Any]], *, grows: bool) -> None:
    """Mark the end of each constant part and, in a growing conversation, of the part that the next request repeats."""
    for block in system[-_MARKED_SYSTEM_BLOCKS:]:
        block.update(_CACHED)
    if turns and (grows or not system):
        last = turns[-1]["content"][-1]
        if last["type"] in ("text", "tool_result"):
            last |= _CACHED


def _detail(message: dict[str, Any], stop: FinishReason) -> str:
    if stop == "refusal":
        details = message.get("stop_details") or {}
        return unicode(": ".join(text for part in ("category", "explanation") if (text := details.get(part))))
    return str(message.get("stop_reason")) if stop == "other" else ""


_LISTED: Final = 1000
# Seconds: by how much clocks may differ, and the time in which a batch that was sent is created, with that difference.
_SKEW: Final = 300.0
_CREATION: Final = 1200.0
# Results have no HTTP status, only the type of the error that has it elsewhere. Other errors are transient.
_STATUS: Final = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
}


class AnthropicBatches(BatchEndpoint):
    """The batches of one model of Anthropic."""

    max_requests = 100_000
    max_bytes = 256_000_000

    async def create(self, requests: Sequence[BatchRequest], upload: str) -> str:
        """Create a batch of these requests, and return its ID."""
        del upload
        listed = [{"custom_id": one.custom_id, "params": one.body} for one in requests]
        return await self._model.call(
            lambda client: client.messages.batches.create(requests=listed),
            lambda batch: present(batch.id, "batch ID"),
        )

    async def find(self, upload: str, requests: int, started: float, excluded: Collection[str]) -> list[str]:
        """Return the batches of this size that were created at that time; the list says no more about them."""
        del upload
        listed = await self._model.call(
            lambda client: client.messages.batches.list(limit=_LISTED), lambda page: list(page.data or ())
        )
        return [
            batch.id
            for batch in listed
            if _size(batch) == requests
            and batch.id not in excluded
            and -_SKEW <= batch.created_at.timestamp() - started <= _CREATION
        ]

    async def progress(self, batch: str) -> BatchProgress:
        """Return how far a batch is."""
        return await self._model.call(lambda client: client.messages.batches.retrieve(batch), _progress)

    async def results(self, batch: str) -> dict[str, Any]:
        """Return the results by custom ID."""
        # Not from the URL in the batch: the credential goes only to the configured endpoint.
        path = f"/v1/messages/batches/{batch}/results"
        return await self._model.call(
            lambda client: client.get(path, cast_to=httpx2.Response), lambda response: results_by_id(response.text)
        )

    def read(self, result: Any) -> Reply:
        """Return the reply in a line of the results; ModelError for a request that did not succeed."""
        content = result["result"]
        kind = content["type"]
        if kind == "succeeded":
            return self._model.read_reply(httpx2.Response(200, json=content["message"]))
        if kind == "errored":
            error = content["error"]
            inner = error.get("error") or error
            raise self._model.address.refusal(_STATUS.get(str(inner.get("type")), 500), error)
        raise self.unanswered(kind)


def _progress(batch: MessageBatch) -> BatchProgress:
    return BatchProgress(batch.processing_status == "ended", _size(batch) - batch.request_counts.processing)


def _size(batch: MessageBatch) -> int:
    counts = batch.request_counts
    return counts.processing + counts.succeeded + counts.errored + counts.canceled + counts.expired
