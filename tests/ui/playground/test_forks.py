"""A fork repeats a play up to a changed result, and goes on by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_toolemu.errors import UsageError
from pytest_toolemu.ui.play import AnswerMove, CallMove
from pytest_toolemu.ui.playground import Playground
from tests.loopback import Call, Reply, replies
from tests.loopback.fixtures import Loopback
from tests.ui.playground.conftest import begun, do, settled

NOBODY = {"payees": [], "more": False}
SEARCH = CallMove("BankManager_SearchPayee", {"name": "Anna"})
ADD = CallMove("BankManager_AddPayee", {"name": "Anna New", "account_number": "1234-5, 678", "bank_name": "Norrbanken"})
AGENT = """
async def curious(task, toolbox):
    found = await toolbox.call("BankManager_SearchPayee", {"name": "Anna"})
    name = found["payees"][0]["name"] if found["payees"] else "Nobody"
    await toolbox.call("BankManager_SearchPayee", {"name": name})
    return name
"""


def test_an_agent_meets_the_changed_result_and_the_original_goes_on(playground: Playground) -> None:
    Path("curious_agent.py").write_text(AGENT)
    play = begun(playground, agent="curious_agent.py:curious", stops=True)
    fork = settled(playground.fork(play, 0, NOBODY))
    assert fork.turn is not None
    assert fork.turn.call is not None
    assert (fork.turn.call.index, fork.turn.call.arguments) == (1, {"name": "Nobody"})
    assert (fork.steps[0].observation.content, fork.steps[0].observation.source) == (NOBODY, "person")
    assert play.turn is not None
    for each in (play, fork):
        playground.set_stepping(each, False)
        settled(each)
    assert play.run is not None
    assert fork.run is not None
    assert (play.run.answer, fork.run.answer) == ("Anna Lindqvist", "Nobody")
    assert play.record != fork.record


def test_a_fork_of_a_person_repeats_calls_and_their_changes(playground: Playground) -> None:
    play = begun(playground)
    for move in (ADD, SEARCH, SEARCH):
        do(playground, play, move)
    fork = settled(playground.fork(play, 1, NOBODY))
    assert fork.turn is not None
    assert fork.turn.kind == "act"
    assert [step.observation.source for step in fork.steps] == ["rows", "person"]
    assert fork.steps[0].changes == play.steps[0].changes != ()
    do(playground, fork, AnswerMove("None."))
    assert fork.status == "finished"
    assert play.turn is not None


def test_a_fork_does_not_ask_a_person_again_for_earlier_results(playground: Playground) -> None:
    play = begun(playground, emulator="person")
    for move in (ADD, SEARCH):
        do(playground, play, move)
        assert play.turn is not None
        assert play.turn.observation is not None
        do(playground, play, play.turn.observation.content)
    fork = settled(playground.fork(play, 1, NOBODY))
    assert fork.turn is not None
    assert fork.turn.kind == "act"
    assert [step.observation.source for step in fork.steps] == ["rows", "person"]
    assert fork.steps[0].changes == play.steps[0].changes != ()


def test_an_error_in_place_of_a_result_changes_no_rows(playground: Playground) -> None:
    play = do(playground, begun(playground), ADD)
    fork = settled(playground.fork(play, 0, {"error": "Conflict: no"}))
    assert fork.steps[0].changes == ()


def test_an_agent_that_acts_differently_leaves_the_path_and_this_is_noted(playground: Playground) -> None:
    play = do(playground, do(playground, begun(playground), SEARCH), ADD)
    play.moves[0] = CallMove("BankManager_SearchPayee", {"name": "Bo"})
    fork = settled(playground.fork(play, 1, {"error": "Conflict: no"}))
    assert fork.notes == [
        f"Call 1 differs from the one in play {play.id}, so the changed result is not used, and this call and all "
        "later ones are answered anew"
    ]
    assert [step.observation.source for step in fork.steps] == ["rows", "rows"]


@pytest.mark.parametrize(
    ("index", "content", "message"),
    [
        (0, {"payees": []}, '"more" is a required property'),
        (0, {"error": "Nope: x"}, "SearchPayee declares no error 'Nope'"),
        (0, [], "a result is a JSON object"),
        (7, NOBODY, "has no call 8 with a result"),
    ],
)
def test_results_that_a_tool_cannot_return_are_refused(
    playground: Playground, index: int, content: object, message: str
) -> None:
    play = do(playground, begun(playground), SEARCH)
    with pytest.raises(UsageError, match=message):
        playground.fork(play, index, content)


def test_a_model_repeats_its_replies_until_the_result_differs(
    playground: Playground, loopback: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-loopback")
    search = Reply(calls=(Call(SEARCH.name, SEARCH.arguments),))
    server = loopback(replies([search, search, "Anna Lindqvist.", "Nobody."]))
    play = begun(playground, agent=f"openai:loopback@{server.url}")
    assert [request.method for request in server.requests] == ["GET", "POST", "POST", "POST"]
    fork = settled(playground.fork(play, 1, NOBODY))
    assert [request.method for request in server.requests[4:]] == ["GET", "POST"]
    assert play.run is not None
    assert fork.run is not None
    assert (play.run.answer, fork.run.answer) == ("Anna Lindqvist.", "Nobody.")
    assert [call.replayed for call in fork.run.model_calls] == [f"play {play.id}", f"play {play.id}", ""]
