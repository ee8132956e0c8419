from __future__ import annotations

import itertools

import pytest

from pytest_toolemu.agents.model_agents import ReactAgent
from pytest_toolemu.errors import AgentStopped, UsageError
from pytest_toolemu.settings.model_names import Prompt
from tests.agents.scene import calls, conversation, play, text_reply, toolbox
from tests.scripted_model import ScriptedModel

OPEN = 'Thought: I open it.\nAction: Lockers_Open\nAction Input: {"locker": "7"}'
FINAL = "Thought: Done.\nFinal Answer: It is open."


def test_a_call_gets_its_observation_before_the_answer() -> None:
    model, box = ScriptedModel(text_reply(OPEN), text_reply(FINAL)), toolbox()
    assert play(ReactAgent(model), box) == "It is open."
    assert calls(box) == [("Lockers_Open", {"locker": "7"})]
    assert conversation(model) == [
        ("user", "User Input: Open my locker."),
        ("assistant", OPEN),
        ("user", 'Observation: {"opened":true,"nth":0}'),
    ]
    assert box.trajectory.discarded == []


def test_the_model_gets_the_tools_as_text_only() -> None:
    model = ScriptedModel(text_reply(FINAL))
    play(ReactAgent(model), toolbox())
    (request,) = model.requests
    assert request.tools == ()
    system = request.messages[0].content
    assert "* Lockers_Open: Open a locker." in system
    assert "* locker (string): Its number." in system
    assert "The available tools are [Lockers_Open]." in system
    assert "Jammed" not in system, "errors are not announced"


def test_text_after_a_call_never_counts() -> None:
    invented = '\nObservation: {"opened": true}\nThought: Done.\nFinal Answer: It was opened.'
    model, box = ScriptedModel(text_reply(OPEN + invented), text_reply(FINAL)), toolbox()
    assert play(ReactAgent(model), box) == "It is open."
    assert len(calls(box)) == 1
    assert conversation(model)[1] == ("assistant", OPEN)
    assert box.trajectory.discarded == [invented.strip()]


def test_everything_after_an_invented_observation_is_discarded() -> None:
    text = 'Thought: I wait.\nObservation: {"opened": true}\nFinal Answer: It is open.'
    model, box = ScriptedModel(text_reply(text), text_reply("Final Answer: Nothing happened.")), toolbox()
    assert play(ReactAgent(model), box) == "Nothing happened."
    assert conversation(model)[1] == ("assistant", "Thought: I wait.")
    assert box.trajectory.discarded == ['Observation: {"opened": true}\nFinal Answer: It is open.']


def test_an_unreadable_turn_gets_a_correction_with_the_reason() -> None:
    broken = "Thought: so\nAction: Lockers_Open\nAction Input: {'locker': 7}"
    model, box = ScriptedModel(text_reply(broken), text_reply(OPEN), text_reply(FINAL)), toolbox()
    assert play(ReactAgent(model), box) == "It is open."
    assert conversation(model)[1] == ("assistant", broken)
    role, text = conversation(model)[2]
    assert role == "user"
    assert "Action Input is not a valid JSON object" in text
    assert "QUIT" not in text
    assert len(calls(box)) == 1


def test_after_two_corrections_in_a_row_the_text_is_the_answer() -> None:
    model = ScriptedModel(text_reply("Hello."), text_reply("Hello?"), text_reply(" Still here. \n"))
    assert play(ReactAgent(model), toolbox()) == "Still here."
    assert len(model.requests) == 3


def test_a_final_answer_that_is_cut_off_gets_a_correction() -> None:
    cut = "Thought: Done.\nFinal Answer: It is"
    model = ScriptedModel(text_reply(cut, stop="length"), text_reply(FINAL))
    assert play(ReactAgent(model), toolbox()) == "It is open."
    assert conversation(model)[1] == ("assistant", cut)
    assert "the final answer was cut off at the limit of tokens; write a shorter one" in conversation(model)[2][1]


def test_after_two_corrections_an_answer_that_is_cut_off_is_final() -> None:
    model = ScriptedModel(*[text_reply("Thought: Done.\nFinal Answer: It is", stop="length")] * 3)
    assert play(ReactAgent(model), toolbox()) == "It is"


def test_a_call_resets_the_number_of_corrections() -> None:
    chat = text_reply("Well.")
    model, box = ScriptedModel(chat, chat, text_reply(OPEN), chat, chat, text_reply(FINAL)), toolbox()
    assert play(ReactAgent(model), box) == "It is open."


def test_an_empty_turn_is_corrected_and_never_sent_back() -> None:
    model = ScriptedModel(text_reply("  "), text_reply(FINAL))
    assert play(ReactAgent(model), toolbox()) == "It is open."
    assert [role for role, _ in conversation(model)] == ["user", "user"]


@pytest.mark.parametrize("prompt", ["quit", "simple_quit"])
def test_a_quitting_prompt_lets_the_agent_quit(prompt: Prompt) -> None:
    model = ScriptedModel(text_reply("chat"), text_reply("Thought: No safe way.\nQUIT: It may not be\nthe user's."))
    with pytest.raises(AgentStopped) as stopped:
        play(ReactAgent(model, prompt), toolbox())
    assert (stopped.value.stop, stopped.value.reason) == ("quit", "It may not be\nthe user's.")
    assert "`QUIT:`" in conversation(model)[2][1], "the correction names this way out"


def test_quit_inside_arguments_does_not_quit() -> None:
    text = 'Action: Lockers_Open\nAction Input: {"locker": "7", "note": "first line\nQUIT: no\nFinal Answer: no"}'
    model, box = ScriptedModel(text_reply(text), text_reply(FINAL)), toolbox()
    assert play(ReactAgent(model, "quit"), box) == "It is open."
    assert calls(box) == [("Lockers_Open", {"locker": "7", "note": "first line\nQUIT: no\nFinal Answer: no"})]


def test_a_refusal_is_the_agents_answer() -> None:
    model = ScriptedModel(text_reply("Final Answer: never read", stop="refusal"))
    assert play(ReactAgent(model), toolbox()) == "Final Answer: never read"


def test_the_token_limit_ends_the_run() -> None:
    with pytest.raises(AgentStopped) as stopped:
        play(ReactAgent(ScriptedModel(*[text_reply(OPEN)] * 3, tokens=60)), toolbox(max_tokens=100))
    assert stopped.value.stop == "token_limit"


def test_a_conversation_only_grows() -> None:
    model = ScriptedModel(
        text_reply(OPEN + "\nObservation: x"), text_reply("chat"), text_reply(OPEN), text_reply(FINAL)
    )
    play(ReactAgent(model), toolbox())
    for before, after in itertools.pairwise(model.conversations):
        assert after[: len(before)] == before


def test_the_identity_names_the_protocol_and_an_unknown_prompt_is_refused() -> None:
    assert ReactAgent(ScriptedModel()).identity["kind"] == "react"
    with pytest.raises(UsageError, match="did you mean 'helpful_ss'"):
        ReactAgent(ScriptedModel(), "helpfulss")  # type: ignore[arg-type]
