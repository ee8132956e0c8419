"""A model name that stands for another snapshot than before is noted wherever runs are joined or compared."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from pytest_toolemu.analysis.gates.baseline import Baseline
from pytest_toolemu.analysis.gates.gate_decision import decide_gates
from pytest_toolemu.analysis.gates.gate_file import Gate, Gates
from pytest_toolemu.analysis.run_summary import RunSummary
from pytest_toolemu.cli import app
from pytest_toolemu.core.run_notes import RunNote, note_lines
from tests.gates.run_summaries import edited, results
from tests.loopback.fixtures import Loopback
from tests.loopback.records import Reply
from tests.loopback.scripts import by_role
from tests.plugin.conftest import Project

NOTE = (
    "openai:gpt-4o{url} answered as gpt-4o-2026-05-13 (1 run) and gpt-4o-2026-08-06 ({count}), which may differ; a dated "
    "name would stay the same"
)


def answered_as(name: str, runs: list[RunSummary]) -> list[RunSummary]:
    note = RunNote(kind="reported model", model="openai:gpt-4o", text=name, count=2)
    return [edited(run, notes=(note,)) for run in runs]


def test_runs_of_several_snapshots_are_noted() -> None:
    runs = results([3, 3, 3])
    old, new = answered_as("gpt-4o-2026-05-13", runs[:1]), answered_as("gpt-4o-2026-08-06", runs[1:])
    assert note_lines(run.case_notes for run in (*old, *new)) == [NOTE.format(url="", count="2 runs")]
    assert note_lines(run.case_notes for run in new) == []


def test_a_baseline_remembers_the_snapshot_and_its_gates_name_the_change() -> None:
    runs = results([3] * 30)
    baseline = Baseline.of(answered_as("gpt-4o-2026-05-13", runs), "2026-01-01T00:00:00+00:00")
    gates = Gates(gates=(Gate(metric="failure_incidence", baseline="no_worse"),), baseline="main.json")
    changed = decide_gates(gates, answered_as("gpt-4o-2026-08-06", runs), baseline)[-1]
    same = decide_gates(gates, answered_as("gpt-4o-2026-05-13", runs), baseline)[-1]
    text = "; openai:gpt-4o answered as gpt-4o-2026-05-13 before, as gpt-4o-2026-08-06 now; "
    assert (changed.status, text in changed.text) == ("passed", True)
    assert "answered as" not in same.text


def test_sessions_of_another_snapshot_are_noted_when_resumed_compared_and_decided(
    alone: Project, loopback: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = "gpt-4o-2026-05-13"
    server = loopback(by_role(agent=lambda _request: Reply("Done.", model=snapshot)))
    monkeypatch.chdir(alone.path)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
    alone.replace_cases(["one", "two"])
    command = ("--toolemu-agent=gpt-4o", "--toolemu-evaluator=checks", "--toolemu-emulator=offline")
    first = alone.run(*command, "-k", "one")
    (old,) = Path(".toolemu").glob("2*")
    snapshot = "gpt-4o-2026-08-06"
    resumed = alone.run(*command, "--toolemu-resume")
    note = NOTE.format(url=f"@{server.url}/v1", count="1 run")
    assert "answered as" not in first.stdout.str()
    assert note in " ".join(resumed.stdout.str().split())
    (latest,) = set(Path(".toolemu").glob("2*")) - {old}
    alone.run(*command, "--toolemu-run-dir=again")
    (again,) = Path("again").glob("2*")
    change = f"Different reported models: `openai:gpt-4o@{server.url}/v1 answered as gpt-4o-2026-05-13 before, as "
    assert change in CliRunner().invoke(app, ["compare", str(old), str(again)]).stdout
    for arguments in (["gate", str(latest)], ["merge", str(old), str(latest), "--into=all"]):
        assert note in " ".join(CliRunner().invoke(app, arguments).stdout.split())
    CliRunner().invoke(app, ["report", str(latest), "--format=md,html", "--to=out"])
    for name in ("report.md", "report.html"):
        assert "answered as gpt-4o-2026-05-13" in Path("out", name).read_text()
