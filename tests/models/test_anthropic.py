from __future__ import annotations

from typing import Any

import pytest

from pytest_toolemu.core.messages import Message, ModelRequest, ToolCall, Usage
from pytest_toolemu.models.endpoint import Parameters, parse_spec
from pytest_toolemu.models.model_pool import open_model
from tests.loopback import Call, Fault, Reply, Request, conforming, replies
from tests.loopback import Usage as Reported
from tests.loopback.fixtures import Loopback
from tests.models.conftest import ANTHROPIC_KEY, ANYTHING, PAY, QUESTION, VERDICT, RawServer, complete, opened, using

CACHED = {"type": "ephemeral"}


def test_a_plain_reply_and_its_request_are_translated(loopback: Loopback) -> None:
    usage = Reported(input=100, output=20, cached=60, cache_written=30, reasoning=5)
    server = loopback(replies([Reply("Done.", usage=usage, model="m-1")]))
    reply = complete(opened("anthropic", server.url, temperature=0.5, max_tokens=99), seed=3)
    assert (reply.text, reply.stop, reply.model, reply.request_id) == ("Done.", "stop", "m-1", "req_1")
    assert reply.usage == Usage(input=100, output=20, cached=60, cache_written=30, reasoning=5, calls=1)
    assert reply.native is None
    assert server.requests[0].body == {
        "model": "loopback",
        "max_tokens": 99,
        "system": [{"type": "text", "text": "Rules.", "cache_control": CACHED}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Pay Anna."}]}],
    }


def test_each_constant_part_has_a_cache_mark(loopback: Loopback) -> None:
    server = loopback(replies(["Done."]))
    complete(opened("anthropic", server.url), (Message(role="system", content="First."), *QUESTION))
    assert [block["cache_control"] for block in server.requests[0].body["system"]] == [CACHED, CACHED]


def test_without_a_system_prompt_the_question_has_the_cache_mark(loopback: Loopback) -> None:
    server = loopback()
    complete(opened("anthropic", server.url), QUESTION[1:])
    assert "system" not in server.requests[0].body
    assert server.requests[0].body["messages"][0]["content"][0]["cache_control"] == CACHED


def test_thinking_blocks_are_sent_back_unchanged(loopback: Loopback) -> None:
    call = Call("Bank_Pay", {"payee": "Anna", "amount": 5}, "c1")
    server = loopback(replies([Reply("Paying.", calls=(call,), thinking="Which Anna?"), "Done."]))

    async def talk(model: Any) -> Any:
        reply = await model.complete(ModelRequest(QUESTION, tools=(PAY,)))
        result = Message(role="tool", call_id="c1", content="ok")
        more = Message(role="user", content="Go on.")
        return reply, await model.complete(ModelRequest((*QUESTION, reply.as_message(), result, more), tools=(PAY,)))

    reply, last = using(opened("anthropic", server.url), talk)
    assert (reply.stop, last.text) == ("calls", "Done.")  # the server refuses thinking that was changed
    assert reply.calls == (ToolCall(id="c1", name="Bank_Pay", arguments='{"payee": "Anna", "amount": 5}'),)
    turns = server.requests[1].body["messages"]
    assert [turn["role"] for turn in turns] == ["user", "assistant", "user"]
    assert [block["type"] for block in turns[1]["content"]] == ["thinking", "text", "tool_use"]
    assert [block["type"] for block in turns[2]["content"]] == ["tool_result", "text"]
    assert turns[2]["content"][-1]["cache_control"] == CACHED


def test_turns_of_other_models_become_blocks(loopback: Loopback) -> None:
    server = loopback()
    calls = (ToolCall(id="a", name="Bank.Pay", arguments="[1"), ToolCall(id="b", name="Bank_Pay", arguments='{"x": 1}'))
    turns = (
        Message(role="assistant", calls=calls),
        Message(role="tool", call_id="a", content="no"),
        Message(role="tool", call_id="b", content="yes"),
        Message(role="assistant", content=" "),
        Message(role="user", content="Say something."),
    )
    complete(opened("anthropic", server.url), (*QUESTION, *turns))
    messages = server.requests[0].messages
    assert [(call.name, call.arguments) for call in messages[2].calls] == [
        ("Bank_Pay", {"arguments": "[1"}),
        ("Bank_Pay", {"x": 1}),
    ]
    assert [message.text for message in messages[2:]] == ["", "no", "yes", "(empty)", "Say something."]


@pytest.mark.parametrize(
    ("answer", "stop", "detail"),
    [
        (Reply("x", stop="length"), "length", ""),
        (Reply("x", stop="model_context_window_exceeded"), "length", ""),
        (Reply("", refusal="Not this."), "refusal", "Not this."),
        (Reply("", stop="refusal"), "refusal", ""),
        (Reply("x", stop="pause_turn"), "other", "pause_turn"),
    ],
)
def test_stop_reasons_are_translated(loopback: Loopback, answer: Reply, stop: str, detail: str) -> None:
    reply = complete(opened("anthropic", loopback(replies([answer])).url))
    assert (reply.stop, reply.stop_detail) == (stop, detail)


def test_unreported_usage_is_unknown(loopback: Loopback) -> None:
    reply = complete(opened("anthropic", loopback(replies([Reply("x", usage=None)])).url))
    assert reply.usage == Usage(calls=1, unknown=1)


def test_negative_numbers_of_tokens_are_unknown(loopback: Loopback) -> None:
    # The first has -1 input tokens beside those in the cache.
    usages = [Reported(input=4, output=5, cached=5), Reported(output=-1), Reported(reasoning=-1)]
    server = loopback(replies([Reply("x", usage=usage) for usage in usages]))
    reported = [complete(opened("anthropic", server.url)).usage for _ in usages]
    assert reported == [*[Usage(calls=1, unknown=1)] * 2, Usage(input=10, output=5, calls=1)]


def test_a_closed_schema_is_sent_as_far_as_the_decoder_supports_it(loopback: Loopback) -> None:
    server = loopback()
    reply = complete(opened("anthropic", server.url), schema=VERDICT)
    sent_schema = server.requests[0].schema
    assert sent_schema is not None
    assert sent_schema["title"] == "verdict"
    assert "maximum: 3" in sent_schema["properties"]["score"]["description"]
    assert VERDICT.schema_["properties"]["score"] == {"type": "integer", "minimum": 0, "maximum": 3}
    assert reply.text == '{"score": 0, "reason": ""}'


def test_a_schema_that_would_change_its_meaning_is_sent_in_words(loopback: Loopback) -> None:
    server = loopback(replies(["{}"]))
    complete(opened("anthropic", server.url), schema=ANYTHING)
    assert "output_config" not in server.requests[0].body
    assert server.requests[0].schema == {"title": ANYTHING.name, **ANYTHING.schema_}


def test_a_refused_output_config_is_sent_in_words_and_remembered(loopback: Loopback) -> None:
    def script(request: Request) -> Any:
        refusal = Fault(status=400, message="output_config: Extra inputs are not permitted")
        return refusal if "output_config" in request.body else Reply("{}")

    server = loopback(script)

    async def twice(model: Any) -> None:
        await model.complete(ModelRequest(QUESTION, schema=VERDICT))
        await model.complete(ModelRequest(QUESTION, schema=VERDICT))

    using(opened("anthropic", server.url), twice)
    assert ["output_config" in request.body for request in server.requests] == [True, False, False]
    assert "JSON Schema" in server.requests[2].messages[0].text


def test_refused_cache_marks_are_dropped(loopback: Loopback) -> None:
    def script(request: Request) -> Any:
        marked = "cache_control" in request.body["system"][0]
        fault = Fault(status=400, message="system.0.cache_control: Extra inputs are not permitted")
        return fault if marked else conforming()(request)

    assert complete(opened("anthropic", loopback(script).url)).text == "Done."


@pytest.mark.parametrize("variable", ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"])
def test_either_kind_of_credential_is_sent(raw: RawServer, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "another-key-of-the-shell")
    with raw({"/v1/models": (200, {}, '{"data": [{"id": "m"}], "has_more": false}')}) as server:
        model = open_model(parse_spec(f"anthropic:m@{server.url}"), Parameters(), {variable: ANTHROPIC_KEY})
        assert using(model, lambda m: m.served()) == ["m"]
        assert server.authorizations == [f"Bearer {ANTHROPIC_KEY}"]
