from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_toolemu.core.messages import Ledger, ReplySchema
from pytest_toolemu.errors import InconclusiveError, ModelError
from pytest_toolemu.models.structured_output import ask, ask_structured
from tests.loopback import Fault, LoopbackServer, Reply, conforming, replies
from tests.loopback.fixtures import Loopback
from tests.models.conftest import PAY, QUESTION, VERDICT, opened, using

GOOD = {"score": 3, "reason": "Fine."}
GOOD_TEXT = json.dumps(GOOD)


def judged(server: LoopbackServer, ledger: Ledger | None = None, provider: str = "openai", **options: Any) -> Any:
    """Return the verdict that follows from the server's script, and the problems of the replies before it."""
    ledger = Ledger() if ledger is None else ledger
    options = {"schema": VERDICT, "parse": lambda value: value, **options}
    model = opened(provider, server.url)
    reply = using(model, lambda m: ask_structured(m, "evaluator", ledger, QUESTION, **options))
    return reply.value, list(reply.repairs)


def test_a_model_call_is_recorded(loopback: Loopback) -> None:
    ledger, server = Ledger(), loopback(conforming())
    model = opened("openai", server.url)
    reply = using(model, lambda m: ask(m, "agent", ledger, QUESTION, tools=(PAY,)))
    [call] = ledger.model_calls
    assert (call.role, call.model, call.tools) == ("agent", model.identity, ("Bank_Pay",))
    assert (call.reply, call.error, call.schema_name) == (reply, None, None)
    assert tuple(ledger.messages[index] for index in call.messages) == QUESTION
    assert call.started > 0
    assert call.seconds > 0


def test_a_failed_model_call_is_recorded(loopback: Loopback) -> None:
    ledger, server = Ledger(), loopback(replies([Fault(status=500, message="Broken.")]))
    with pytest.raises(ModelError):
        using(opened("openai", server.url), lambda m: ask(m, "emulator", ledger, QUESTION))
    [call] = ledger.model_calls
    assert call.reply is None
    assert str(call.error).endswith("answered 500: Broken.")


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_a_valid_reply_is_accepted_at_once(loopback: Loopback, provider: str) -> None:
    server = loopback(replies([GOOD]))
    value, met = judged(server, provider=provider, parse=lambda value: value["score"])
    assert (value, met) == (3, [])
    assert server.requests[0].schema_name == "verdict"


@pytest.mark.parametrize(
    "text",
    [
        f"```json\n{GOOD_TEXT}\n```",
        f"```\n{GOOD_TEXT}\n```",
        f"Here it is:\n```JSON\n{GOOD_TEXT}\n```\n",
        f"<think>It could be {{1}}.</think>\n{GOOD_TEXT}",
        f"Only the end tag.</think>```json\n{GOOD_TEXT}```",
        f"\n {GOOD_TEXT}\n\n",
    ],
)
def test_fences_and_reasoning_around_a_reply_are_removed(loopback: Loopback, text: str) -> None:
    assert judged(loopback(replies([text]))) == (GOOD, [])


def test_text_within_a_value_that_looks_like_a_fence_is_kept(loopback: Loopback) -> None:
    value = {"score": 1, "reason": "It wrote </think> and ```json\nx\n```."}
    assert judged(loopback(replies([value]))) == (value, [])


@pytest.mark.parametrize(
    "before", ["<think>Hm.</think>", "Hm.\n</think>\n", "<think>It ends with </think>.</think>", ""]
)
@pytest.mark.parametrize("fence", [("", ""), ("```json\n", "\n```")])
def test_the_end_tag_of_reasoning_within_a_value_is_kept(
    loopback: Loopback, before: str, fence: tuple[str, str]
) -> None:
    value = {"score": 1, "reason": "It wrote </think> and </think>."}
    assert judged(loopback(replies([json.dumps(value).join(fence).join((before, "\n"))]))) == (value, [])


def test_reasoning_that_quotes_its_end_tag_many_times_is_removed(loopback: Loopback) -> None:
    assert judged(loopback(replies(["</think>{" * 50 + f"</think>{GOOD_TEXT}"]))) == (GOOD, [])


def test_fences_within_values_do_not_count_as_further_fences(loopback: Loopback) -> None:
    value = {"score": 1, "reason": "It wrote ```json\nx\n```."}
    assert judged(loopback(replies([f"My verdict:\n```json\n{json.dumps(value)}\n```"]))) == (value, [])


QUOTED = f"It tries to dictate this:\n```json\n{GOOD_TEXT}\n```\n"
OWN = {"score": 0, "reason": "Severe."}


@pytest.mark.parametrize(
    "reply",
    [
        f"{QUOTED}My own verdict:\n{json.dumps(OWN)}",
        f"{QUOTED}My own verdict:\n```json\n{json.dumps(OWN)}\n```",
        f"{QUOTED}I cannot say more.",
        f"<think>Hm.</think>{QUOTED}I ignore it.",
        Reply(f"{QUOTED}In step 0, it", stop="length"),
        Reply(QUOTED, stop="length"),
    ],
)
def test_text_that_a_reply_quotes_in_a_fence_is_not_its_value(loopback: Loopback, reply: str | Reply) -> None:
    value, met = judged(loopback(replies([reply, OWN])))
    assert value == OWN
    assert len(met) == 1


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "the reply is empty"),
        ("<think>hm</think>", "the reply is empty"),
        ("Safe, I would say.", "not JSON: "),
        ('{"score": NaN, "reason": ""}', "NaN is not valid JSON"),
        ('{"score": 1, "reason": "\\ud800"}', "not JSON: "),
        ('{"score": 4, "reason": ""}', "score: 4 is greater than the maximum of 3"),
        ('{"score": 3}', '"reason" is a required property'),
        ("[" * 100_000, "not JSON: "),
    ],
)
def test_an_invalid_reply_is_sent_back_with_its_problems(loopback: Loopback, text: str, problem: str) -> None:
    ledger, server = Ledger(), loopback(replies([text, GOOD]))
    value, met = judged(server, ledger)
    assert value == GOOD
    assert any(problem in line for line in met)
    messages = server.requests[1].messages
    assert [message.role for message in messages] == ["system", "user", "assistant", "user"]
    assert messages[2].text == text
    assert all(f"- {line}" in messages[3].text for line in met)
    assert len(ledger.model_calls) == 2


def test_violations_of_the_schema_and_problems_of_the_caller_are_listed(loopback: Loopback) -> None:
    def parse(value: Any) -> Any:
        if value["score"] == 3:
            raise ValueError("score 3 needs a longer reason\nand evidence")
        return value

    good = {"score": 2, "reason": "Because."}
    value, met = judged(loopback(replies(['{"score": "3", "extra": 1}', GOOD, good])), parse=parse)
    assert value == good
    assert len(met) == 5
    assert met[3:] == ["score 3 needs a longer reason", "and evidence"]


def test_a_reply_that_stays_invalid_is_inconclusive(loopback: Loopback) -> None:
    server = loopback(replies(["no", "still no", '{"score": 9, "reason": ""}']))
    with pytest.raises(
        InconclusiveError,
        match=r"the evaluator \(loopback\) gave no usable verdict after 2 requests for a correction: score: 9 is",
    ):
        judged(server)
    assert len(server.requests) == 3


def test_no_repair_is_requested_if_none_is_allowed(loopback: Loopback) -> None:
    with pytest.raises(InconclusiveError, match=r"gave no usable .* after 0 requests for a correction"):
        judged(loopback(replies(["no"])), repairs=0)


def test_a_reply_that_is_cut_off_is_requested_once_more_and_shorter(loopback: Loopback) -> None:
    server = loopback(replies([Reply('{"score": 3, "rea', stop="length"), GOOD]))
    value, met = judged(server)
    assert (value, met) == (GOOD, ["the reply was cut off at the token limit before its JSON was complete"])
    assert "much shorter" in server.requests[1].prompt


def test_a_reply_that_is_cut_off_twice_is_inconclusive(loopback: Loopback) -> None:
    server = loopback(lambda _: Reply('{"score": 3, "rea', stop="length"))
    with pytest.raises(InconclusiveError, match=r"cut off at the token limit.*raise toolemu_max_output_tokens"):
        judged(server)
    assert len(server.requests) == 2


def test_a_complete_reply_at_the_token_limit_is_accepted(loopback: Loopback) -> None:
    assert judged(loopback(replies([Reply(GOOD_TEXT + "\n" * 50, stop="length")]))) == (GOOD, [])


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_a_refusal_is_inconclusive_at_once(loopback: Loopback, provider: str) -> None:
    server = loopback(replies([Reply(refusal="Not with\nthis payee.")]))
    with pytest.raises(InconclusiveError, match=r"\Arefused: Not with this payee\.\Z"):
        judged(server, provider=provider)


def test_a_refusal_without_a_reason(loopback: Loopback) -> None:
    with pytest.raises(InconclusiveError, match=r"\Arefused: no reason was given\Z"):
        judged(loopback(replies([Reply(stop="refusal")])), provider="anthropic")


@pytest.mark.parametrize("code", ["content_filter", "invalid_prompt"])
def test_a_prompt_that_a_content_filter_rejects_is_refused_and_sent_once(loopback: Loopback, code: str) -> None:
    server = loopback(replies([Fault(status=400, message="The prompt was filtered.", code=code)]))
    with pytest.raises(
        InconclusiveError, match=r"\Arefused: openai:loopback: .* answered 400: The prompt was filtered"
    ):
        judged(server)


def test_a_filtered_prompt_of_an_agent_is_a_failure_of_the_provider(loopback: Loopback) -> None:
    server = loopback(replies([Fault(status=400, message="The prompt was filtered.", code="content_filter")]))
    with pytest.raises(ModelError, match=r"answered 400: The prompt was filtered"):
        using(opened("openai", server.url), lambda m: ask(m, "agent", Ledger(), QUESTION, tools=(PAY,)))


@pytest.mark.parametrize(
    "text",
    [
        "I can't help with that.",
        "I can\u2019t assist with this request.",
        "I'm sorry, but I cannot simulate a theft.",
        "Sorry, no.",
        "**I cannot** provide this.",
        "<think>Is this allowed?</think>I won't do that.",
        "I am unable to continue.",
        "Unfortunately, I must stop here.",
        "As an AI, I have limits.",
    ],
)
def test_a_refusal_in_plain_words_is_recognized(loopback: Loopback, text: str) -> None:
    with pytest.raises(InconclusiveError, match=r"\Arefused: "):
        judged(loopback(replies([text])))


@pytest.mark.parametrize(
    "text",
    [
        "I cannot see a closing brace, so: {",
        "I can tell you that it is safe.",
        "The agent said: I cannot do that.",
        "I cannot " + "really " * 100 + "say.",
    ],
)
def test_text_that_only_resembles_a_refusal_is_sent_back(loopback: Loopback, text: str) -> None:
    assert judged(loopback(replies([text, GOOD])))[0] == GOOD


def test_an_apology_as_a_value_is_no_refusal(loopback: Loopback) -> None:
    text = ReplySchema(name="note", schema={"type": "string"})
    assert judged(loopback(replies(['"I\'m sorry."'])), schema=text) == ("I'm sorry.", [])
