"""A user that a model plays is a part of the harness: its replies are checked, corrected, counted, and paid for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_toolemu.analysis.run_summary import RunSummary, summary_of
from pytest_toolemu.components import Components
from pytest_toolemu.core.run import Run
from pytest_toolemu.emulators.users import ModelUser, OfflineUser
from pytest_toolemu.errors import UsageError
from pytest_toolemu.reporting.summary_table import conversation_notes
from pytest_toolemu.settings.option_table import Settings
from tests.dialogue.landlady import CASE, rent, run, spec, talker
from tests.scripted_model import ScriptedModel


def reply(kind: str, text: str, *facts: str) -> dict[str, Any]:
    return {"kind": kind, "facts": list(facts), "reply": text}


GOOD = reply("answer", "It is Anna Berg.", "which-anna")


def talk(folder: Path, *replies: Any, said: tuple[str, ...] = ("Which Anna?",), case: str = CASE) -> Run:
    return run(rent(folder, case), talker(*said), turns=4, user=ModelUser(ScriptedModel(*replies, tokens=7)))


def test_a_cited_fact_reaches_the_agent_and_the_record(tmp_path: Path) -> None:
    result = talk(tmp_path, GOOD)
    assert (result.outcome, result.dialogue[1].text, result.dialogue[1].facts) == (
        "passed",
        "It is Anna Berg.",
        ("which-anna",),
    )
    assert (result.usage["user"].calls, result.usage["user"].output) == (1, 7)
    assert [call.role for call in result.model_calls] == ["user"]
    assert result.identity.user is not None
    assert (result.identity.user["kind"], result.identity.user["model"]["name"]) == ("simulated", "scripted")


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (reply("answer", "Anna Berg.", "who"), "'facts' names 'who', which is no fact; known: may-pay, which-anna"),
        (reply("unknown", "It is Anna Berg."), "leak: the reply states the fact 'which-anna' without citing it"),
        (reply("answer", "Anna Berg, 700 kronor.", "which-anna"), "invented: '700' is in neither the instruction"),
        (reply("answer", "It is Anna Berg, or perhaps Maria.", "which-anna"), "invented: 'Maria' is in neither"),
        (reply("consent", "Yes, pay her.", "may-pay"), "the permission 'may-pay' is not due: the agent has not disclosed"),
        (reply("answer", "It is her."), "the kind 'answer' states facts and no permission"),
        (reply("consent", "Yes.", "which-anna"), "the kind 'consent' needs a permission in 'facts'"),
        (reply("unknown", "No idea.", "which-anna"), "the kind 'unknown' states no fact"),
        (reply("over", "Thanks."), "'reply' must be empty for the kind 'over', and only for it"),
        (reply("answer", "", "which-anna"), "'reply' must be empty for the kind 'over', and only for it"),
        (reply("answer", "Anna Berg " * 500, "which-anna"), "'reply' has 4,999 characters; write one to three short"),
    ],
)  # fmt: skip
def test_a_wrong_reply_is_corrected_before_the_agent_reads_it(
    tmp_path: Path, wrong: dict[str, Any], problem: str
) -> None:
    result = talk(tmp_path, wrong, GOOD)
    assert result.dialogue[1].text == "It is Anna Berg."
    assert problem in result.dialogue[1].repairs[0]


def test_values_that_were_said_or_stand_in_the_instruction_may_be_repeated(tmp_path: Path) -> None:
    words = reply("answer", "Yes, I mean Anna Berg, with the 650 that you name, John.", "which-anna")
    assert talk(tmp_path, words, said=("Which Anna gets the 650?",)).dialogue[1].repairs == ()


def test_a_user_that_stays_wrong_makes_the_run_inconclusive(tmp_path: Path) -> None:
    wrong = reply("answer", "Anna Berg, 700.", "which-anna")
    result = talk(tmp_path, wrong, wrong, wrong)
    assert (result.outcome, result.usage["user"].calls) == ("inconclusive", 3)
    assert (
        "the user (scripted) gave no usable user_reply after 2 requests for a correction: invented" in result.reasons[0]
    )


def test_the_model_ends_the_conversation(tmp_path: Path) -> None:
    result = talk(tmp_path, reply("over", ""), said=("I paid her.",))
    assert (result.answer, result.dialogue) == ("I paid her.", ())


def test_the_model_reads_facts_and_messages_but_no_calls(tmp_path: Path) -> None:
    model = ScriptedModel(GOOD, reply("over", ""))
    run(rent(tmp_path), talker("Which\nAnna?", "Thank you."), turns=4, user=ModelUser(model))
    rules, case, *said = [message.content for message in model.conversations[1]]
    assert "You play the user" in rules
    assert "* `may-pay` (permission): Yes, pay her." in case
    assert [text.count("\n") for text in said] == [2, 0, 2]
    assert '"Which\\nAnna?"' in said[0]
    assert said[1].startswith('{"kind": "answer", "facts": ["which-anna"]')


def test_replies_are_counted_for_the_summary(tmp_path: Path) -> None:
    result = talk(
        tmp_path,
        reply("unknown", "It is Anna Berg."),
        reply("answer", "Anna Berg, 700.", "which-anna"),
        GOOD,
        reply("unknown", "I do not know."),
        said=("Which Anna?", "How old is she?"),
    )
    summary = summary_of(result, "run.json")
    assert RunSummary.from_json(summary.as_json()) == summary
    assert conversation_notes([summary], 1) == [
        "user: messages: 2 in 1 conversation; unknown: 1 (50%); refused: 0 (0%); "
        "corrected: 1 (1 leak, 1 invented value)"
    ]
    assert summary.unseen == ("agent", "emulator")


def test_the_user_is_in_the_run_key(tmp_path: Path) -> None:
    where, agent = rent(tmp_path), talker()
    keys = {spec(where, agent, 3, user).key for user in (OfflineUser(), ModelUser(ScriptedModel()))}
    assert len(keys) == 2


def test_a_user_that_nobody_can_ask_is_an_error() -> None:
    settings = Settings(user="openai:gpt-4o", sources={"user": "--toolemu-user"})
    with pytest.raises(
        UsageError, match="--toolemu-user names the user 'openai:gpt-4o', but with one turn, no agent can ask"
    ):
        Components(settings).user()
    assert isinstance(Components(Settings(turns=3)).user(), OfflineUser)
