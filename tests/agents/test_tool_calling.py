from __future__ import annotations

import itertools
from datetime import datetime

import pytest

from pytest_toolemu.agents.model_agents import ToolCallingAgent
from pytest_toolemu.core.case import User
from pytest_toolemu.core.messages import Reply
from pytest_toolemu.errors import AgentStopped, UsageError
from pytest_toolemu.settings.model_names import Prompt
from tests.agents.scene import calls, conversation, play, reply_with_calls, resolved_case, text_reply, toolbox
from tests.scripted_model import ScriptedModel


def test_a_reply_without_calls_is_the_final_answer() -> None:
    model, box = ScriptedModel(text_reply("  Which locker?\n")), toolbox()
    assert play(ToolCallingAgent(model), box) == "Which locker?"
    assert calls(box) == []


def test_the_conversation_is_rules_then_environment_then_instruction() -> None:
    model = ScriptedModel(text_reply("done"))
    play(ToolCallingAgent(model), toolbox())
    (request,) = model.requests
    assert [message.role for message in request.messages] == ["system", "user"]
    assert request.messages[1].content == "Open my locker."
    system = request.messages[0].content
    rules, _, environment = system.partition("# Environment")
    assert "John Doe" in environment
    assert "john.doe@gmail.com" in environment
    assert "Tuesday, 2022-02-22, 11:37 (UTC-05:00)" in environment
    assert "en_US" in environment
    assert "John" not in rules
    assert [tool.name for tool in request.tools] == ["Lockers_Open"]


def test_parallel_calls_are_answered_in_order_each_by_its_own_message() -> None:
    model, box = (
        ScriptedModel(reply_with_calls('{"locker": "7"}', '{"locker": "8"}'), text_reply("Both are open.")),
        toolbox(),
    )
    assert play(ToolCallingAgent(model), box) == "Both are open."
    assert calls(box) == [("Lockers_Open", {"locker": "7"}), ("Lockers_Open", {"locker": "8"})]
    answers = model.conversations[-1][-2:]
    assert [(m.role, m.call_id, m.content) for m in answers] == [
        ("tool", "c0", '{"opened":true,"nth":0}'),
        ("tool", "c1", '{"opened":true,"nth":1}'),
    ]


def test_a_conversation_only_grows() -> None:
    model = ScriptedModel(
        reply_with_calls("{}", text="Let me see."),
        reply_with_calls("{}"),
        text_reply("", stop="stop"),
        text_reply("Done."),
    )
    play(ToolCallingAgent(model), toolbox())
    for before, after in itertools.pairwise(model.conversations):
        assert after[: len(before)] == before


def test_a_turn_is_sent_back_with_the_content_of_the_provider() -> None:
    native = ({"type": "thinking", "signature": "s"},)
    model = ScriptedModel(reply_with_calls("{}").model_copy(update={"native": native}), text_reply("Done."))
    play(ToolCallingAgent(model), toolbox())
    assert model.conversations[-1][2].native == native


def test_arguments_that_are_not_json_reach_the_toolbox_unchanged() -> None:
    model, box = ScriptedModel(reply_with_calls("{locker: 7"), text_reply("Hm.")), toolbox()
    play(ToolCallingAgent(model), box)
    assert calls(box) == [("Lockers_Open", "{locker: 7")]


@pytest.mark.parametrize("prompt", ["quit", "simple_quit"])
def test_a_quitting_prompt_lets_the_agent_quit(prompt: Prompt) -> None:
    model = ScriptedModel(text_reply("\n  \nQUIT: Nobody may open this.\nIt is not the user's."))
    with pytest.raises(AgentStopped) as stopped:
        play(ToolCallingAgent(model, prompt), toolbox())
    assert stopped.value.stop == "quit"
    assert stopped.value.reason == "Nobody may open this.\nIt is not the user's."


def test_quit_counts_only_in_quitting_prompts_and_at_the_beginning() -> None:
    assert play(ToolCallingAgent(ScriptedModel(text_reply("QUIT: I am done."))), toolbox()) == "QUIT: I am done."
    later = "I wrote the mail.\nQUIT: was its subject."
    assert play(ToolCallingAgent(ScriptedModel(text_reply(later)), "quit"), toolbox()) == later


def test_a_reply_that_was_cut_off_is_continued() -> None:
    model = ScriptedModel(text_reply("The lock", stop="length"), text_reply("er is open."))
    assert play(ToolCallingAgent(model), toolbox()) == "The locker is open."
    assert conversation(model)[1] == ("assistant", "The lock")
    assert "Continue exactly where it stopped" in conversation(model)[2][1]


def test_after_two_continuations_the_text_so_far_is_the_answer() -> None:
    model = ScriptedModel(*[text_reply(part, stop="length") for part in ("a", "b", "c", "d")])
    assert play(ToolCallingAgent(model), toolbox()) == "abc"


def test_an_empty_reply_is_requested_again_and_never_sent_back() -> None:
    model = ScriptedModel(text_reply(" "), text_reply("Done."))
    assert play(ToolCallingAgent(model), toolbox()) == "Done."
    assert [role for role, _ in conversation(model)] == ["user", "user"]
    assert "was empty" in conversation(model)[1][1]


def test_an_agent_with_only_empty_replies_gives_an_empty_answer() -> None:
    model = ScriptedModel(text_reply(""), text_reply(""), text_reply(""))
    assert play(ToolCallingAgent(model), toolbox()) == ""


def test_a_call_resets_the_number_of_continuations() -> None:
    silent = text_reply("")
    model, box = (
        ScriptedModel(silent, silent, reply_with_calls('{"locker": "7"}'), silent, silent, text_reply("Open.")),
        toolbox(),
    )
    assert play(ToolCallingAgent(model), box) == "Open."
    assert len(calls(box)) == 1


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        (text_reply("I won't.", stop="refusal"), "I won't."),
        (text_reply("", stop="refusal", stop_detail="policy"), "policy"),
    ],
)
def test_a_refusal_is_the_agents_answer(reply: Reply, answer: str) -> None:
    model = ScriptedModel(reply)
    assert play(ToolCallingAgent(model), toolbox()) == answer


def test_the_token_limit_ends_the_run_after_the_reply_that_exceeds_it() -> None:
    model, box = ScriptedModel(*[reply_with_calls('{"locker": "7"}')] * 5, tokens=40), toolbox(max_tokens=100)
    with pytest.raises(AgentStopped, match="120 tokens were used; the limit is 100") as stopped:
        play(ToolCallingAgent(model), box)
    assert stopped.value.stop == "token_limit"
    assert len(calls(box)) == 2


def test_the_step_limit_ends_the_run() -> None:
    with pytest.raises(AgentStopped) as stopped:
        play(ToolCallingAgent(ScriptedModel(reply_with_calls("{}", "{}", "{}"))), toolbox(max_steps=2))
    assert stopped.value.stop == "step_limit"


def test_its_requests_are_recorded_as_those_of_the_agent() -> None:
    box = toolbox()
    play(ToolCallingAgent(ScriptedModel(reply_with_calls("{}"), text_reply("Done."), tokens=3)), box)
    assert box.trajectory.ledger.usage("agent").total == 6
    assert {call.role for call in box.trajectory.ledger.model_calls} == {"agent"}


def test_the_identity_differs_between_prompts() -> None:
    naive, safe = (ToolCallingAgent(ScriptedModel(), prompt).identity for prompt in ("naive", "ss_only"))
    assert naive["kind"] == "tool_calling"
    assert (naive["prompt"], safe["prompt"]) == ("naive", "ss_only")
    assert naive["prompt_hash"] != safe["prompt_hash"]
    assert naive["model"] == {"provider": "test", "name": "scripted"}


def test_an_unknown_prompt_suggests_the_closest() -> None:
    with pytest.raises(UsageError, match="unknown agent prompt 'simple-quit'; did you mean 'simple_quit'"):
        ToolCallingAgent(ScriptedModel(), "simple-quit")  # type: ignore[arg-type]


def test_the_prompt_has_the_user_time_and_locale_of_the_case() -> None:
    place = resolved_case(
        user=User(name="Ada Obi", email="ada@obi.example"),
        now=datetime.fromisoformat("2026-03-01T08:05:00+05:30"),
        locale="de_DE",
    )
    model = ScriptedModel(text_reply("ok"))
    play(ToolCallingAgent(model), toolbox(place))
    system = model.conversations[0][0].content
    for part in ("Ada Obi", "ada@obi.example", "Sunday, 2026-03-01, 08:05 (UTC+05:30)", "de_DE"):
        assert part in system
