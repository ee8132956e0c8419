"""Requests to the loopback server with the real SDKs, for tests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anthropic
import openai
import pytest

from tests.loopback import (
    LoopbackServer,
)

T = TypeVar("T")


USER = [{"role": "user", "content": "Pay Anna."}]


SCHEMA: dict[str, Any] = {
    "title": "emulation",
    "type": "object",
    "properties": {"id": {"type": "string", "enum": ["p1"]}, "paid": {"type": "boolean"}},
    "required": ["id", "paid"],
    "additionalProperties": False,
}


PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"to": {"type": "string", "format": "email"}, "note": {"type": "string"}},
    "required": ["to"],
    "additionalProperties": False,
}


PARTS = {"Pay": "Pays somebody.", "Ask": "Asks the user."}


OPENAI_TOOLS = [
    {"type": "function", "function": {"name": name, "description": text, "parameters": PARAMETERS}}
    for name, text in PARTS.items()
]


def ask_openai(
    server: LoopbackServer, messages: Any = USER, *, key: str = "sk", retries: int = 0, **options: Any
) -> Any:
    async def ask(client: openai.AsyncOpenAI) -> Any:
        return await client.chat.completions.create(model="gpt-x", messages=messages, **options)

    return with_openai(server, ask, key=key, retries=retries)


def ask_anthropic(
    server: LoopbackServer, messages: Any = USER, *, key: str = "sk", retries: int = 0, **options: Any
) -> Any:
    async def ask(client: anthropic.AsyncAnthropic) -> Any:
        return await client.messages.create(**{"model": "claude-x", "messages": messages, "max_tokens": 99, **options})

    return with_anthropic(server, ask, key=key, retries=retries)


def with_openai(
    server: LoopbackServer,
    use: Callable[[openai.AsyncOpenAI], Awaitable[T]],
    *,
    key: str = "sk",
    retries: int = 0,
    timeout: float = 60,
) -> T:
    async def session() -> T:
        base_url = f"{server.url}/v1"
        async with openai.AsyncOpenAI(api_key=key, base_url=base_url, max_retries=retries, timeout=timeout) as client:
            return await use(client)

    return asyncio.run(session())


def with_anthropic(
    server: LoopbackServer,
    use: Callable[[anthropic.AsyncAnthropic], Awaitable[T]],
    *,
    key: str = "sk",
    retries: int = 0,
    timeout: float = 60,
) -> T:
    async def session() -> T:
        async with anthropic.AsyncAnthropic(
            api_key=key, base_url=server.url, max_retries=retries, timeout=timeout
        ) as client:
            return await use(client)

    return asyncio.run(session())


def openai_format(schema: dict[str, Any], *, name: str = "emulation", strict: bool = True) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": name, "schema": schema, "strict": strict}}


def anthropic_format(schema: dict[str, Any]) -> dict[str, Any]:
    return {"format": {"type": "json_schema", "schema": schema}}


def expect_bad_request(
    ask: Callable[..., Any], server: LoopbackServer, *, match: str = "failed", **options: Any
) -> None:
    with pytest.raises((openai.BadRequestError, anthropic.BadRequestError), match=match):
        ask(server, **options)


def openai_call(arguments: Any) -> dict[str, Any]:
    call = {"id": "c", "type": "function", "function": {"name": "Pay", "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


CALL = {"type": "tool_use", "id": "t", "name": "Pay", "input": {}}
