"""Chat Completions: OpenAI itself, vLLM, and everything else that speaks its protocol."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Awaitable
from typing import Any, Final

import openai

from pytest_toolemu.exchange import Message, Reply, Schema, Stop, ToolCall, ToolSpec, Usage
from pytest_toolemu.models.shapes import satisfies_strict
from pytest_toolemu.models.specs import Parameters
from pytest_toolemu.models.terms import Terms, as_object, tool_name, unicode, with_schema
from pytest_toolemu.models.wire import ROUTE_SECONDS, Address

OFFICIAL: Final = "https://api.openai.com/v1"

# Their sampling is fixed: a temperature, even the default one, is refused.
_REASONING: Final = re.compile(r"(ft:)?(o\d|gpt-5)")
_OPTIONAL: Final = frozenset(
    {"temperature", "seed", "max_tokens", "max_completion_tokens", "prompt_cache_key", "strict"}
)
_STOPS: Final[dict[str, Stop]] = {
    "stop": "stop",
    "tool_calls": "calls",
    "length": "length",
    "content_filter": "refusal",
}


class OpenAIModel:
    """A model behind Chat Completions."""

    def __init__(self, address: Address, parameters: Parameters) -> None:
        self._address = address
        self._parameters = parameters
        fixed = address.spec.provider == "openai" and _REASONING.match(address.spec.name)
        self._temperature = None if fixed else parameters.temperature
        self._terms = Terms()
        self._client = openai.AsyncOpenAI(
            api_key=address.secret or "no-key", base_url=address.base_url, timeout=None, max_retries=0
        )

    def __repr__(self) -> str:
        return f"<OpenAIModel {self._address.spec}>"

    @property
    def identity(self) -> dict[str, Any]:
        """Provider, name, base URL, and the parameters that are sent."""
        return {
            "provider": self._address.spec.provider,
            "name": self._address.spec.name,
            "base_url": self._address.base_url,
            "temperature": self._temperature,
            "seed": self._parameters.seed,
            "max_tokens": self._parameters.max_tokens,
        }

    async def complete(
        self, messages: tuple[Message, ...], *, tools: tuple[ToolSpec, ...] = (), schema: Schema | None = None
    ) -> Reply:
        """One Chat Completion; more requests only to learn what the endpoint does not take."""
        return await self._terms.settle(
            lambda constrain: self._body(messages, tools, schema, constrain), self._send, _OPTIONAL, schema
        )

    async def served(self) -> list[str]:
        """Names of the models at the URL."""
        page = await self._asked_route(self._client.models.list())
        return [model.id for model in getattr(page, "data", None) or ()]

    async def confirm(self, name: str) -> None:
        """Ask the URL for one model by name or alias."""
        await self._asked_route(self._client.models.retrieve(name))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()

    def _body(
        self, messages: tuple[Message, ...], tools: tuple[ToolSpec, ...], schema: Schema | None, constrain: bool
    ) -> dict[str, Any]:
        if schema is not None and not constrain:
            messages = with_schema(messages, schema)
        body: dict[str, Any] = {
            "model": self._address.spec.name,
            "messages": [_turn(message) for message in messages],
            "temperature": self._temperature,
            "seed": self._parameters.seed,
            self._limit_name(): self._parameters.max_tokens,
            "prompt_cache_key": _cache_key(messages),
        }
        body = {name: value for name, value in body.items() if value is not None and name not in self._terms.refused}
        if tools:
            body["tools"] = [self._tool(tool) for tool in tools]
        if schema is not None and constrain:
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {
                    "name": tool_name(schema.name),
                    "schema": schema.schema_,
                    "strict": self._strict(schema.schema_),
                },
            }
        return body

    def _limit_name(self) -> str:
        # OpenAI's newer models refuse the old name; older servers elsewhere ignore the new one without a word.
        official = self._address.base_url.startswith(OFFICIAL)
        names = ("max_completion_tokens", "max_tokens") if official else ("max_tokens", "max_completion_tokens")
        return names[names[0] in self._terms.refused]

    def _tool(self, tool: ToolSpec) -> dict[str, Any]:
        function: dict[str, Any] = {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
        }
        if self._strict(tool.parameters):
            function["strict"] = True
        return {"type": "function", "function": function}

    def _strict(self, schema: dict[str, Any]) -> bool:
        return "strict" not in self._terms.refused and satisfies_strict(schema)

    async def _asked_route(self, request: Awaitable[Any]) -> Any:
        return await self._address.send(request, openai.OpenAIError, min(self._parameters.timeout, ROUTE_SECONDS))

    async def _send(self, body: dict[str, Any]) -> Reply:
        request = self._client.chat.completions.create(**body)
        completion = await self._address.send(request, openai.OpenAIError, self._parameters.timeout)
        try:
            return _reply(completion)
        except (AttributeError, IndexError, TypeError, ValueError):
            # The SDK does not validate: a gateway's HTML page or error object with status 200 arrives here.
            pass
        raise self._address.malformed(repr(completion))


def _cache_key(messages: tuple[Message, ...]) -> str | None:
    """One key for all conversations that begin alike, so that they reach the machine that has the prefix cached."""
    first = next((message.content for message in messages if message.role == "system"), None)
    return None if first is None else hashlib.sha256(first.encode()).hexdigest()[:32]


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


def _reply(completion: Any) -> Reply:
    choice = completion.choices[0]
    message = choice.message
    calls = tuple(
        ToolCall(
            id=call.id or f"call_{index}",
            name=unicode(call.function.name),
            arguments=_raw(call.function.arguments),
        )
        for index, call in enumerate(message.tool_calls or ())
    )
    stop: Stop = _STOPS.get(choice.finish_reason, "other")
    detail = "" if stop != "other" else str(choice.finish_reason)
    if stop in ("stop", "other") and calls:  # some servers say "stop" after a call
        stop = "calls"
    if stop == "calls" and not calls:
        stop = "other"
    if message.refusal or stop == "refusal":
        stop, detail = "refusal", unicode(message.refusal) or "content_filter"
    return Reply(
        text=unicode(message.content),
        calls=calls,
        stop=stop,
        stop_detail=detail,
        usage=_usage(completion.usage),
        model=completion.model or "",
        request_id=completion._request_id,
    )


def _raw(arguments: Any) -> str:
    # Text by the protocol; some servers send the object itself.
    return unicode(arguments if isinstance(arguments, str) else json.dumps(arguments))


def _usage(usage: Any) -> Usage:
    if usage is None or usage.prompt_tokens is None or usage.completion_tokens is None:
        return Usage(calls=1, unknown=1)
    read, made = usage.prompt_tokens_details, usage.completion_tokens_details
    return Usage(
        input=usage.prompt_tokens,
        output=usage.completion_tokens,
        cached=(read and read.cached_tokens) or 0,
        cache_written=(read and read.cache_write_tokens) or 0,
        reasoning=(made and made.reasoning_tokens) or 0,
        calls=1,
    )
