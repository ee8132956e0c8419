"""Judges and readers see how the data differs at the end; readers also see it at the beginning."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pytest_toolemu.core.run import Run
from pytest_toolemu.core.world.state_changes import apply_changes, changes_between, net_changes
from pytest_toolemu.evaluators.transcript_view import material, transcript
from pytest_toolemu.reporting.transcript import transcript_html
from pytest_toolemu.reporting.transcript_terminal import transcript_lines
from tests.reporting.runs import run
from tests.worlds.test_case_rows import lend, played, write

KEYS = {"Kit": {"thing": "id"}}
THING = st.fixed_dictionaries({"a": st.integers(0, 2)}, optional={"b": st.integers(0, 2)})
STATE = st.dictionaries(st.sampled_from(["x", "y"]), THING).map(
    lambda things: {"Kit": {"thing": [{"id": key, **thing} for key, thing in things.items()]}}
)


@given(st.lists(STATE, min_size=1, max_size=5))
def test_net_changes_lead_from_the_first_state_to_the_last(
    states: list[dict[str, dict[str, list[dict[str, object]]]]],
) -> None:
    steps = [change for one, other in itertools.pairwise(states) for change in changes_between(one, other, KEYS)]
    net = net_changes(steps)
    assert len({change.key for change in net}) == len(net)
    assert {change.key: change for change in net} == {
        change.key: change for change in changes_between(states[0], states[-1], KEYS)
    }
    rows = apply_changes(states[0], net, KEYS)["Kit"]["thing"]
    assert sorted(map(json.dumps, map(_sorted, rows))) == sorted(
        map(json.dumps, map(_sorted, states[-1]["Kit"]["thing"]))
    )


def _sorted(row: dict[str, object]) -> dict[str, object]:
    return dict(sorted(row.items()))


def lent(tmp_path: Path, more: str = "") -> Run:
    """Return a run in which a book was lent."""
    trajectory = played(write(tmp_path, more), lend("B-2"))
    resolved_case = trajectory.resolved_case
    return run("tram", case=resolved_case.case, toolkits=resolved_case.toolkits, steps=tuple(trajectory.steps))


def test_a_judge_sees_the_differences_but_no_row_that_stayed(tmp_path: Path) -> None:
    trajectory = played(write(tmp_path, "ids: {Library.loan: [L-7]}\n"), lend("B-2"))
    records = [json.loads(line) for line in transcript(trajectory).splitlines()]
    assert records[2:4] == [
        {"changed": "Library.book", "key": "B-2", "before": {"copies": 1}, "after": {"copies": 0}},
        {
            "added": "Library.loan",
            "key": "L-7",
            "after": {"loan_id": "L-7", "book_id": "B-2", "reader": "Tove", "due_on": "2022-03-22"},
        },
    ]
    text = material(trajectory, "safety")
    assert "Lines with `added`, `changed`, or `removed` list every difference" in text
    assert "The Last Tram" not in text


def test_the_transcript_shows_tables_changes_and_differences(tmp_path: Path) -> None:
    html = transcript_html(lent(tmp_path, "ids: {Library.loan: [L-7]}\n"))
    assert html.count("<strong>added</strong> <code>Library.loan</code>") == 2  # with the call, and at the end
    assert "<del>1</del>" in html
    assert "<ins>0</ins>" in html
    _, _, beginning = html.partition("Data at the beginning")
    assert "<td>The Last Tram</td>" in beginning


def test_rows_of_models_are_escaped(tmp_path: Path) -> None:
    trajectory = played(
        write(tmp_path), [("Library_UpdateBook", {"book_id": "B-2", "title": "<script>alert(1)</script>"})]
    )
    resolved_case = trajectory.resolved_case
    one = run("tram", case=resolved_case.case, toolkits=resolved_case.toolkits, steps=tuple(trajectory.steps))
    html = transcript_html(one)
    assert "<script>" not in html
    assert "&lt;script&gt;" in html


def test_the_terminal_shows_changes_and_in_full_the_tables(tmp_path: Path) -> None:
    one = lent(tmp_path, "ids: {Library.loan: [L-7]}\n")
    short = [line.plain for line in transcript_lines(one, 100)]
    assert "± changed Library.book B-2: copies: 1 -> 0" in short
    at_end = short[short.index("data at the end, compared with the beginning") :]
    assert "± changed Library.book B-2: copies: 1 -> 0" in at_end
    full = [line.plain for line in transcript_lines(one, 100, full=True)]
    assert "Library.book at the beginning" in full
    assert any("title: The Last Tram" in line for line in full)


def test_a_run_that_changed_nothing_says_so(tmp_path: Path) -> None:
    trajectory = played(write(tmp_path), [("Library_SearchBooks", {"text": "tram"})])
    resolved_case = trajectory.resolved_case
    one = run("tram", case=resolved_case.case, toolkits=resolved_case.toolkits, steps=tuple(trajectory.steps))
    assert "Nothing differs from the beginning." in transcript_html(one)
    assert "± nothing differs" in [line.plain for line in transcript_lines(one, 100)]
