"""A play becomes a case of the project, with its results as pins, or with the rows at its end."""

from __future__ import annotations

import pytest

from pytest_toolemu.core.case_loading import load_case
from pytest_toolemu.errors import DocumentError, UsageError
from pytest_toolemu.ui.play import AnswerMove, CallMove, Play
from pytest_toolemu.ui.playground import Playground, SavedKind, save_play
from tests.ui.playground.conftest import begun, do, settled

SEARCH = CallMove("BankManager_SearchPayee", {"name": "Anna"})
ADD = CallMove("BankManager_AddPayee", {"name": "Anna New", "account_number": "1234-5, 678", "bank_name": "Norrbanken"})
PINNED = """
title: Find Anna
toolkits: [BankManager]
instruction: Who is Anna?
pins:
  - tool: BankManager.SearchPayee
    returns:
      payees: [{payee_id: PY-1, name: Anna Berg, account_number: "1234-5", bank_name: Norrbanken, note: "", added_on: "2024-01-01"}]
      more: false
"""


def ended(playground: Playground, play: Play) -> Play:
    return do(playground, play, AnswerMove("Done."))


def test_a_changed_result_becomes_a_pin(playground: Playground) -> None:
    play = do(playground, begun(playground), SEARCH)
    fork = ended(playground, settled(playground.fork(play, 0, {"payees": [], "more": False})))
    saved = save_play(playground.cases, fork, "pins", "nobody")
    (pin,) = load_case(saved.path).case.pins
    assert (pin.tool, pin.returns) == ("BankManager.SearchPayee", {"payees": [], "more": False})


def test_the_rows_at_the_end_become_the_world(playground: Playground) -> None:
    play = ended(playground, do(playground, begun(playground), ADD))
    saved = save_play(playground.cases, play, "world", "later")
    before, after = play.resolved_case.case, load_case(saved.path).case
    names = [row["name"] for row in after.world["BankManager"]["payee"]]
    assert set(names) - {row["name"] for row in before.world["BankManager"]["payee"]} == {"Anna New"}
    assert (after.instruction, after.checks) == (before.instruction, before.checks)


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("case", "../x", "cannot be the ID of a case"),
        ("case", "taken", "taken.toolemu.yaml exists; choose another ID"),
        ("world", "none", "the case has no rows that could be saved"),
    ],
)
def test_what_cannot_be_saved_is_explained(playground: Playground, kind: SavedKind, name: str, message: str) -> None:
    text = PINNED.partition("pins:")[0]
    play = begun(playground, "find-anna", text)
    assert save_play(playground.cases, play, "case", "taken").path.read_text() == text
    with pytest.raises(UsageError, match="the play has no results yet that could be saved; end it first"):
        save_play(playground.cases, play, "pins", "early")
    ended(playground, play)
    with pytest.raises((UsageError, DocumentError), match=message):
        save_play(playground.cases, play, kind, name)
    assert [path.name for path in playground.cases.folder.iterdir()] == ["taken.toolemu.yaml"]
