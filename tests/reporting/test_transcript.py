"""Readable JSON in transcripts, and the agent's thoughts, which transcripts show on request."""

from __future__ import annotations

import json
import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pytest_toolemu.cli.serve import verdict_lines
from pytest_toolemu.core.case_rules import CallPattern, Check
from pytest_toolemu.core.run import Emulation, Run, Verdict
from pytest_toolemu.plugin.output.reports import failure_text, no_verdict_text
from pytest_toolemu.reporting.transcript import failed_checks, pretty_json, transcript_html
from pytest_toolemu.reporting.transcript_terminal import hidden_texts, transcript_lines
from tests.reporting.runs import run

TEXT = st.text(max_size=40)  # with its key, more than fits on one line
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


def test_short_json_stays_on_one_line() -> None:
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


@given(st.dictionaries(TEXT, VALUES, max_size=4))
def test_formatted_json_reads_back_as_the_same_value(value: dict[str, object]) -> None:
    assert json.loads(pretty_json(value)) == value


def test_only_checks_that_failed_are_defined() -> None:
    case = run("a").case
    sent, asked = (Check(id=name, expect=CallPattern(answer=name)) for name in ("sent", "asked"))
    checked = case.model_copy(update={"checks": (sent, asked)})

    def defined(reason: str) -> str:
        verdict = Verdict(evaluator="checks", metric="helpfulness", score=3, label="Excellent", reason=reason)
        return failed_checks(checked, verdict)

    assert defined("met: sent, asked") == ""
    assert "id: asked" in defined("met: sent; missed: asked")
    assert "id: sent" not in defined("met: sent; missed: asked")


def thoughtful() -> Run:
    short = run("a")
    emulation = Emulation(
        validation="The call is fine.", reasoning="Two Annas.", log_summary="Found.", repairs=("no JSON",)
    )
    observation = short.steps[0].observation.model_copy(update={"emulation": emulation})
    first = short.steps[0].model_copy(update={"thought": "I look first. " * 9, "observation": observation})
    return short.model_copy(update={"steps": (first, *short.steps[1:]), "thought": "That is all."})


def test_a_page_shows_thoughts_and_notes_collapsed() -> None:
    page = transcript_html(thoughtful())
    details = re.findall(r'<details class="thought"><summary>([^<]*)</summary>(.*?)</details>', page, re.DOTALL)
    assert [(title, re.sub(r"<[^>]*>|\\s+", " ", text).split()) for title, text in details] == [
        ("Thought of the agent", ("I look first. " * 9).split()),
        ("Notes of the emulator",
         ["validation", "of", "the", "call", "The", "call", "is", "fine.", "reasoning", "Two", "Annas.", "summary", "Found.", "problem", "in", "an", "earlier", "reply", "no", "JSON"]),
        ("Thought of the agent", ["That", "is", "all."]),
    ]  # fmt: skip
    assert "<details open" not in page


def test_the_terminal_shows_thoughts_only_in_a_full_transcript() -> None:
    short, full = ([line.plain for line in transcript_lines(thoughtful(), 60, full=full)] for full in (False, True))
    assert hidden_texts(thoughtful()) == "thoughts of the agent and notes of the emulator (6)"
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


def test_standard_error_of_a_program_is_shown_in_a_full_transcript_and_collapsed_in_a_page() -> None:
    program = run("a", agent_log="connected\nno key")
    short, full = ([line.plain for line in transcript_lines(program, 60, full=full)] for full in (False, True))
    assert hidden_texts(program) == "standard error of the agent"
    assert "no key" not in "\n".join(short)
    assert full[full.index("standard error of the agent") :][1:3] == ["\u250a connected", "\u250a no key"]
    assert "<summary>Standard error of the agent</summary><pre><code>connected\nno key<" in transcript_html(program)


def test_a_warning_about_the_agent_is_shown_with_the_outcome() -> None:
    warned = run("a", agent_warning="no client")
    assert "\u00b7 warning: no client" in [line.plain for line in transcript_lines(warned, 60)]
    assert '<p class="reason">Warning: no client</p>' in transcript_html(warned)
    assert "warning: no client" in failure_text(warned, None).splitlines()
    assert "warning: no client" in no_verdict_text(warned, Path("run.json")).splitlines()
    assert "warning: no client" in list(verdict_lines(warned, Path("run.json")))


def test_a_full_transcript_does_not_truncate_long_texts() -> None:
    long = run("a", answer="word\n" * 90)
    assert "\u2502 \u2026 50 more lines; the record contains the full text" in [
        line.plain for line in transcript_lines(long, 60)
    ]
    assert sum(line.plain == "\u2502 word" for line in transcript_lines(long, 60, full=True)) == 90
