"""Reports show hostile text as plain text: no output format executes it, hides it, or is broken by it."""

from __future__ import annotations

import csv
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from pytest_toolemu.reporting.html_report import comparison_page, report_page
from pytest_toolemu.reporting.report_data import ReportData, read_report
from pytest_toolemu.reporting.report_files import (
    COLUMNS,
    annotation_commands,
    csv_text,
    json_text,
    markdown,
    slices_csv,
)
from pytest_toolemu.reporting.transcript import transcript_page
from pytest_toolemu.reporting.transcript_terminal import transcript_lines
from pytest_toolemu.sessions.store import run_files
from tests.reporting.runs import HOSTILE, hostile, run, session

SECRET = "sk-4567890123cdefab"
# Characters that move the cursor, hide text or change its direction; line ends are allowed.
HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")


@pytest.fixture
def report(tmp_path: Path) -> ReportData:
    folder = session(tmp_path / "one", hostile(), run("plain"))
    return read_report(run_files([folder]), [folder], with_transcripts=True)


class Page(HTMLParser):
    """Every element of a page with its attributes, and the text outside scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))


def check_page(text: str, scripts: int) -> None:
    page = Page(text)
    assert [tag for tag, _ in page.elements].count("script") == scripts
    assert not {"img", "iframe", "object", "embed", "link", "base", "form"} & {tag for tag, _ in page.elements}
    names = {name for _, attributes in page.elements for name in attributes}
    assert not [name for name in names if name.startswith("on") or name in ("src", "style", "srcdoc")]
    links = {attributes["href"] for tag, attributes in page.elements if tag == "a"}
    assert all((link or "").startswith("#") for link in links)
    assert not HIDDEN.search(text)
    assert "{{ 7*7 }}{% raw %}" in text  # shown, not rendered


def test_html_has_no_active_content(report: ReportData) -> None:
    text = report_page(report)
    check_page(text, scripts=1)
    (policy,) = re.findall('http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy


def test_html_of_comparisons_and_transcripts_has_no_active_content(tmp_path: Path) -> None:
    before = session(tmp_path / "before", hostile())
    after = session(tmp_path / "after", hostile())
    check_page(comparison_page(before, after), scripts=1)
    check_page(transcript_page(hostile()), scripts=0)


def test_markdown_shows_it_in_code_spans(report: ReportData) -> None:
    text = markdown(report)
    assert not HIDDEN.search(text)
    outside = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", text)
    for sign in ("<script", "<img", "javascript", "HYPERLINK", "stop-commands", "*_["):
        assert sign in text
        assert sign not in outside
    table = [line for line in text.splitlines() if line.startswith("| ")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in table} == {9}


def test_the_slices_csv_has_no_formula_and_one_line_per_slice(report: ReportData) -> None:
    text = slices_csv(report)
    assert not HIDDEN.search(text)
    names, *transcript_lines = csv.reader(io.StringIO(text))
    assert len(text.splitlines()) == len(transcript_lines) + 1
    assert all(len(line) == len(names) and not line[0].startswith("=") for line in transcript_lines)


def test_csv_has_no_formula_and_one_line_per_run(report: ReportData) -> None:
    text = csv_text(report)
    assert not HIDDEN.search(text)
    assert len(text.splitlines()) == 3
    for row in csv.reader(io.StringIO(text)):
        assert len(row) == len(COLUMNS)
        assert not [cell for cell in row if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]


@pytest.mark.parametrize(
    "sign",
    ["=", "+", "-", "@", "\t=", "\r\n@", "＝", "＋", "－", "＠", "\u3000=", "\xa0 ＝"],  # noqa: RUF001
)
def test_a_cell_that_starts_like_a_formula_is_escaped(tmp_path: Path, sign: str) -> None:
    folder = session(tmp_path / "one", run("case", agent=f"{sign}1+1"))
    text = csv_text(read_report(run_files([folder]), [folder], with_transcripts=False))
    assert next(csv.DictReader(io.StringIO(text)))["agent"] == f"'{sign.strip()}1+1"


def test_json_is_well_formed(report: ReportData) -> None:
    content = json.loads(json_text(report))
    assert {run["case"] for run in content["runs"]} == {"hostile", "plain"}


def test_it_cannot_start_another_workflow_command(report: ReportData) -> None:
    (line,) = annotation_commands(report)
    assert not HIDDEN.search(line)
    assert "\n" not in line
    assert re.fullmatch(r"::error (file=[^,:]*,line=1,)?title=[^,:]*::.*", line)
    assert "%250A" in line  # an existing escape is escaped again, so it shows as written


def test_the_terminal_transcript_has_no_control_characters_or_commands() -> None:
    lines = [text.plain for text in transcript_lines(hostile(), 80)]
    assert not HIDDEN.search("".join(lines))
    assert not [line for line in lines if line.lstrip().startswith(("::", "##["))]


def test_a_megabyte_of_text_is_truncated_with_a_note(tmp_path: Path) -> None:
    folder = session(tmp_path / "one", hostile("<b>x</b> " * 120_000))
    report = read_report(run_files([folder]), [folder], with_transcripts=True)
    page = report_page(report)
    assert len(page) < 5_000_000
    assert "(1,080,000 characters; the record contains the full text)" in page
    assert "<b>x</b>" not in page
    assert len(markdown(report)) < 60_000
    assert len(csv_text(report)) < 50_000
    assert all(len(line) < 1_500 for line in annotation_commands(report))
    assert len(list(transcript_lines(hostile("y" * 1_000_000), 80))) < 1000


def test_the_sample_contains_what_the_tests_look_for() -> None:
    assert HIDDEN.search(HOSTILE)
    assert "</script>" in HOSTILE
