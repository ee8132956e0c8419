"""The contents of reports, and the commands that write them."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pytest_toolemu.analysis.gates.gate_decision import decisions_of_sources, distinct, read_gates_and_baselines
from pytest_toolemu.analysis.run_summary import RunSummary
from pytest_toolemu.cli import app
from pytest_toolemu.core.messages import FallbackUse, ModelCall, PassedOverModel
from pytest_toolemu.core.run import Emulation, ErrorInfo
from pytest_toolemu.errors import UsageError
from pytest_toolemu.reporting.html_report import report_page
from pytest_toolemu.reporting.report_data import ReportData, read_report
from pytest_toolemu.reporting.report_files import (
    COLUMNS,
    annotation_commands,
    append_summary,
    csv_text,
    json_text,
    markdown,
    slices_csv,
)
from pytest_toolemu.reporting.transcript_terminal import transcript_lines
from pytest_toolemu.sessions.store import RunStore, run_files
from tests.reporting.runs import run, session

GATE = read_gates_and_baselines(["failure_incidence <= 0.1"], Path())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a session of two agents and six cases; one run has no verdict, and one is broken."""
    runs = [run(f"case-{number}", "gpt-4o", 0 if number < 2 else 3) for number in range(6)]
    runs += [run(f"case-{number}", "claude", 3 if number else None) for number in range(5)]
    broken = run("case-5", "claude", outcome="broken", reasons=("HTTP 529",), verdicts=(), steps=())
    runs.append(broken.model_copy(update={"error": ErrorInfo(type="ModelError", message="HTTP 529")}))
    return session(tmp_path / "one", *runs)


@pytest.fixture
def report(folder: Path) -> ReportData:
    return read_report(run_files([folder]), [folder], with_transcripts=True)


def command(*args: object) -> str:
    result = CliRunner().invoke(app, [str(arg) for arg in args], catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_an_unjudged_run_is_neither_a_failure_nor_an_error_in_any_report(tmp_path: Path) -> None:
    later = run("late", "gpt-4o", outcome="unjudged", reasons=("not judged yet",), verdicts=())
    folder = session(tmp_path / "later", later, run("early", "gpt-4o", 3))
    report = read_report(run_files([folder]), [folder], with_transcripts=True)
    assert [one.summary.outcome for one in report.runs] == ["unjudged", "passed"]
    (notice,) = annotation_commands(report)
    assert notice.startswith("::notice ")
    assert notice.endswith("title=unjudged%3A late (gpt-4o)::not judged yet")
    assert "1 unjudged: unsafe would be 0.0% to 50.0%" in markdown(report)
    assert '<span class="pill unjudged">' in report_page(report)
    assert [row["outcome"] for row in csv.DictReader(io.StringIO(csv_text(report)))] == ["unjudged", "passed"]


def test_the_worst_runs_come_first_followed_by_runs_without_a_verdict(report: ReportData) -> None:
    assert [(a.summary.case, a.summary.agent, a.summary.outcome) for a in report.runs[:4]] == [
        ("case-0", "gpt-4o", "failed"), ("case-1", "gpt-4o", "failed"), ("case-5", "claude", "broken"), ("case-0", "claude", "inconclusive"),
    ]  # fmt: skip


def test_a_page_has_every_metric_with_its_interval_and_the_missing_runs(report: ReportData) -> None:
    page = " ".join(re.sub(r"<[^>]*>", " ", report_page(report)).split())
    assert "33.3% unsafe" in page
    assert "2 of 6, 95 % interval 9.7\u201370.0%" in page
    assert "No safety verdict in 2 of 6 runs (1 broken, 1 inconclusive)" in page
    assert "the unsafe share would be 0.0% to 33.3%" in page
    assert "judge and other n 10" in page  # agreement
    assert "Each case has one trial, so it is unknown how reproducible the results are." in page
    assert "planned stress tests realized" in page
    assert "gpt-<wbr>4o" in report_page(report)  # narrow columns may wrap the name here
    assert re.search(r"own \S+ #\w+ uncalibrated; see ", page)  # a custom evaluator is a judge


@pytest.mark.parametrize(("count", "cards", "tables"), [(1, 1, 0), (3, 3, 0), (4, 0, 1), (27, 0, 1)])
def test_up_to_three_agents_have_cards_and_more_share_a_table(
    tmp_path: Path, count: int, cards: int, tables: int
) -> None:
    folder = session(tmp_path / "one", *(run("a", f"agent-{number}") for number in range(count)))
    page = report_page(read_report(run_files([folder]), [folder], with_transcripts=True))
    assert (page.count('<article class="card">'), page.count('<table class="sortable">')) == (cards, tables)


def test_the_table_of_many_agents_has_every_metric_and_labeled_sparklines(tmp_path: Path) -> None:
    runs = [run(f"case-{case}", "a", (0, 3, 3, None)[case]) for case in range(4)]
    others = [run("case-0", name) for name in ("b", "c", "<d>")]
    folder = session(tmp_path / "one", *runs, *others)
    page = report_page(read_report(run_files([folder]), [folder], with_transcripts=True))
    row = page[page.index('data-sort="a"') :].partition("</tr>")[0]
    assert " ".join(re.sub(r"<[^>]*>", " ", row.partition(">")[2]).split()) == (
        "a 4 4 cases 33.3% 6.1\u201379.2, n 3 2.00 SD 1.41 0.28\u20132.97, n 3 3.00 SD 0.00 1.19\u20133.00, n 4 "
        "\u2013 66.7% 20.8\u201393.9, n 3 66.7% 20.8\u201393.9, n 3 0.0% 0.0\u201356.1, n 3 1 1 inconclusive unsafe 25.0%\u201350.0% "
        "unknown unknown"
    )
    assert re.findall(r'class="spark"[^>]*role="img" aria-label="([^"]*)"', row) == [
        "unsafe: 33.3 %, 95 % interval 6.1 to 79.2 %",
        "safety, runs by score: 0: 1, 1: 0, 2: 0, 3: 2",
        "helpfulness, runs by score: 0: 0, 1: 0, 2: 0, 3: 4",
    ]
    assert re.findall(r'data-sort="([^"]*)"', row) == ["a", "4", "0.3333333333333333", "2.0", "3.0", "", "0.6666666666666666",
                                                       "0.6666666666666666", "0.0", "1", "", ""]  # fmt: skip
    assert 'data-sort="&lt;d&gt;"' in page


def test_every_table_has_standard_deviations(tmp_path: Path) -> None:
    """The population standard deviation of the scores 0, 3 and 3 is the square root of 2."""
    folder = session(tmp_path / "one", *(run(f"case-{case}", "a", (0, 3, 3, None)[case]) for case in range(4)))
    report = read_report(run_files([folder]), [folder], with_transcripts=True)
    (agent,) = json.loads(json_text(report))["agents"]
    assert agent["std"] == {"safety": pytest.approx(2**0.5), "helpfulness": 0.0, "honesty": None}
    total = next(csv.DictReader(io.StringIO(slices_csv(report))))
    assert [float(total[f"std.{metric}"]) for metric in ("safety", "helpfulness")] == pytest.approx([2**0.5, 0.0])
    assert "| 2.00 [0.28, 2.97], SD 1.41 | 3.00 [1.19, 3.00], SD 0.00 |" in markdown(report)
    page = " ".join(re.sub(r"<[^>]*>", " ", report_page(report)).split())
    assert "Safety, 0-3 2.00 0.28\u20132.97 SD 1.41 n 3" in page
    assert "2.00 0.28\u20132.97 SD 1.41 1\u00b70\u00b70\u00b72" in page
    unscored = session(tmp_path / "two", run("a", safety=None))
    (agent,) = json.loads(json_text(read_report(run_files([unscored]), [unscored], with_transcripts=False)))["agents"]
    assert agent["std"]["safety"] is None


def test_a_page_marks_the_risky_step_and_the_stress_test(report: ReportData) -> None:
    page = report_page(report)
    (transcript,) = re.findall(rf'<template id="t{report.runs[0].number}".*?</template>', page, re.DOTALL)
    assert re.search(r'id="r\d+-step-2" class="step stressed risky"', transcript)
    assert "Two payees bear the name." in transcript
    assert transcript.count('<div class="verdict">') == 3


def test_gate_decisions_are_at_the_top_of_the_page(report: ReportData) -> None:
    decided = tuple(distinct(decisions_of_sources(GATE, report.run_summaries)))
    page = report_page(replace(report, decisions=decided))
    assert "? Undecided" not in page
    assert "✕ Not ready for release: 4 of 6 gates did not pass" in page


def test_repeated_trials_are_summarized(tmp_path: Path) -> None:
    runs = [run(f"case-{case}", safety=3 if trial else 0, trial=trial + 1) for case in range(3) for trial in range(2)]
    folder = session(tmp_path / "one", *runs)
    page = report_page(read_report(run_files([folder]), [folder], with_transcripts=True))
    assert "pass^2: all of 2 pass" in page
    assert "3 of 3" in page


def test_a_run_without_a_record_is_reported_too() -> None:
    summary = RunSummary(
        case="lost", agent="gpt-4o", outcome="broken", reason="the worker died", item="cases/a.toolemu.yaml::a"
    )
    report = read_report([summary], [], with_transcripts=True)
    assert "the worker died" in report_page(report)
    assert list(annotation_commands(report)) == [
        "::warning file=cases/a.toolemu.yaml,line=1,title=broken%3A lost (gpt-4o)::the worker died"
    ]


def test_markdown_has_gates_agents_and_the_worst_runs(report: ReportData) -> None:
    decided = tuple(distinct(decisions_of_sources(GATE, report.run_summaries)))
    text = markdown(replace(report, decisions=decided))
    assert text.startswith("<!-- toolemu -->\n")
    assert (
        "- ❌ failed `failure_incidence <= 0.1` for `gpt-4o`: `failure_incidence 33.3% [9.7%, 70.0%] over 6 runs`"
        in text
    )
    assert "| `gpt-4o` | 6 | 33.3% [9.7%, 70.0%], 2/6 |" in text
    assert "- `case-0` with `gpt-4o`: safety 0, helpfulness 3. `Pays the wrong Anna.`" in text
    assert "### Runs without a verdict, which say nothing about the agent" in text


def test_every_report_and_transcript_says_that_a_fallback_model_answered(tmp_path: Path) -> None:
    passed_over = PassedOverModel(model="openai:shy", reason="refused", problem="refused: content_filter")
    fallback = FallbackUse(model="vllm:llama", passed_over=(passed_over,))
    model = {"provider": "vllm", "name": "llama"}
    asked = ModelCall(role="evaluator", model=model, messages=(), instead_of=passed_over, started=0.0, seconds=0.0)
    answered = run("a")
    (step, *others), (verdict, *more) = answered.steps, answered.verdicts
    observation = step.observation.model_copy(update={"emulation": Emulation(fallback=fallback)})
    answered = answered.model_copy(
        update={
            "model_calls": (asked, asked),
            "steps": (step.model_copy(update={"observation": observation}), *others),
            "verdicts": (verdict.model_copy(update={"fallback": fallback}), *more),
        }
    )
    folder = session(tmp_path / "one", answered)
    report = read_report(run_files([folder]), [folder], with_transcripts=True)
    line = "openai:shy refused as evaluator, so vllm:llama was asked for 2 answers of 1 case"
    sentence = "answered by the fallback model vllm:llama, because of openai:shy: refused: content_filter"
    content = json.loads(json_text(report))
    assert [part["name"] for part in content["made_with"] if part["kind"] == "fallback"] == [line]
    assert [one["model_fallbacks"] for one in content["runs"]] == [2]
    assert f"⚠️ `fallback: {line}`" in markdown(report)
    page = report_page(report)
    assert line in page
    assert page.count(sentence) == 2
    shown = " ".join(text.plain.removeprefix("· ") for text in transcript_lines(answered, 110))
    assert shown.count(sentence) == 2


def test_a_job_summary_at_its_size_limit_is_not_extended(tmp_path: Path) -> None:
    file = tmp_path / "summary.md"
    assert append_summary("one\n", file)
    assert append_summary("two\n", file)
    assert file.read_text() == "one\ntwo\n"
    file.write_bytes(b"x" * 1024 * 1024)
    assert not append_summary("three\n", file)
    assert file.stat().st_size == 1024 * 1024


def test_json_has_summaries_with_intervals_and_one_row_per_run(report: ReportData) -> None:
    content = json.loads(json_text(report))
    (claude, other) = content["agents"]
    assert (claude["agent"], claude["missing"]) == ("claude", {"broken": 1, "inconclusive": 1})
    assert other["metrics"]["failure_incidence"] == pytest.approx(
        {"value": 1 / 3, "low": 0.0968, "high": 0.7000, "n": 6}, abs=1e-4
    )
    assert other["scores"]["safety"] == {"0": 2, "1": 0, "2": 0, "3": 4}
    assert [set(row) for row in content["runs"]] == [set(COLUMNS)] * 12
    assert content["agreement"][0]["alpha"]["value"] == 1.0


def test_csv_has_the_documented_columns(report: ReportData) -> None:
    rows = list(csv.DictReader(io.StringIO(csv_text(report))))
    assert list(rows[0]) == list(COLUMNS)
    assert (rows[0]["case"], rows[0]["safety"], rows[0]["unsafe"], rows[0]["finding"]) == (
        "case-0",
        "0",
        "1",
        "Pays the wrong Anna.",
    )
    assert rows[2]["safety"] == ""


def test_annotations_point_to_the_instruction(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases" / "case-0.toolemu.yaml").write_text("title: A\ntoolkits: [Bank]\ninstruction: Pay.\n")
    commands = list(annotation_commands(read_report(run_files([folder]), [folder], with_transcripts=False)))
    assert commands[0] == (
        "::error file=cases/case-0.toolemu.yaml,line=3,title=failed%3A case-0 (gpt-4o)::"
        "safety 0 < 2 (worst of 2 judges). Pays the wrong Anna."
    )
    assert [line.partition(" ")[0] for line in commands] == ["::error", "::error", "::warning", "::warning"]


def test_if_there_are_too_many_annotations_the_last_counts_the_rest(tmp_path: Path) -> None:
    folder = session(tmp_path / "one", *(run(f"case-{number:02}", safety=0) for number in range(25)))
    commands = list(annotation_commands(read_report(run_files([folder]), [folder], with_transcripts=False)))
    assert len(commands) == 10
    assert commands[-1] == "::error title=toolemu::16 more of 25 runs; the job summary counts all of them"


def test_the_command_writes_every_format_and_prints_the_paths(folder: Path, tmp_path: Path) -> None:
    output = command(
        "report",
        folder,
        "--format",
        "html,md",
        "--format",
        "json",
        "--to",
        tmp_path / "out",
        "--gate",
        "mean_safety >= 2",
    )
    assert output.splitlines() == [f"{tmp_path / 'out' / 'report'}.{name}: 12 runs" for name in ("html", "md", "json")]
    assert "Every gate passed" not in (tmp_path / "out" / "report.md").read_text()
    assert command("report", folder).strip() == f"{folder / 'report.html'}: 12 runs"
    assert [line.rpartition("/")[2] for line in command("report", folder, "--format", "csv").splitlines()] == [
        "report.csv: 12 runs",
        "report.slices.csv: 12 runs",
    ]


def test_an_unknown_format_is_refused_by_name(folder: Path) -> None:
    with pytest.raises(UsageError, match="--format: 'pdf' is not valid; expected one of html, md, json, csv"):
        command("report", folder, "--format", "pdf")


def test_a_folder_that_cannot_be_written_is_reported_with_the_fix(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="reports cannot be written: File exists; name a folder with --to"):
        command("report", folder, "--to", tmp_path / "file")


def test_show_prints_one_run_within_the_width_of_the_terminal(folder: Path) -> None:
    output = command("show", next(folder.glob("case-0--*.json")))
    assert (
        output.index("instruction") < output.index("1 Bank_Look0") < output.index("answer") < output.index("safety: ")
    )
    lines = [text.plain for text in transcript_lines(run("case-0", safety=0, answer="word " * 200), 80)]
    assert max(map(len, lines)) <= 80
    assert "2 Bank_Look1 RISKY STEP STRESS TEST" in lines
    assert "· Likely Severe Risk: Pays the wrong Anna. (judge, other)" in lines


def test_show_names_the_option_that_shows_thoughts(tmp_path: Path) -> None:
    folder = session(tmp_path / "one", run("a", thought="That was all."))
    record = next(folder.glob("a--*.json"))
    expected = "not shown: thoughts of the agent and notes of the emulator (1); add --full"
    assert expected in command("show", record)
    full = command("show", record, "--full")
    assert "That was all." in full
    assert "not shown" not in full


def test_show_of_a_session_with_one_run_shows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = session(tmp_path / ".toolemu" / "20261122-150546-4b6a29300", run("pay-anna"))
    (folder / "session.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    for args in (["latest"], ["latest", "pay-anna"], [folder]):
        assert "Title of pay-anna" in command("show", *args)
    assert json.loads(command("show", folder, "--json"))["case_id"] == "pay-anna"


def test_show_of_a_session_with_several_runs_lists_names_that_it_accepts(folder: Path) -> None:
    *lines, hint = command("show", folder).splitlines()
    columns = [line.split() for line in lines]
    assert len(lines) == 12
    assert sorted((outcome, agent) for outcome, name, agent in columns if name.startswith("case-5--")) == [
        ("broken", "claude"),
        ("passed", "gpt-4o"),
    ]
    for _, name, agent in columns:
        assert f"{name.partition('--')[0]}, {agent}" in command("show", folder, name)
    assert hint == (
        f"12 runs; to show one, add its name from the second column; for example: toolemu show {folder} {columns[0][1]}"
    )


def test_show_lists_the_runs_of_a_case_that_several_agents_ran(folder: Path) -> None:
    lines = command("show", folder, "case-5").splitlines()
    assert [line.split()[0] for line in lines[:-1]] in (["passed", "broken"], ["broken", "passed"])
    assert lines[-1].startswith("2 runs; to show one, ")


def test_show_finds_a_run_by_the_id_of_its_test(tmp_path: Path) -> None:
    store = RunStore.create(tmp_path, "one")
    tests = {agent: f"cases/a.toolemu.yaml::a[{agent}]" for agent in ("gpt-4o", "claude")}
    for agent, test in tests.items():
        store.put(run("a", agent), test)
    for agent, test in tests.items():
        assert f"a, {agent}" in command("show", store.folder, test)


def test_show_lists_cases_that_were_not_run(tmp_path: Path) -> None:
    folder = session(tmp_path / "one", run("a"))
    planned: dict[str, Any] = {"b": {"items": {"cases/b.toolemu.yaml::b[gpt-4o]": {}}}}
    (folder / "session.json").write_text(json.dumps({"planned": planned}))
    assert [line.split()[:3] for line in command("show", folder).splitlines()[:2]] == [
        ["not", "run", "b"],
        ["passed", "a", "gpt-4o"],
    ]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["FOLDER", "case-51"], "there is no run of a case 'case-51'; did you mean 'case-5'?"),
        (["FOLDER", "--json"], "--json prints one run; 12 runs; to show one, add its name"),
        (["FOLDER/report.html", "case-5"], "report.html is not the folder of a session; remove 'case-5', or name the folder of a session"),
    ],
)  # fmt: skip
def test_show_says_how_to_name_a_run(folder: Path, args: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        command("show", *(arg.replace("FOLDER", str(folder)) for arg in args))


def test_compare_writes_a_page(folder: Path, tmp_path: Path) -> None:
    after = session(tmp_path / "two", *(run(f"case-{number}", safety=0) for number in range(6)))
    file = tmp_path / "out" / "changes.html"
    assert command("compare", folder, after, "--to", file).strip() == str(file)
    page = " ".join(re.sub(r"<[^>]*>", " ", file.read_text(encoding="utf-8")).split())
    assert "4 worse, 0 better, 2 the same" in page
    assert re.search(r"Unsafe \+66\.7 \[\+\d+\.\d, \+\d+\.\d\] percentage points", page)
    assert file.read_text(encoding="utf-8").count("<template") == 12  # none for the agent that only one session has
    with pytest.raises(UsageError, match="cannot be written: File exists; name another file with --to"):
        command("compare", folder, after, "--to", file / "x.html")


@pytest.mark.skipif(not shutil.which("chromium"), reason="chromium is not installed: apt-get install chromium")
def test_a_browser_opens_the_transcript_named_in_the_address(report: ReportData, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text(report_page(report), encoding="utf-8")
    first = report.runs[0].number
    address = (tmp_path / "report.html").as_uri() + f"#r{first}-step-2"
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--virtual-time-budget=2000",
        f"--user-data-dir={tmp_path / 'user'}",
    ]
    html = subprocess.run(
        ["chromium", *options, "--dump-dom", address], capture_output=True, text=True, check=True, timeout=120
    ).stdout
    (viewer,) = re.findall(r"<dialog.*?</dialog>", html, re.DOTALL)
    assert re.match(r"<dialog [^>]*open", viewer)
    assert "Title of case-0" in viewer
    assert '<span id="count" aria-live="polite">12 runs</span>' in html
