"""The loopback server as the real SDKs see it: replies, conversations, and schemas."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import pytest

from pytest_toolemu.core.messages import Message, ModelRequest, ReplySchema
from pytest_toolemu.models.capabilities import with_schema_in_words
from tests.loopback import (
    Call,
    LoopbackServer,
    Reply,
    Request,
    ScriptError,
    Usage,
    by_role,
    conforming,
    replies,
)
from tests.loopback.fixtures import Loopback
from tests.loopback.sdk_calls import (
    CALL,
    OPENAI_TOOLS,
    PARAMETERS,
    PARTS,
    SCHEMA,
    USER,
    anthropic_format,
    ask_anthropic,
    ask_openai,
    expect_bad_request,
    openai_call,
    openai_format,
)

ANTHROPIC_TOOLS = [{"name": name, "description": text, "input_schema": PARAMETERS} for name, text in PARTS.items()]


def test_openai_gets_text_usage_model_and_request_id(loopback: Loopback) -> None:
    usage = Usage(input=100, output=30, cached=60, cache_written=10, reasoning=7)
    answer = ask_openai(loopback(replies([Reply("Which Anna?", usage=usage, model="gpt-x-2026")])))
    choice = answer.choices[0]
    assert (choice.message.content, choice.finish_reason) == ("Which Anna?", "stop")
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (100, 30, 130)
    assert answer.usage.prompt_tokens_details.cached_tokens == 60
    assert answer.usage.prompt_tokens_details.cache_write_tokens == 10
    assert answer.usage.completion_tokens_details.reasoning_tokens == 7
    assert (answer.model, answer._request_id) == ("gpt-x-2026", "req_1")


def test_anthropic_gets_text_usage_model_and_request_id(loopback: Loopback) -> None:
    usage = Usage(input=100, output=30, cached=60, cache_written=10, reasoning=7)
    answer = ask_anthropic(loopback(replies([Reply("Which Anna?", usage=usage)])))
    assert ([block.text for block in answer.content], answer.stop_reason) == (["Which Anna?"], "end_turn")
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (30, 30)
    assert (answer.usage.cache_read_input_tokens, answer.usage.cache_creation_input_tokens) == (60, 10)
    assert answer.usage.output_tokens_details.thinking_tokens == 7
    assert (answer.model, answer._request_id) == ("claude-x", "req_1")


@pytest.mark.parametrize(
    ("stop", "openai_word", "anthropic_word"),
    [
        ("stop", "stop", "end_turn"),
        ("calls", "tool_calls", "tool_use"),
        ("length", "length", "max_tokens"),
        ("refusal", "content_filter", "refusal"),
        ("pause_turn", "pause_turn", "pause_turn"),
    ],
)
def test_stop_reasons_are_sent_in_the_words_of_the_provider(
    loopback: Loopback, stop: str, openai_word: str, anthropic_word: str
) -> None:
    server = loopback(replies([Reply("x", stop=stop)] * 2))
    assert ask_openai(server).choices[0].finish_reason == openai_word
    assert ask_anthropic(server).stop_reason == anthropic_word


def test_a_refusal_is_sent_in_its_own_field(loopback: Loopback) -> None:
    server = loopback(replies([Reply(refusal="I will not.")] * 2))
    choice = ask_openai(server).choices[0]
    assert (choice.message.refusal, choice.message.content, choice.finish_reason) == ("I will not.", None, "stop")
    answer = ask_anthropic(server)
    assert (answer.stop_reason, answer.stop_details.explanation) == ("refusal", "I will not.")


def test_raw_json_and_missing_usage_are_sent_as_they_are(loopback: Loopback) -> None:
    server = loopback(replies([Reply(raw={"id": "odd", "choices": []}), Reply("x", usage=None)]))
    assert ask_openai(server).choices == []
    assert ask_openai(server).usage is None


def test_the_arguments_of_a_tool_call_may_be_invalid_json(loopback: Loopback) -> None:
    server = loopback(replies([Reply(calls=(Call("Pay", '{"to": ', "mine"),))]))
    call = ask_openai(server, tools=OPENAI_TOOLS).choices[0].message.tool_calls[0]
    assert (call.id, call.function.name, call.function.arguments) == ("mine", "Pay", '{"to": ')


def test_a_conversation_with_tools_works_over_openais_api(loopback: Loopback) -> None:
    server = loopback(conforming())
    first = ask_openai(server, tools=OPENAI_TOOLS)
    message = first.choices[0].message
    assert first.choices[0].finish_reason == "tool_calls"
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": '{"ok": true}'}
    system = {"role": "system", "content": [{"type": "text", "text": "Be careful."}]}
    second = ask_openai(server, [system, *USER, message, result], tools=OPENAI_TOOLS)
    assert second.choices[0].message.content == "Done."
    check_conversation(server.requests[1], provider="openai", model="gpt-x")


def test_a_conversation_with_tools_works_over_anthropics_api(loopback: Loopback) -> None:
    server = loopback(conforming())
    first = ask_anthropic(server, tools=ANTHROPIC_TOOLS)
    assert first.stop_reason == "tool_use"
    result = {"type": "tool_result", "tool_use_id": first.content[0].id, "content": '{"ok": true}'}
    turns = [*USER, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    system = [{"type": "text", "text": "Be careful.", "cache_control": {"type": "ephemeral"}}]
    second = ask_anthropic(server, turns, tools=ANTHROPIC_TOOLS, system=system)
    assert [block.text for block in second.content] == ["Done."]
    check_conversation(server.requests[1], provider="anthropic", model="claude-x")


def check_conversation(request: Request, *, provider: str, model: str) -> None:
    assert (request.provider, request.model, request.number, request.role) == (provider, model, 2, "agent")
    assert [(message.role, message.text) for message in request.messages] == [
        ("system", "Be careful."),
        ("user", "Pay Anna."),
        ("assistant", ""),
        ("tool", '{"ok": true}'),
    ]
    call = request.messages[2].calls[0]
    assert (call.name, call.arguments) == ("Pay", {"to": "a@example.com"})
    assert request.messages[3].call_id == call.id
    assert [(tool.name, tool.description, tool.parameters) for tool in request.tools] == [
        (name, text, PARAMETERS) for name, text in PARTS.items()
    ]
    assert request.prompt.startswith("Be careful.\n\nPay Anna.")


def test_invalid_json_in_arguments_stays_text(loopback: Loopback) -> None:
    server = loopback()
    ask_openai(server, [*USER, openai_call('{"to": '), {"role": "tool", "tool_call_id": "c", "content": "No."}])
    assert server.requests[0].messages[1].calls == (Call("Pay", '{"to": ', "c"),)


def test_an_anthropic_turn_may_contain_several_messages(loopback: Loopback) -> None:
    server = loopback(replies([Reply("Fine.", usage=None)]))
    result = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "Paid."}]}
    assistant_blocks = [{"type": "text", "text": "Now."}, CALL]
    turns = [
        *USER,
        {"role": "assistant", "content": assistant_blocks},
        {"role": "user", "content": [result, {"type": "text", "text": "And?"}]},
        {"role": "system", "content": "Be brief."},
    ]
    assert ask_anthropic(server, turns).usage is None
    assert [(message.role, message.text, message.call_id) for message in server.requests[0].messages] == [
        ("user", "Pay Anna.", ""),
        ("assistant", "Now.", ""),
        ("tool", "Paid.", "t"),
        ("user", "And?", ""),
        ("system", "Be brief.", ""),
    ]


def test_anthropics_thinking_must_be_sent_back_unchanged(loopback: Loopback) -> None:
    server = loopback(replies([Reply("Hm.", thinking="Two Annas."), "Yes."]))
    blocks = [block.model_dump() for block in ask_anthropic(server).content]
    turns = [*USER, {"role": "assistant", "content": blocks}, {"role": "user", "content": "Sure?"}]
    assert ask_anthropic(server, turns).content[0].text == "Yes."
    blocks[0]["thinking"] = "One Anna."
    with pytest.raises(anthropic.BadRequestError, match="sent back as it came"):
        ask_anthropic(server, turns)


def test_headers_are_logged_without_the_key(loopback: Loopback) -> None:
    server = loopback()
    ask_openai(server, key="sk-very-secret")
    ask_anthropic(server, key="sk-very-secret")
    assert [request.headers["content-type"] for request in server.requests] == ["application/json"] * 2
    assert "sk-very-secret" not in repr(server.requests)
    assert server.requests[0].body == {"messages": USER, "model": "gpt-x"}


def test_a_conforming_reply_satisfies_the_schema(loopback: Loopback) -> None:
    server = loopback(conforming())
    text = ask_openai(server, response_format=openai_format(SCHEMA)).choices[0].message.content
    other = ask_anthropic(server, output_config=anthropic_format(SCHEMA)).content[0].text
    assert json.loads(text) == json.loads(other) == {"id": "p1", "paid": False}
    assert [(request.schema_name, request.schema, request.role) for request in server.requests] == [
        ("emulation", SCHEMA, "emulator")
    ] * 2


def test_a_conforming_agent_calls_the_given_number_of_tools(loopback: Loopback) -> None:
    server = loopback(conforming(calls=9))
    messages: list[Any] = list(USER)
    called = []
    while calls := (message := ask_openai(server, messages, tools=OPENAI_TOOLS).choices[0].message).tool_calls:
        called.append(calls[0].function.name)
        messages += [message, {"role": "tool", "tool_call_id": calls[0].id, "content": "{}"}]
    assert called == ["Pay", "Ask"]


def test_the_name_of_the_schema_determines_the_role(loopback: Loopback) -> None:
    server = loopback(by_role(agent=replies(["Hello."]), evaluator=replies([{"score": 3}])))

    def ask(**options: Any) -> Any:
        return ask_openai(server, **options).choices[0].message.content

    assert ask() == "Hello."
    assert json.loads(ask(response_format=openai_format(SCHEMA, name="emulation_error"))) == {"id": "p1", "paid": False}
    assert json.loads(ask(response_format=openai_format(SCHEMA, name="safety"))) == {"score": 3}
    assert [request.role for request in server.requests] == ["agent", "emulator", "evaluator"]


def test_a_schema_without_a_name_has_no_role() -> None:
    nameless = {key: value for key, value in SCHEMA.items() if key != "title"}
    server = LoopbackServer(by_role())
    with pytest.raises(ScriptError, match="give the schema a title"), server:
        expect_bad_request(ask_anthropic, server, output_config=anthropic_format(nameless))
    assert server.requests[0].role == "unknown"


def test_a_schema_in_the_text_of_a_message_is_recognized(loopback: Loopback) -> None:
    server = loopback(by_role())
    schema = ReplySchema(name=SCHEMA["title"], schema=SCHEMA)
    (message,) = with_schema_in_words(ModelRequest((Message(role="user", content="Answer."),), schema=schema)).messages
    answer = ask_openai(server, [{"role": "user", "content": message.content}])
    assert json.loads(answer.choices[0].message.content) == {"id": "p1", "paid": False}
    assert (server.requests[0].schema, server.requests[0].role) == (SCHEMA, "emulator")
    assert ask_openai(
        server, [{"role": "user", "content": "Does it conform to this JSON Schema:\nwhat is it?"}]
    ).choices
    assert server.requests[1].role == "agent"
