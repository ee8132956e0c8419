from __future__ import annotations

from typing import Any

import pytest

from pytest_toolemu.core.messages import Message, ModelRequest, ReplySchema, ToolCall, ToolSpec, Usage
from pytest_toolemu.errors import ModelError
from pytest_toolemu.models.strict_schema import satisfies_strict
from pytest_toolemu.settings.model_names import OFFICIAL_URLS
from tests.loopback import Call, Fault, Reply, Request, conforming, replies
from tests.loopback import Usage as Reported
from tests.loopback.fixtures import Loopback
from tests.models.conftest import ANYTHING, PAY, QUESTION, VERDICT, complete, opened, using


def refusing(*names: str, status: int = 400) -> Any:
    """Return a script that refuses requests with any of these fields, naming the first, and answers all others."""

    def script(request: Request) -> Any:
        present = [name for name in names if name in request.body]
        if present:
            return Fault(status=status, message=f"Unsupported parameter: {present[0]!r} is not supported here.")
        return conforming()(request)

    return script


def test_a_plain_reply_and_its_request_are_translated(loopback: Loopback) -> None:
    answer = Reply("Done.", usage=Reported(input=100, output=20, cached=60, cache_written=30, reasoning=5), model="m-1")
    server = loopback(replies([answer]))
    reply = complete(opened("openai", server.url, temperature=0.5, max_tokens=99), seed=3)
    assert (reply.text, reply.stop, reply.model, reply.request_id) == ("Done.", "stop", "m-1", "req_1")
    assert reply.usage == Usage(input=100, output=20, cached=60, cache_written=30, reasoning=5, calls=1)
    body = server.requests[0].body
    assert (body["temperature"], body["seed"], body["max_tokens"]) == (0.5, 3, 99)
    assert body["messages"] == [{"role": "system", "content": "Rules."}, {"role": "user", "content": "Pay Anna."}]


def test_two_system_messages_are_sent_as_one(loopback: Loopback) -> None:
    server = loopback(replies(["Done."]))
    complete(opened("openai", server.url), (Message(role="system", content="First."), *QUESTION))
    assert [turn["content"] for turn in server.requests[0].body["messages"]] == ["First.\n\nRules.", "Pay Anna."]


def test_conversations_with_the_same_beginning_share_a_cache_key(loopback: Loopback) -> None:
    server = loopback()

    async def ask(model: Any) -> None:
        await model.complete(ModelRequest(QUESTION))
        await model.complete(ModelRequest((QUESTION[0], Message(role="user", content="Pay Bob."))))
        await model.complete(ModelRequest((Message(role="system", content="Other."), QUESTION[1])))

    using(opened("openai", server.url), ask)
    first, second, third = (request.body["prompt_cache_key"] for request in server.requests)
    assert first == second != third


def test_calls_and_their_results_make_a_round_trip(loopback: Loopback) -> None:
    answer = Reply(
        "Paying.", calls=(Call("Bank_Pay", {"payee": "Anna", "amount": 5}, "c1"), Call("Bank_Pay", "{", "c2"))
    )
    server = loopback(replies([answer, "Done."]))

    async def talk(model: Any) -> Any:
        reply = await model.complete(ModelRequest(QUESTION, tools=(PAY,)))
        results = tuple(Message(role="tool", call_id=call.id, content="ok") for call in reply.calls)
        return reply, await model.complete(ModelRequest((*QUESTION, reply.as_message(), *results), tools=(PAY,)))

    reply, last = using(opened("openai", server.url), talk)
    assert reply.stop == "calls"
    assert reply.calls[1] == ToolCall(id="c2", name="Bank_Pay", arguments="{")
    assert last.text == "Done."
    turn = server.requests[1].messages[2]
    assert (turn.text, [call.arguments for call in turn.calls]) == (
        "Paying.",
        [{"payee": "Anna", "amount": 5}, {"arguments": "{"}],  # servers reject arguments that are not a JSON object
    )


def test_an_invented_tool_name_can_be_sent_back(loopback: Loopback) -> None:
    server = loopback()
    call = ToolCall(id="c", name="Bank.Pay now!", arguments="{}")
    turns = (Message(role="assistant", calls=(call,)), Message(role="tool", call_id="c", content="no such tool"))
    complete(opened("openai", server.url), (*QUESTION, *turns))
    assert server.requests[0].messages[2].calls[0].name == "Bank_Pay_now_"


@pytest.mark.parametrize(
    ("answer", "stop", "detail"),
    [
        (Reply("x", stop="length"), "length", ""),
        (Reply("", refusal="I will not."), "refusal", "I will not."),
        (Reply("", stop="refusal"), "refusal", "content_filter"),
        (Reply("x", stop="odd"), "other", "odd"),
        (Reply("", calls=(Call("Bank_Pay", {}),), stop="stop"), "calls", ""),
        (Reply("x", stop="calls"), "other", ""),
    ],
)
def test_stop_reasons_are_translated(loopback: Loopback, answer: Reply, stop: str, detail: str) -> None:
    reply = complete(opened("openai", loopback(replies([answer])).url))
    assert (reply.stop, reply.stop_detail) == (stop, detail)


def test_unreported_usage_is_unknown(loopback: Loopback) -> None:
    reply = complete(opened("openai", loopback(replies([Reply("x", usage=None)])).url))
    assert reply.usage == Usage(calls=1, unknown=1)


def test_negative_numbers_of_tokens_are_unknown(loopback: Loopback) -> None:
    usages = [Reported(input=-1, output=5), Reported(input=10, output=-1), Reported(cached=-1, reasoning=-1)]
    server = loopback(replies([Reply("x", usage=usage) for usage in usages]))
    reported = [complete(opened("openai", server.url)).usage for _ in usages]
    assert reported == [*[Usage(calls=1, unknown=1)] * 2, Usage(input=10, output=5, calls=1)]


def test_a_lone_surrogate_does_not_break_a_reply(loopback: Loopback) -> None:
    assert complete(opened("openai", loopback(replies([Reply("a\ud83d")])).url)).text == "a?"


@pytest.mark.parametrize(("schema", "strict"), [(VERDICT, True), (ANYTHING, False)])
def test_a_schema_is_strict_only_if_strict_mode_accepts_it(
    loopback: Loopback, schema: ReplySchema, strict: bool
) -> None:
    server = loopback()
    complete(opened("openai", server.url), schema=schema)
    json_schema = server.requests[0].body["response_format"]["json_schema"]
    assert json_schema == {"name": schema.name, "schema": schema.schema_, "strict": strict}


LOOSE = ToolSpec(name="Find", description="", parameters={"type": "object", "properties": {"q": {"type": "string"}}})


def test_tools_are_strict_only_if_strict_mode_accepts_them(loopback: Loopback) -> None:
    server = loopback()
    complete(opened("openai", server.url), tools=(PAY, LOOSE))
    assert [tool.strict for tool in server.requests[0].tools] == [True, False]


def test_vllm_enforces_any_schema(loopback: Loopback) -> None:
    server = loopback()
    with pytest.raises(
        ModelError, match="'additionalProperties' must be supplied"
    ):  # OpenAI's rules, which vLLM does not have
        complete(opened("vllm", server.url), tools=(PAY, LOOSE))
    assert [tool["function"].get("strict") for tool in server.requests[0].body["tools"]] == [True, True]


@pytest.mark.parametrize(
    ("part", "strict"),
    [
        ({"type": ["string", "null"]}, True),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, True),
        ({"enum": ["a", 1]}, True),
        ({"$ref": "#/$defs/x"}, True),
        ({"type": "array", "items": {"type": "number", "minimum": 0}, "maxItems": 3}, True),
        ({"type": "string", "format": "email"}, True),
        ({}, False),
        (True, False),
        ({"type": "array"}, False),
        ({"type": "object"}, False),
        ({"type": "string", "maxLength": 3}, False),
        ({"type": "string", "format": "uri"}, False),
        ({"type": "string", "default": ""}, False),
        ({"oneOf": [{"type": "string"}]}, False),
        ({"type": "array", "items": {"type": "object", "properties": {}}}, False),
    ],
)
def test_schemas_are_checked_against_the_rules_of_strict_mode(part: Any, strict: bool) -> None:
    whole = {"type": "object", "properties": {"p": part}, "required": ["p"], "additionalProperties": False}
    assert satisfies_strict(whole) is strict
    assert not satisfies_strict({**whole, "required": []})
    assert not satisfies_strict({"anyOf": [whole]})


@pytest.mark.parametrize("status", [400, 422])
def test_refused_parameters_are_dropped_one_by_one_and_for_good(loopback: Loopback, status: int) -> None:
    server = loopback(refusing("temperature", "seed", "prompt_cache_key", status=status))

    async def talk(model: Any) -> list[tuple[str, ...]]:
        return [(await model.complete(ModelRequest(QUESTION, seed=seed))).refused_parameters for seed in (1, 1, None)]

    # Without the key for caches, a reply is the same.
    assert using(opened("openai", server.url), talk) == [*[("seed", "temperature")] * 2, ("temperature",)]
    assert len(server.requests) == 6
    assert not {"temperature", "seed", "prompt_cache_key"} & set(server.requests[4].body)


def test_strict_is_dropped_if_it_is_refused(loopback: Loopback) -> None:
    def script(request: Request) -> Any:
        fault = Fault(status=422, message="tools.0.function.strict: Extra inputs are not permitted")
        return fault if request.tools[0].strict else conforming()(request)

    server = loopback(script)
    complete(opened("openai", server.url), tools=(PAY,), schema=VERDICT)
    assert not server.requests[1].tools[0].strict
    assert server.requests[1].body["response_format"]["json_schema"]["strict"] is False


def test_a_parameter_that_did_not_cause_a_refusal_is_sent_again(loopback: Loopback) -> None:
    """The error message quotes the whole request, as some servers do, so it names every parameter."""
    quoted = Fault(status=400, message="bad input: {'temperature': 0, 'seed': 1}")
    server = loopback(replies([quoted, Fault(status=400, message="bad input"), "Done."]))

    async def twice(model: Any) -> None:
        with pytest.raises(ModelError, match="bad input"):
            await model.complete(ModelRequest(QUESTION, seed=1))
        await model.complete(ModelRequest(QUESTION, seed=1))

    using(opened("openai", server.url), twice)
    assert ["seed" in request.body for request in server.requests] == [True, False, True]


def test_the_other_name_of_the_output_limit_is_tried(loopback: Loopback) -> None:
    server = loopback(refusing("max_tokens"))
    reply = complete(opened("openai", server.url, max_tokens=9))
    assert "max_tokens" not in server.requests[1].body
    assert server.requests[1].body["max_completion_tokens"] == 9
    assert reply.refused_parameters == ()


def test_an_output_limit_that_is_refused_under_both_names_is_named_in_the_reply(loopback: Loopback) -> None:
    server = loopback(refusing("max_tokens", "max_completion_tokens"))
    assert complete(opened("openai", server.url, max_tokens=9)).refused_parameters == ("max_tokens",)


def test_openai_itself_gets_the_new_name_of_the_output_limit(
    loopback: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = loopback()
    monkeypatch.setitem(OFFICIAL_URLS, "openai", server.url)
    complete(opened("openai", server.url, max_tokens=9))
    assert server.requests[0].body["max_completion_tokens"] == 9
    assert "max_tokens" not in server.requests[0].body


def test_an_output_limit_refused_for_its_value_is_an_error(loopback: Loopback) -> None:
    script = replies([Fault(status=400, message="max_tokens is too large: this model takes at most 4096")])
    with pytest.raises(ModelError, match="answered 400: max_tokens is too large"):
        complete(opened("openai", loopback(script).url, max_tokens=9999))


def test_a_model_named_like_a_parameter_keeps_all_parameters(loopback: Loopback) -> None:
    server = loopback(replies([Fault(status=400, message="bad")]))
    with pytest.raises(ModelError, match="bad"):
        complete(opened("openai", server.url, name="seed-oss"), seed=1)
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [400, 404, 422])
def test_a_refused_response_format_is_sent_in_words(loopback: Loopback, status: int) -> None:
    def script(request: Request) -> Any:
        accepts = "response_format" not in request.body
        return Reply('{"score": 1}') if accepts else Fault(status=status, message="no such feature")

    server = loopback(script)

    async def twice(model: Any) -> None:
        await model.complete(ModelRequest(QUESTION, schema=VERDICT))
        await model.complete(ModelRequest(QUESTION, schema=VERDICT))

    using(opened("openai", server.url), twice)
    assert ["response_format" in request.body for request in server.requests] == [True, False, False]
    assert server.requests[1].messages[0].text.startswith("Rules.\n\nReply with one JSON value")
    assert '"maximum": 3' in server.requests[1].messages[0].text


def test_without_rules_a_schema_in_words_is_a_message_of_its_own_after_a_result(loopback: Loopback) -> None:
    server = loopback(refusing("response_format"))
    call = ToolCall(id="c", name="Find", arguments="{}")
    turns = (Message(role="assistant", calls=(call,)), Message(role="tool", call_id="c", content="nothing"))
    complete(opened("openai", server.url), (QUESTION[1], *turns), schema=VERDICT)
    last = server.requests[1].messages[-1]
    assert (last.role, last.text.startswith("Reply with one JSON value")) == ("user", True)


def test_after_several_refused_schemas_no_other_is_tried(loopback: Loopback) -> None:
    server = loopback(refusing("response_format"))
    schemas = [ReplySchema(name=f"s{n}", schema={"type": "object", "title": f"{n}"}) for n in range(5)]

    async def each(model: Any) -> None:
        for schema in schemas:
            await model.complete(ModelRequest(QUESTION, schema=schema))

    using(opened("openai", server.url), each)
    assert len([request for request in server.requests if "response_format" in request.body]) == 3


def test_one_refused_schema_does_not_affect_others(loopback: Loopback) -> None:
    def script(request: Request) -> Any:
        bad = "response_format" in request.body and request.schema_name == "observation"
        return Fault(status=400, message="Invalid schema") if bad else Reply("{}")

    server = loopback(script)

    async def both(model: Any) -> None:
        for schema in (ANYTHING, VERDICT, ANYTHING):
            await model.complete(ModelRequest(QUESTION, schema=schema))

    using(opened("openai", server.url), both)
    assert [request.schema_name for request in server.requests] == [
        "observation",
        "observation",
        "verdict",
        "observation",
    ]
    assert ["response_format" in request.body for request in server.requests] == [True, False, True, False]


def test_a_failure_without_the_schema_is_not_attributed_to_it(loopback: Loopback) -> None:
    server = loopback(replies([Fault(status=400, message="too long"), Fault(status=400, message="too long"), "{}"]))

    async def twice(model: Any) -> None:
        with pytest.raises(ModelError, match="too long"):
            await model.complete(ModelRequest(QUESTION, schema=VERDICT))
        await model.complete(ModelRequest(QUESTION, schema=VERDICT))

    using(opened("openai", server.url), twice)
    assert "response_format" in server.requests[2].body
