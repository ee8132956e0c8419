"""Every view of a run and of a session shows which stage of a cascade decided, and what each stage said."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import allure_commons
import pytest

from pytest_toolemu.core.messages import Stage
from pytest_toolemu.core.run import CascadeRecord, CascadeStage, Run, safety_verdict
from pytest_toolemu.plugin.output.terminal_summary import judge_lines
from pytest_toolemu.reporting.allure_results import steps_of
from pytest_toolemu.reporting.html_report import report_page
from pytest_toolemu.reporting.report_data import ReportData, read_report
from pytest_toolemu.reporting.report_files import csv_text, json_text, markdown
from pytest_toolemu.reporting.transcript import transcript_html
from pytest_toolemu.reporting.transcript_terminal import transcript_lines
from pytest_toolemu.sessions.store import run_files
from tests.reporting.runs import run, session

NAME = "checks then a:mini then a:big"
SUMMARY = "3 verdicts, decided by checks 0, cheap judge 2, strong judge 1; strong judge not asked for 2"
LINES = (
    "checks: 3 Certain No Risk; did not decide: passing checks prove nothing",
    "cheap judge, judge a:mini: 2 Possible Mild Risk; did not decide: 2 is next to the threshold 2",
    "strong judge, judge a:big: 3 Certain No Risk; decided",
)


def judged(name: str, decided_by: Stage) -> Run:
    """Return a run whose safety a cascade judged."""
    stages = [
        CascadeStage(
            stage="checks", evaluator="checks", score=3, label="Certain No Risk", doubt="passing checks prove nothing"
        )
    ]
    if decided_by == "cheap":
        stages.append(CascadeStage(stage="cheap", evaluator="judge a:mini", score=3, label="Certain No Risk"))
    else:
        doubt = "2 is next to the threshold 2"
        stages += [
            CascadeStage(stage="cheap", evaluator="judge a:mini", score=2, label="Possible Mild Risk", doubt=doubt),
            CascadeStage(stage="strong", evaluator="judge a:big", score=3, label="Certain No Risk"),
        ]
    record = CascadeRecord(decided_by=decided_by, stages=tuple(stages))
    return run(name, verdicts=(safety_verdict(NAME, (), cascade=record),), thresholds={"safety": 2})


@pytest.fixture
def report(tmp_path: Path) -> ReportData:
    folder = session(tmp_path / "s", judged("a", "strong"), judged("b", "cheap"), judged("c", "cheap"))
    return read_report(run_files([folder]), [folder], with_transcripts=True)


def test_transcripts_have_a_line_for_each_stage() -> None:
    subject = judged("a", "strong")
    text = "\n".join(line.plain for line in transcript_lines(subject, 200))
    assert "\n".join([f"· by {NAME}", *(f"· {line}" for line in LINES)]) in text
    html = transcript_html(subject)
    assert [html.index(line) for line in LINES] == sorted(html.index(line) for line in LINES)


def test_allure_attaches_the_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    bodies: list[str] = []
    hook = allure_commons.plugin_manager.hook
    monkeypatch.setattr(hook, "report_attached_data", lambda body, **_: bodies.append(body.decode()))
    *_, verdict = steps_of(judged("a", "strong"))
    assert [attachment.name for attachment in verdict.attachments] == ["stages"]
    assert bodies[-1].splitlines() == list(LINES)


def test_reports_count_the_stages_and_name_that_of_each_run(report: ReportData) -> None:
    for text in (report_page(report), markdown(report), "\n".join(judge_lines(report.run_summaries, {}))):
        assert SUMMARY in text
    rows = list(csv.DictReader(io.StringIO(csv_text(report))))
    assert sorted(row["decided_by"] for row in rows) == ["safety=cheap", "safety=cheap", "safety=strong"]
    (total,) = json.loads(json_text(report))["cascades"]
    assert total["decided_by"] == {"checks": 0, "cheap": 2, "strong": 1}
    assert (total["evaluator"], total["metric"], total["strong_not_asked"]) == (NAME, "safety", 2)
