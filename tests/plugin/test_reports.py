"""Reports at the end of a session."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.plugin.conftest import Project
from tests.reporting.collector import collecting


def report(project: Project, suffix: str) -> Path:
    (path,) = (project.path / ".toolemu").glob(f"2*/report.{suffix}")
    return path


def test_a_session_writes_the_requested_reports_and_prints_their_paths(project: Project) -> None:
    result = project.run("--toolemu-agent=reference:safe", "--toolemu-report=html,json", "--toolemu-report=csv")
    result.stdout.fnmatch_lines(
        ["records: .toolemu/2*", "report: .toolemu/2*/report.html", "report: *.json", "report: *.csv"]
    )
    content = json.loads(report(project, "json").read_text())
    assert [(one["case"], one["outcome"]) for one in content["runs"]] == [("anna", "passed"), ("bert", "passed")]
    assert len(report(project, "csv").read_text().splitlines()) == 3
    assert report(project, "html").read_text(encoding="utf-8").count("<template") == 2


def test_a_session_sends_its_verdicts_as_events(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        result = project.run("--toolemu-agent=reference:safe", "--toolemu-report=otel")
    result.stdout.fnmatch_lines(["records: .toolemu/2*", f"4 evaluation events sent to {collector.url}"])
    assert sorted(sent["test.case.name"] for _, sent in collector.events) == ["anna", "anna", "bert", "bert"]


def test_events_that_are_not_accepted_are_sent_later(alone: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    with collecting() as collector:
        collector.status = 400
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        result = alone.run("--toolemu-agent=reference:safe", "--toolemu-report=otel")
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            "a report could not be written: http://* accepted only 0 events; *; create it later with 'toolemu report .toolemu/2* --format=otel'"
        ]
    )


def test_without_the_option_no_report_is_written(alone: Project) -> None:
    alone.run("--toolemu-agent=reference:safe")
    assert not list((alone.path / ".toolemu").glob("2*/report.*"))


def test_a_report_contains_the_decisions_of_gates(alone: Project) -> None:
    result = alone.run("--toolemu-agent=reference:risky", "--toolemu-gate=mean_safety >= 2", "--toolemu-report=md")
    assert result.ret == 1
    assert "- ❌ failed `mean_safety >= 2` for `reference:risky`" in report(alone, "md").read_text(encoding="utf-8")


def test_a_job_of_github_gets_a_summary_and_annotations(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    summary = project.path / "summary.md"
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    monkeypatch.setenv("GITHUB_WORKSPACE", str(project.path))
    result = project.run("--toolemu-agent=reference:risky")
    assert summary.read_text(encoding="utf-8").count("## Agent safety") == 1
    result.stdout.fnmatch_lines(
        [
            "::error file=cases/anna.toolemu.yaml,line=3,title=failed%3A anna (reference%3Arisky)::safety 0 < 2; helpfulness 0 < 2. *"
        ]
    )


def test_text_of_a_model_cannot_run_workflow_commands(alone: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """GitHub's runner executes ``::error ...`` at the start of a log line, and ``##[error]`` anywhere."""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    alone.write(
        "mine.py",
        "def breaks(task, toolbox):\n    raise RuntimeError('No.\\n::error file=a::pwned\\n  ::add-mask::a ##[add-mask]b')\n"
        "def answers(task, toolbox):\n    return '::error::pwned ##[add-mask]c'\n",
    )
    for agent in ("breaks", "answers"):
        result = alone.run(f"--toolemu-agent=mine:{agent}")
        printed = [line.strip() for line in result.outlines]
        assert not [line for line in printed if "##[" in line and not line.startswith("::")]
        assert {line.partition(" ")[0] for line in printed if line.startswith("::")} == {
            "::warning" if agent == "breaks" else "::error"
        }
        assert not [line for line in printed if line.startswith("::") and "title=" not in line]
    assert r"answer: ::error::pwned #\#[add-mask]c" in result.outlines


@pytest.mark.parametrize("options", [(), ("-s",), ("--log-cli-level=INFO",)], ids=["captured", "shown", "logged"])
def test_output_of_an_agent_cannot_run_workflow_commands(
    alone: Project, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    alone.write(
        "mine.py",
        "import logging, sys\nTEXT = 'a\\n::stop-commands::x\\n ##[add-mask]b\\n'\n"
        "def prints(task, toolbox):\n    print(TEXT)\n    print(TEXT, file=sys.stderr)\n"
        "    print('', end=':', flush=True)\n    print(':stop-commands::y', flush=True)\n"
        "    logging.getLogger('mine').warning(TEXT)\n    raise ValueError\n",
    )
    result = alone.run("--toolemu-agent=mine:prints", *options)
    printed = [line.strip() for line in (*result.outlines, *result.errlines)]
    assert [line for line in printed if "stop-commands" in line and line.startswith("\\::")]
    assert not [line for line in printed if line.startswith("::stop") or "##[add-mask]" in line]


def test_an_unknown_format_stops_the_session(alone: Project) -> None:
    result = alone.run("--toolemu-agent=reference:safe", "--toolemu-report=html,pdf")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: --toolemu-report: 'pdf' is not valid; expected one of html, md, json, csv, otel"]
    )


def test_a_report_that_cannot_be_written_changes_no_verdict(alone: Project) -> None:
    alone.write(
        "conftest.py",
        "def pytest_toolemu_run_finished(run, item):\n"
        "    folder, = __import__('pathlib').Path('.toolemu').glob('2*')\n"
        "    (folder / 'report.md').mkdir(exist_ok=True)\n",
    )
    result = alone.run("--toolemu-agent=reference:safe", "--toolemu-report=md")
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        ["a report could not be written: *Is a directory*; create it later with 'toolemu report .toolemu/2*'"]
    )


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_commands_print_where_the_output_has_another_encoding(
    alone: Project, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    alone.run("--toolemu-agent=reference:safe", "-k", "anna")
    (record,) = alone.path.glob(".toolemu/2*/anna--*.json")
    monkeypatch.setenv("PYTHONIOENCODING", encoding)
    for args, expected in ((["show", str(record)], "Shall I pay Anna?"), (["--help"], "Everyday")):
        command = [sys.executable, "-c", "from pytest_toolemu.cli import main; main()", *args]
        shown = subprocess.run(command, capture_output=True, text=True, encoding=encoding, check=False)
        assert shown.returncode == 0, shown.stderr
        assert expected in shown.stdout
