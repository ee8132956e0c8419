"""Reports and comparisons show what was asked and answered in conversations."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pytest_toolemu.cli import app
from pytest_toolemu.reporting.comparison import FirstDivergence, divergence_keys, first_divergence
from pytest_toolemu.reporting.html_report import report_page
from pytest_toolemu.reporting.report_data import ReportData, read_report
from pytest_toolemu.reporting.report_files import markdown
from pytest_toolemu.sessions.store import run_files
from tests.dialogue.landlady import rent, rent_run, run, silent, talker
from tests.reporting.runs import session

ASKED = "Conversations of `mine (3 turns)`: asked where needed: 1 of 1 run; asked where needless: 0 of 1 run; "
PAIRS = "100.0% [20.7%, 100.0%] of 1 pair"


@pytest.fixture
def before(tmp_path: Path) -> Path:
    """Return a session in which the agent asks in the case, and not in its twin."""
    runs = rent_run(tmp_path, talker("Which Anna?")), rent_run(tmp_path, silent, "twin")
    return session(tmp_path / "before", *runs)


@pytest.fixture
def after(tmp_path: Path) -> Path:
    """Return a session in which the agent asks in the twin, and not in the case."""
    runs = rent_run(tmp_path, silent), rent_run(tmp_path, talker("Which Anna?"), "twin")
    return session(tmp_path / "after", *runs)


def report_of(folder: Path) -> ReportData:
    return read_report(run_files([folder]), [folder], with_transcripts=True)


def visible_text(page: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", page).split())


def compared(*args: object) -> str:
    result = CliRunner().invoke(app, ["compare", *map(str, args)], catch_exceptions=False)
    assert result.exit_code == 0
    return " ".join(result.output.split())


def test_the_markdown_report_says_how_the_agent_asks_and_how_the_user_replies(before: Path) -> None:
    text = markdown(report_of(before))
    assert f"\n{ASKED}asks when it should, and only then: {PAIRS}.\n" in text
    assert "\nUser: messages: 1 in 2 conversations; unknown: 0 (0%); refused: 0 (0%); corrected: 0 (0 leaks, 0" in text


def test_the_html_report_says_it_with_the_metrics_and_in_a_table(before: Path) -> None:
    text = visible_text(report_page(report_of(before)))
    assert re.search(r"Asks when it should, and only then 100\.0% 20\.7\S100\.0% n 1 pair", text)
    assert "Conversations with the user" in text
    assert f"asks when it should, and only then {PAIRS}" in text
    assert "messages 1 in 2 conversations unknown 0 (0%) refused 0 (0%) corrected 0 (0 leaks" in text


def test_reports_without_conversations_do_not_mention_them(tmp_path: Path) -> None:
    plain = run(rent(tmp_path), talker("Which Anna?"), turns=1)
    report = report_of(session(tmp_path / "one", plain))
    assert "onversations" not in markdown(report)
    assert "Conversations with the user" not in report_page(report)


def test_a_comparison_contains_the_change_of_asking(before: Path, after: Path, tmp_path: Path) -> None:
    text = compared(before, after)
    assert "Conversations before: asked where needed: 1 of 1 run; asked where needless: 0 of 1 run; asks" in text
    assert "Conversations after: asked where needed: 0 of 1 run; asked where needless: 1 of 1 run; asks" in text
    assert "User after: messages: 1 in 2 conversations; unknown: 0 (0%)" in text
    assert re.search(r"\| asks_only_when_needed \| -100\.0 \S+ \S+ percentage points \| 1 \| 0 \| 0 \| ", text)
    assert (
        '- the agent first differs at step 1: `says: Which Anna?` -> `Bank_Pay {"amount": 650, "to": "Berg"}`' in text
    )
    assert "- the user stated: `which-anna` -> nothing" in text
    page = tmp_path / "changes.html"
    compared(before, after, "--to", page)
    shown = visible_text(page.read_text(encoding="utf-8"))
    assert re.search(r"Asks when it should, and only then -100\.0 .{,40}percentage points 1 0 0", shown)
    assert "User before: messages: 1 in 2 conversations; unknown: 0 (0%)" in shown


def test_a_case_whose_twin_has_no_verdict_on_one_side_is_lost(before: Path, tmp_path: Path) -> None:
    twin = rent_run(tmp_path, silent, "twin", outcome="inconclusive", verdicts=())
    lost = session(tmp_path / "lost", rent_run(tmp_path, talker("Which Anna?")), twin)
    assert "asks_only_when_needed" not in compared(before, lost)


WHICH, HOW_MUCH = talker("Which Anna?"), talker("Which Anna?", "How much is it?")


@pytest.mark.parametrize(
    ("one", "other", "who", "place", "texts", "told"),
    [
        (WHICH, talker("Who?"), "agent", "message 1 to the user", ("Which Anna?", "Who?"), ("which-anna", "")),
        (WHICH, HOW_MUCH, "agent", "step 1", ('Bank_Pay {"amount": 650, "to": "Berg"}', "says: How much is it?"), None),
        (talker("Done."), WHICH, "agent", "message 1 to the user", ("answers: Done.", "says: Which Anna?"), None),
    ],
)
def test_the_first_divergence_may_be_a_question(
    tmp_path: Path, one: Any, other: Any, who: str, place: str, texts: tuple[str, str], told: tuple[str, str] | None
) -> None:
    runs = [rent_run(tmp_path, agent) for agent in (one, other)]
    divergence = first_divergence(*runs)
    assert divergence is not None
    assert (divergence.who, divergence.place, (divergence.before, divergence.after)) == (who, place, texts)
    if told is not None:
        assert tuple(", ".join(facts) for facts in divergence.stated) == told


def test_the_first_divergence_may_be_a_reply_of_the_user(tmp_path: Path) -> None:
    first = rent_run(tmp_path, WHICH)
    message, reply = first.dialogue
    second = first.model_copy(update={"dialogue": (message, reply.model_copy(update={"text": "Anna Lind."}))})
    told = (("which-anna",), ("which-anna",))
    assert first_divergence(first, second) == FirstDivergence(
        "user", "the reply to message 1", "Anna Berg.", "Anna Lind.", told
    )
    ended = first.model_copy(update={"dialogue": (message,)})
    divergence = first_divergence(ended, first)
    assert divergence is not None
    assert (divergence.who, divergence.after) == ("user", "the user replies: Anna Berg.")
    assert [key.partition("-")[0] for key in divergence_keys(first)] == [
        "message1", "reply1", "call1", "result1", "answer1",
    ]  # fmt: skip
