"""Requests that the providers would refuse, and that the loopback server therefore refuses as well."""

from __future__ import annotations

from typing import Any

import anthropic
import openai
import pytest

from tests.loopback import (
    replies,
)
from tests.loopback.fixtures import Loopback
from tests.loopback.sdk_calls import (
    CALL,
    OPENAI_TOOLS,
    SCHEMA,
    USER,
    anthropic_format,
    ask_anthropic,
    ask_openai,
    openai_call,
    openai_format,
)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"messages": []}, "messages: a non-empty list is required"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "'robot' is no role"),
        ({"messages": [{"role": "assistant"}]}, "needs content"),
        ({"messages": [{"role": "user", "content": 7}]}, "content must be a string or a list of parts, not 7"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": ""}]}]}, "text: a non-empty str"),
        ({"messages": [openai_call({"to": "x"})]}, "arguments must be a string"),
        ({"messages": [openai_call("{}"), *USER]}, r"\['c'\] have no result"),
        ({"messages": [{"role": "tool", "tool_call_id": "c", "content": "x"}]}, "no call 'c' in the turn before"),
        ({"stream": True}, "does not stream"),
        ({"tools": [OPENAI_TOOLS[0]] * 2}, "'Pay' is not unique"),
        ({"tools": [{"type": "function", "function": {"name": "Bank.Pay"}}]}, "'Bank.Pay' does not match"),
        ({"tools": [{"type": "function", "function": {"name": "Pay", "strict": True}}]}, "function 'Pay': in context"),
        ({"response_format": openai_format({"type": "object"})}, "'additionalProperties' must be supplied"),
        ({"response_format": openai_format({**SCHEMA, "required": ["id"]})}, r"missing: \['paid'\]"),
        ({"response_format": openai_format(SCHEMA, name="my schema")}, "'my schema' does not match"),
    ],
)
def test_requests_that_break_openais_rules_are_refused(
    loopback: Loopback, options: dict[str, Any], problem: str
) -> None:
    server = loopback(replies([]))
    with pytest.raises(openai.BadRequestError, match=problem):
        ask_openai(server, **options)
    assert len(server.requests) == 1


def anthropic_turn(block: dict[str, Any]) -> list[Any]:
    return [*USER, {"role": "assistant", "content": [block]}]


CALLED = anthropic_turn(CALL)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"messages": [{"role": "assistant", "content": "x"}]}, "'assistant' may not stand here"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": ""}]}]}, "text: a non-empty str"),
        ({"messages": [*CALLED, *USER]}, r"\['t'\] have no result"),
        ({"messages": CALLED}, r"\['t'\] have no result"),
        ({"messages": anthropic_turn({**CALL, "input": "x"})}, "tool_use.input must be an object, not 'x'"),
        ({"messages": anthropic_turn({"type": "image"})}, "a block of type 'image' may not stand here"),
        ({"messages": [{"role": "user", "content": [{"type": "thinking"}]}]}, "a block of type 'thinking' may not"),
        ({"messages": [{"role": "user", "content": {"type": "text"}}]}, "a string or a list of blocks is required"),
        ({"extra_body": {"stream": True}}, "does not stream"),
        ({"extra_body": {"temperature": 0}}, "temperature: not accepted by version"),
        ({"max_tokens": 0}, "max_tokens: a non-empty int"),
        ({"tools": [{"name": "Pay", "input_schema": {"type": "string"}}]}, "must be 'object'"),
        ({"tools": [{"name": "Pay", "strict": True, "input_schema": {"type": "object"}}]}, "tools.Pay.input_schema"),
        ({"output_config": anthropic_format({"anyOf": [{"type": "object"}]})}, r"context=\('anyOf', '0'\)"),
        ({"output_config": anthropic_format({"type": "object"})}, "'additionalProperties' must be supplied"),
        ({"output_config": anthropic_format({"type": "integer", "minimum": 1})}, "'minimum' is not supported"),
        ({"output_config": anthropic_format({"type": "array", "minItems": 2})}, "'minItems' other than 0 and 1"),
    ],
)
def test_requests_that_break_anthropics_rules_are_refused(
    loopback: Loopback, options: dict[str, Any], problem: str
) -> None:
    server = loopback(replies([]))
    with pytest.raises(anthropic.BadRequestError, match=problem):
        ask_anthropic(server, **options)
    assert len(server.requests) == 1


def test_an_old_version_of_anthropics_api_accepts_a_temperature(loopback: Loopback) -> None:
    old = {"anthropic-version": "2023-06-01"}
    answer = ask_anthropic(loopback(), extra_body={"temperature": 0}, extra_headers=old)
    assert answer.content[0].text == "Done."
