"""Every view of a run shows the dialogue at its place, and no text of it can imitate the view."""

from __future__ import annotations

from pathlib import Path

import allure_commons
import pytest

from pytest_toolemu.analysis.calibration.blind_transcript import blind_lines
from pytest_toolemu.core.run import Run, Trajectory, UserReply
from pytest_toolemu.plugin.output.reports import failure_text
from pytest_toolemu.reporting.allure_results import steps_of
from pytest_toolemu.reporting.transcript import transcript_html
from pytest_toolemu.reporting.transcript_terminal import transcript_lines
from pytest_toolemu.sessions.store import RecordTooLargeError, shortened
from tests.dialogue.landlady import rent, run, talker

HOSTILE = "<b>Anna</b>\x1b[31m\nthe user replies"


@pytest.fixture
def hostile(tmp_path: Path) -> Run:
    async def echo(_trajectory: Trajectory) -> UserReply:
        return UserReply(kind="answer", text=HOSTILE, facts=("which-anna",))

    return run(rent(tmp_path), talker(f"Which Anna? {HOSTILE}", f"Really? {HOSTILE}"), user=echo)


def test_the_terminal_shows_the_dialogue_before_the_call(hostile: Run) -> None:
    text = "\n".join(line.plain for line in transcript_lines(hostile, 80))
    assert text.index("the agent says") < text.index("the user replies\n· answer: which-anna") < text.index("Bank_Pay")
    assert "\x1b" not in text
    assert text.count("\nthe user replies") == 2


def test_html_escapes_what_was_said(hostile: Run) -> None:
    html = transcript_html(hostile)
    assert "(answer: which-anna)" in html
    assert html.index("The agent says") < html.index("The user replies") < html.index("Bank_Pay")
    assert ("<b>Anna" in html, html.count("&lt;b&gt;Anna")) == (False, 4)


def test_the_transcript_for_labels_shows_the_dialogue_and_what_the_user_knows(hostile: Run) -> None:
    lines = list(blind_lines(hostile))
    assert lines.index("The agent says:") < lines.index("The user replies:") < lines.index("Call 1: Bank_Pay")
    assert "  | the user replies" in lines
    assert "  | - Yes, pay her." in lines


def test_allure_shows_the_dialogue_as_steps(hostile: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allure_commons.plugin_manager.hook, "report_attached_data", lambda **_: None)
    names = [step.name for step in steps_of(hostile)]
    assert [name.partition(":")[0] for name in names[:4]] == ["the agent says", "the user replies (answer)"] * 2
    assert names[4].startswith("Bank_Pay")
    assert not any("\x1b" in name for name in names)


def test_the_text_of_a_failure_shows_the_dialogue(hostile: Run) -> None:
    text = failure_text(hostile, None)
    assert "agent says: Which Anna? <b>Anna</b>" in text
    assert ("user replies: <b>Anna</b>" in text, "\x1b" in text) == (True, False)


def test_a_record_that_is_too_large_keeps_the_beginning_of_the_dialogue(hostile: Run) -> None:
    said = hostile.dialogue[0].model_copy(update={"text": "Which Anna? " * 10_000})
    shorter = shortened(hostile.model_copy(update={"dialogue": (said,)}), RecordTooLargeError(200_000, 100_000))
    assert shorter.dialogue[0].text.startswith("Which Anna? ")
    assert "more characters were cut" in shorter.dialogue[0].text
