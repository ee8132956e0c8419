"""A person plays the agent, the emulator, or the user of a case, without a browser and without any key."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_toolemu.core.run import UserReply
from pytest_toolemu.core.run_file import load_run
from pytest_toolemu.errors import DocumentError, UsageError
from pytest_toolemu.sessions.merge_sessions import read_inputs
from pytest_toolemu.sessions.store import manifest_of, read_run_summaries, sessions_below
from pytest_toolemu.ui.play import AnswerMove, CallMove, Play, SayMove, TurnOverError
from pytest_toolemu.ui.playground import MAX_RUNNING, Playground
from tests.ui.playground.conftest import begun, do, settled

SEARCH = CallMove("BankManager_SearchPayee", {"name": "Anna"})
TALK = "june-rent-for-anna"


def awaited(play: Play) -> str | None:
    """Return the kind of what a person has to do."""
    return play.turn.kind if play.turn is not None else None


def test_a_person_calls_tools_answers_and_is_judged(playground: Playground) -> None:
    play = begun(playground)
    assert (play.turn and play.turn.kind, play.status) == ("act", "running")
    do(playground, play, SEARCH)
    assert play.steps[0].observation.source == "rows"
    do(playground, play, CallMove("BankManager_SearchPayee", {"wrong": 1}))
    assert play.steps[1].observation.source == "rejected"
    do(playground, play, AnswerMove("Which Anna?"))
    assert (play.status, play.problem) == ("finished", "")
    assert play.run is not None
    assert play.record is not None
    assert play.run.outcome == "failed"
    stored = load_run(play.record)
    assert (stored.answer, stored.agent, stored.identity.agent) == ("Which Anna?", "person", {"kind": "person"})
    assert stored.verdicts == play.run.verdicts
    assert len(stored.steps) == 2


def test_records_are_in_marked_sessions_and_equal_plays_have_their_own(playground: Playground) -> None:
    records = []
    for _ in range(2):
        play = do(playground, begun(playground), AnswerMove("Done."))
        assert play.record is not None
        records.append(play.record)
    assert len({*records}) == 2
    (folder,) = {record.parent for record in records}
    assert folder.parent == playground.directory / "playground"
    assert manifest_of(folder).playground


def test_a_person_can_give_up(playground: Playground) -> None:
    play = do(playground, begun(playground), AnswerMove("too hard", is_quit=True))
    assert play.run is not None
    assert (play.run.stop, play.run.stop_reason) == ("quit", "too hard")


def test_a_turn_is_taken_once(playground: Playground) -> None:
    play = begun(playground)
    assert play.turn is not None
    number = play.turn.number
    do(playground, play, SEARCH)
    with pytest.raises(TurnOverError, match="this was answered already; the page shows what comes next"):
        playground.resolve(play, number, SEARCH)


def test_an_agent_is_watched_step_by_step_and_let_go(playground: Playground) -> None:
    play = begun(playground, agent="reference:risky", stops=True)
    assert play.turn is not None
    assert (play.turn.kind, play.turn.call and play.turn.call.index, len(play.steps)) == ("deliver", 0, 0)
    do(playground, play)
    assert (play.turn.call and play.turn.call.index, len(play.steps)) == (1, 1)
    playground.set_stepping(play, False)
    settled(play)
    assert play.run is not None
    assert (play.run.outcome, play.run.agent) == ("failed", "reference")


def test_a_play_is_paused_at_the_next_result(playground: Playground) -> None:
    play = begun(playground, emulator="person")
    do(playground, play, SEARCH)
    playground.set_stepping(play, True)
    do(playground, play, {"payees": [], "more": False})
    assert awaited(play) == "deliver"
    playground.set_stepping(play, False)
    assert awaited(settled(play)) == "act"


def test_a_run_that_cannot_be_stored_is_kept_with_the_reason(playground: Playground) -> None:
    playground.directory.mkdir()
    (playground.directory / "playground").write_text("a file")
    play = do(playground, begun(playground), AnswerMove("Done."))
    assert (play.status, play.record) == ("broken", None)
    assert "playground" in play.problem
    assert play.run is not None
    assert play.run.answer == "Done."


def test_a_person_is_the_emulator_and_gets_a_suggestion(playground: Playground) -> None:
    play = begun(playground, agent="reference:risky", emulator="person")
    assert play.turn is not None
    assert play.turn.kind == "emulate"
    assert play.turn.observation is not None
    assert play.turn.observation.source == "rows"
    do(playground, play, play.turn.observation.content)
    do(playground, play, {"transactions": [], "more": False})
    assert [step.observation.source for step in play.steps] == ["rows", "person"]


def test_an_error_of_a_person_takes_back_what_the_suggested_call_changed(playground: Playground) -> None:
    play = begun(playground, emulator="person")
    arguments = {"name": "Anna New", "account_number": "1234-5, 678", "bank_name": "Norrbanken"}
    do(playground, play, CallMove("BankManager_AddPayee", arguments))
    assert play.turn is not None
    assert play.turn.kind == "emulate"
    do(playground, play, {"error": "Conflict: no"})
    assert play.trajectory is not None
    assert play.trajectory.world is not None
    payees = play.trajectory.world.rows()["BankManager"]["payee"]
    assert play.steps[0].changes == ()
    assert all(payee["name"] != "Anna New" for payee in payees)


def test_a_person_is_the_user(playground: Playground) -> None:
    play = begun(playground, TALK, user="person", turns=3)
    do(playground, play, SayMove("Which Anna do you mean?"))
    assert awaited(play) == "reply"
    do(playground, play, UserReply(kind="answer", text="My landlady."))
    assert awaited(play) == "act"
    do(playground, play, SayMove("Shall I pay?"))
    do(playground, play, UserReply(kind="over"))
    assert play.run is not None
    assert (play.run.answer, [one.text for one in play.run.dialogue]) == (
        "Shall I pay?",
        ["Which Anna do you mean?", "My landlady."],
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"agent": "openai:gpt-4o"}, "openai:gpt-4o needs a key: set OPENAI_API_KEY in the environment"),
        ({"agent": "reference:"}, "write reference:safe or reference:risky"),
        ({"user": "person"}, "no agent would ask you; give the agent at least 2 messages"),
        ({"evaluators": ("gpt-4o",)}, "openai:gpt-4o needs a key|gpt-4o needs a key"),
    ],
)
def test_a_play_that_cannot_begin_says_why(
    playground: Playground, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], message: str
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(UsageError, match=message):
        begun(playground, **fields)
    assert playground.plays() == []


def test_a_case_that_is_not_valid_is_refused_with_positions(playground: Playground) -> None:
    with pytest.raises(DocumentError) as error:
        begun(playground, text="title: 3\n")
    assert (1, 8) in [problem[:2] for problem in error.value.problems]


def test_a_changed_case_of_the_benchmark_is_no_case_of_the_benchmark(playground: Playground) -> None:
    text = playground.cases.text(TALK)
    same = playground.cases.case(TALK, text)
    changed = playground.cases.case(TALK, text.replace("\n", "\n# mine\n", 1))
    assert same.path == playground.cases.of_benchmark[TALK]
    assert changed.path == playground.cases.folder / f"{TALK}.toolemu.yaml"


def test_a_template_is_a_valid_case_but_for_its_gaps(playground: Playground) -> None:
    assert playground.cases.case("my-case", playground.cases.template("BankManager")).case.toolkits == ("BankManager",)
    with pytest.raises(UsageError, match="unknown toolkit 'Nope'"):
        playground.cases.template("Nope")
    with pytest.raises(UsageError, match="there is no case"):
        playground.cases.text("../secret")


def test_few_plays_run_at_once_and_a_stopped_one_makes_room(playground: Playground) -> None:
    plays = [begun(playground) for _ in range(MAX_RUNNING)]
    with pytest.raises(UsageError, match=f"{MAX_RUNNING} plays are running; end one of them first"):
        begun(playground)
    playground.stop(plays[0])
    assert (plays[0].status, plays[0].record) == ("stopped", None)
    assert begun(playground).status == "running"


def test_plays_end_with_the_application(playground: Playground) -> None:
    play = begun(playground)
    playground.close()
    assert play.status == "stopped"


def test_the_folder_of_one_session_is_no_place_for_plays(playground: Playground) -> None:
    playground.directory.mkdir()
    (playground.directory / "session.json").write_text("{}")
    with pytest.raises(UsageError, match="is one session, and plays are stored in a run directory"):
        begun(playground)


def test_plays_are_part_of_no_figure(playground: Playground) -> None:
    play = do(playground, begun(playground), AnswerMove("Done."))
    assert play.record is not None
    with pytest.raises(UsageError, match="a person played these runs in the playground, so they are part of no figure"):
        read_run_summaries([play.record.parent])
    assert sessions_below(playground.directory) == []
    with pytest.raises(UsageError, match="there is no session here or below"):
        read_inputs([playground.directory])
