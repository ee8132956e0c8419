"""Several judges of a run: the rule that combines them, and the rates of each, in a session and in its records."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pytest_toolemu.cli import app
from pytest_toolemu.core.run_file import load_run
from pytest_toolemu.errors import UsageError
from pytest_toolemu.sessions.store import RunStore
from tests.calibration.judges import judging
from tests.loopback.fixtures import Loopback
from tests.plugin.conftest import Project

TWO_JUDGES = """
import pytest
from pytest_toolemu import Verdict

def judge(name, metric, score):
    async def judge(trajectory):
        return [Verdict(evaluator=name, metric=metric, score=score)]
    return judge

@pytest.fixture
def toolemu_safety_evaluator():
    return judge("lenient", "safety", 3), judge("strict", "safety", 0)

@pytest.fixture
def toolemu_helpfulness_evaluator():
    return judge("lenient", "helpfulness", 3), judge("strict", "helpfulness", 3)
"""
SAFE = "--toolemu-agent=reference:safe"


@pytest.fixture
def two_judges(alone: Project) -> Project:
    """Return a project with two judges, of which one finds every run unsafe."""
    alone.write("conftest.py", TWO_JUDGES)
    return alone


def session(project: Project) -> Path:
    return sorted((project.path / ".toolemu").glob("2*"))[-1]


def toolemu(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(map(str, arguments)))
    return result.exit_code, " ".join(result.output.split())


@pytest.mark.parametrize(
    ("rule", "outcome", "reason"),
    [
        ("worst", "failed", "safety 0 < 2 (worst of 2 judges)"),
        ("majority", "failed", "safety 0 < 2 (majority of 2 judges)"),
        ("mean", "failed", "safety 1.5 < 2 (mean of 2 judges)"),
        ("lenient", "passed", ""),
    ],
)
def test_the_rule_decides_the_session_and_its_gates(two_judges: Project, rule: str, outcome: str, reason: str) -> None:
    result = two_judges.run(SAFE, "-o", f"toolemu_combine={rule}", "--toolemu-report=html,md,json,csv")
    result.assert_outcomes(**{outcome: 2})
    assert {(run.outcome, "; ".join(run.reasons), run.combine) for run in two_judges.runs()} == {
        (outcome, reason, rule)
    }
    assert two_judges.manifest()["settings"]["combine"] == [rule, "ini toolemu_combine"]
    stated = f"{rule} of 2 judges" if rule != "lenient" else "lenient, one of 2 judges"
    output = " ".join(result.stdout.str().split())
    assert f"score of a run: {stated} reference:safe: lenient: unsafe 0.0%" in output
    assert "strict: unsafe 100.0% [" in output
    html, markdown, table = (
        (session(two_judges) / f"report.{suffix}").read_text() for suffix in ("html", "md", "slices.csv")
    )
    assert (stated in html, "strict: unsafe" in html) == (True, True)
    assert f"`{stated}`. Each judge alone:" in markdown
    assert "- `strict: unsafe`: 100.0% [" in markdown
    (line,) = (line for line in csv.DictReader(table.splitlines()) if line["by"] == "all")
    assert [line[f"metrics.unsafe by {judge}.value"] for judge in ("lenient", "strict")] == ["0.0", "1.0"]
    (agent,) = json.loads((session(two_judges) / "report.json").read_text())["agents"]
    assert agent["combination"] == stated
    assert [agent["metrics"][f"unsafe by {judge}"]["value"] for judge in ("lenient", "strict")] == [0, 1]
    assert toolemu("gate", session(two_judges), "--gate=pass_rate >= 90%")[0] == int(outcome != "passed")


def test_a_record_with_another_rule_than_that_of_its_outcome_is_refused(two_judges: Project) -> None:
    two_judges.run(SAFE, "-o", "toolemu_combine=lenient")
    path = sorted(session(two_judges).glob("*--*.json"))[0]
    path.write_text(json.dumps(json.loads(path.read_text()) | {"combine": "worst"}))
    with pytest.raises(UsageError, match="its outcome is 'passed', but its verdicts and thresholds mean 'failed'"):
        load_run(path)


def test_a_resumed_session_decides_by_its_own_rule(two_judges: Project) -> None:
    two_judges.run(SAFE).assert_outcomes(failed=2)
    result = two_judges.run(SAFE, "--toolemu-resume", "-o", "toolemu_combine=lenient")
    result.assert_outcomes(passed=2)
    assert {(run.source, run.combine) for run in RunStore(session(two_judges))} == {("resumed", "lenient")}


def test_judging_again_keeps_the_rule_unless_another_is_chosen(
    two_judges: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_judges.run(SAFE, "-o", "toolemu_combine=lenient")
    again = ("judge", session(two_judges), "--evaluator=checks", "--keep", "--to")
    assert "2 passed" in toolemu(*again, "kept")[1]
    monkeypatch.setenv("TOOLEMU_COMBINE", "mean")
    assert "2 failed" in toolemu(*again, "mean")[1]


def test_a_rule_that_names_no_judge_is_refused_with_the_judges(alone: Project, loopback: Loopback) -> None:
    server = loopback(judging(lambda _rubric, _material: 3))
    result = alone.run(SAFE, f"--toolemu-evaluator=openai:gpt-4o@{server.url}/v1", "-o", "toolemu_combine=gpt-5")
    assert (
        "toolemu_combine is 'gpt-5', which is no judge of safety; use worst, majority, mean, or one of the judges: "
        "judge openai:gpt-4o"
    ) in " ".join(result.stdout.str().split())
