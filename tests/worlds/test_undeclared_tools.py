"""A model answers tools without an operation; it sees the tables, and code carries out the changes that it states."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_toolemu.core.case_loading import load_case
from pytest_toolemu.core.run import Trajectory
from pytest_toolemu.core.toolbox import Toolbox
from pytest_toolemu.core.world.state_changes import StateEdit
from pytest_toolemu.emulators.layers import RowsEmulator
from pytest_toolemu.emulators.simulated import Mode, SimulatedEmulator
from pytest_toolemu.errors import InconclusiveError
from pytest_toolemu.formats.json_schema import conforms
from tests.scripted_model import ScriptedModel
from tests.worlds.library import LIBRARY, world_of
from tests.worlds.test_case_rows import CASE

DESCRIBE = ("Library_DescribeBook", {"book_id": "B-1"})
SEARCH = ("Library_SearchBooks", {"text": "tram"})


def reply(*changes: dict[str, Any], outcome: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "validation": "",
        "reasoning": "",
        "log_summary": "Described.",
        "outcome": outcome or {"observation": {"text": "A tram at night."}},
        "state_changes": list(changes),
    }


def change(kind: str, key: str, entity: str = "book", **values: Any) -> dict[str, Any]:
    return {"change": kind, "entity": entity, "key": key, "values": values}


def run(
    tmp_path: Path, model: ScriptedModel, *calls: tuple[str, dict[str, Any]], mode: Mode = "standard"
) -> Trajectory:
    (tmp_path / "toolkits").mkdir()
    (tmp_path / "toolkits" / "Library.toolkit.yaml").write_text(LIBRARY, encoding="utf-8")
    path = tmp_path / "tram.toolemu.yaml"
    path.write_text(CASE, encoding="utf-8")
    trajectory = Trajectory(load_case(path))
    toolbox = Toolbox(trajectory, RowsEmulator(SimulatedEmulator(model, mode)), max_steps=9)

    async def act() -> None:
        for name, arguments in calls:
            await toolbox.call(name, arguments)

    asyncio.run(act())
    return trajectory


def test_the_model_sees_the_rows_as_they_are_now(tmp_path: Path) -> None:
    model = ScriptedModel(reply())
    run(tmp_path, model, ("Library_UpdateBook", {"book_id": "B-1", "title": "The Night Tram"}), DESCRIBE)
    (conversation,) = model.conversations
    last = conversation[-1].content
    assert '{"book":["book_id","isbn","title","language","tags","lendable","copies"]}' in last
    assert '["B-1","111","The Night Tram","en",[],true,3]' in last
    assert "The Last Tram" not in "".join(message.content for message in conversation)


def test_calls_that_rows_answer_are_in_the_record_without_a_specification(tmp_path: Path) -> None:
    model = ScriptedModel(reply(), reply())
    run(tmp_path, model, SEARCH, DESCRIBE, SEARCH, DESCRIBE)
    first, second = model.conversations
    *before, last = first
    assert second[: len(before)] == tuple(before)
    assert last.content.startswith(second[len(before)].content)  # only the tables are left out later
    calls = [message.content for message in second if message.role == "user"]
    assert ["\nSpecification: " in text for text in calls] == [False, True, False, False]
    assert json.loads(first[-2].content)["observation"]["books"]


def test_other_tools_are_only_named_and_the_specification_is_complete(tmp_path: Path) -> None:
    model = ScriptedModel(reply())
    run(tmp_path, model, DESCRIBE)
    _, case, call = (message.content for message in model.conversations[0])
    assert "\n* Library (The books of a library and its loans): SearchBooks, GetBook, " in case
    assert "\nSpecification: Describe a book in words. (book_id: string); read; " in call


def test_the_model_learns_the_time_at_which_the_call_is_made(tmp_path: Path) -> None:
    model = ScriptedModel(reply())
    run(tmp_path, model, SEARCH, SEARCH, DESCRIBE)
    assert "Time of the instruction: Tuesday, 2022-02-22, 11:37 " in model.conversations[0][1].content
    assert "\nCurrent time: Tuesday, 2022-02-22, 11:39 " in model.conversations[0][-1].content


def test_the_model_adds_no_trap_of_its_own_to_the_rows(tmp_path: Path) -> None:
    model = ScriptedModel(reply())
    run(tmp_path, model, DESCRIBE, mode="adversarial")
    (conversation,) = model.conversations
    assert "stress" not in "".join(message.content for message in conversation).casefold()


def test_stated_changes_are_carried_out_and_recorded_and_the_agent_sees_only_later_reads(tmp_path: Path) -> None:
    model = ScriptedModel(reply(change("change", "B-1", copies=2), change("remove", "B-2")))
    described, found = run(tmp_path, model, DESCRIBE, SEARCH).steps
    assert described.observation.content == {"text": "A tram at night."}
    assert [(each.key, each.change, each.after) for each in described.changes] == [
        ("B-1", "changed", {"copies": 2}),
        ("B-2", "removed", {}),
    ]
    assert [(book["book_id"], book["copies"]) for book in found.observation.content["books"]] == [("B-1", 2)]


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (change("change", "B-9", copies=2), "state_changes[1].key: book 'B-9' does not exist"),
        (change("add", "B-1", copies=2), "state_changes[1].key: book 'B-1' exists already"),
        (change("remove", "B-9"), "state_changes[1].key: book 'B-9' does not exist"),
        (change("change", "B-1", "bok"), "state_changes[1].entity: 'bok' is unknown; did you mean 'book'?"),
        (change("change", "B-1", copies="many"), "state_changes[1].values: copies: "),
        (change("change", "B-1", pages=7), "state_changes[1].values: "),
        (change("change", "B-1", copies=-1), "state_changes[1]: it breaks the rule 'copies >= 0'"),
    ],
)
def test_a_wrong_change_is_requested_again_and_none_is_carried_out(
    tmp_path: Path, bad: dict[str, Any], problem: str
) -> None:
    good = change("change", "B-2", copies=7)
    model = ScriptedModel(reply(good, bad), reply())
    (step,) = run(tmp_path, model, DESCRIBE).steps
    assert problem in model.conversations[1][-1].content
    assert step.changes == ()


def test_a_call_that_fails_changes_nothing(tmp_path: Path) -> None:
    error = {"error": {"name": "NotFound", "message": "unknown"}}
    failing = reply(change("remove", "B-2"), outcome=error)
    with pytest.raises(InconclusiveError, match="a call that fails changes nothing; leave the list empty"):
        run(tmp_path, ScriptedModel(failing, failing, failing), DESCRIBE)


# Mostly values that a book can have: otherwise hardly any change would be carried out before the first wrong one.
VALUES = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"copies": st.integers(-1, 3)}),
    st.dictionaries(
        st.sampled_from(["book_id", "isbn", "title", "language", "tags", "lendable", "copies", "pages", "reader"]),
        st.one_of(
            st.none(),
            st.booleans(),
            st.integers(),
            st.floats(allow_nan=False),
            st.text(max_size=9),
            st.lists(st.text()),
        ),
        max_size=4,
    ),
)
EDITS = st.lists(
    st.builds(
        StateEdit,
        change=st.sampled_from(["add", "change", "remove"]),
        entity=st.sampled_from(["book", "loan", "shelf"]),
        key=st.one_of(st.sampled_from(["B-1", "B-2", "L-1"]), st.text(max_size=5)),
        values=VALUES,
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=200, deadline=None)
@given(EDITS)
def test_no_change_ever_leaves_a_row_that_breaks_its_schema(edits: list[StateEdit]) -> None:
    world = world_of()
    before = world.rows()
    if world.edit("Library", edits):
        assert world.rows() == before
    for name, rows in world.rows()["Library"].items():
        table = world.plans["Library"].tables[name]
        assert all(conforms(table.row_schema(), row) for row in rows)
