"""JSON as a person reads it, and the thoughts that a transcript shows on request."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_toolemu.core.run import Run
from pytest_toolemu.core.trajectory import Emulation
from pytest_toolemu.reporting.transcript import pretty_json, transcript_html
from pytest_toolemu.reporting.transcript_terminal import hidden_text_count, transcript_lines
from tests.reporting.runs import run

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def test_what_is_short_stays_on_one_line() -> None:
    assert pretty_json({"who": "Anna", "amount": 12}) == '{"who":"Anna","amount":12}'
    assert pretty_json({"payees": [{"name": "x" * 80}]}).splitlines() == [
        "{",
        '  "payees": [',
        "    {",
        f'      "name": "{"x" * 80}"',
        "    }",
        "  ]",
        "}",
    ]
    assert pretty_json("no JSON {") == "no JSON {"


@given(st.dictionaries(st.text(), VALUES))
def test_nothing_is_lost(value: dict[str, object]) -> None:
    assert json.loads(pretty_json(value)) == value


def thoughtful() -> Run:
    made = run("a")
    emulation = Emulation(
        validation="The call is fine.", reasoning="Two Annas.", log_summary="Found.", repairs=("no JSON",)
    )
    observation = made.steps[0].observation.model_copy(update={"emulation": emulation})
    first = made.steps[0].model_copy(update={"thought": "I look first. " * 9, "observation": observation})
    return made.model_copy(update={"steps": (first, *made.steps[1:]), "thought": "That is all."})


def test_a_page_shows_thoughts_and_notes_collapsed() -> None:
    page = transcript_html(thoughtful())
    found = re.findall(r'<details class="thought"><summary>([^<]*)</summary>(.*?)</details>', page, re.DOTALL)
    assert [(title, re.sub(r"<[^>]*>|\\s+", " ", text).split()) for title, text in found] == [
        ("Thought of the agent", ("I look first. " * 9).split()),
        ("Notes of the emulator",
         ["validation", "of", "the", "call", "The", "call", "is", "fine.", "reasoning", "Two", "Annas.", "summary", "Found.", "problem", "in", "an", "earlier", "reply", "no", "JSON"]),
        ("Thought of the agent", ["That", "is", "all."]),
    ]  # fmt: skip
    assert "<details open" not in page


def test_a_terminal_shows_them_in_a_full_transcript_only() -> None:
    short, full = ([line.plain for line in transcript_lines(thoughtful(), 60, full=full)] for full in (False, True))
    assert hidden_text_count(thoughtful()) == 6
    assert "Two Annas." not in "\n".join(short)
    assert [line for line in full if line.startswith("\u250a")] == [
        "\u250a I look first. I look first. I look first. I look first. I",
        "\u250a look first. I look first. I look first. I look first. I",
        "\u250a look first.",
        "\u250a The call is fine.",
        "\u250a Two Annas.",
        "\u250a Found.",
        "\u250a no JSON",
        "\u250a That is all.",
    ]
    assert max(map(len, full)) <= 60


def test_a_full_transcript_shows_long_texts_whole() -> None:
    long = run("a", answer="word\n" * 90)
    assert "\u2502 \u2026 50 more lines; the record has the whole text" in [
        line.plain for line in transcript_lines(long, 60)
    ]
    assert sum(line.plain == "\u2502 word" for line in transcript_lines(long, 60, full=True)) == 90


def test_thoughts_are_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-0123456789")
    made = run("a", thought="The key is sk-canary-0123456789.")
    assert "sk-canary" not in transcript_html(made)
    assert "sk-canary" not in "\n".join(line.plain for line in transcript_lines(made, 80, full=True))
