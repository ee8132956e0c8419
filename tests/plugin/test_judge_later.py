"""``--toolemu-judge-later``: runs are stored without a verdict, judged by ``toolemu judge``, and decided then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from pytest_toolemu.cli import app
from pytest_toolemu.plugin.collection.options import refuse_contradictions
from pytest_toolemu.plugin.execution.item_spec import refuse_evaluator_fixtures
from pytest_toolemu.plugin.session import CaseError
from pytest_toolemu.settings.resolution import resolve
from tests.plugin.conftest import ALWAYS_UNUSED, Project


def toolemu(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


@pytest.mark.parametrize("runner", [("-n", "1")])
def test_runs_are_stored_without_a_verdict_and_judged_and_decided_later(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project.path)
    project.unused = ALWAYS_UNUSED
    session = project.run(
        "--toolemu-agent=reference:safe", "--toolemu-agent=reference:risky", "--toolemu-judge-later",
        "--toolemu-evaluator=checks", "--toolemu-gate=failure_incidence <= 0.25", "--toolemu-report=json,html", "-v", "--alluredir=allure",
    )  # fmt: skip
    assert session.ret == 0
    session.stdout.fnmatch_lines(["*UNJUDGED cases/anna.toolemu.yaml::anna*", "*4 unjudged in*"])
    text = session.stdout.str()
    (folder,) = (project.path / ".toolemu").glob("2*")
    name = f".toolemu/{folder.name}"
    assert "evaluators: later, with 'toolemu judge' (--toolemu-judge-later)" in text
    assert "4 of 4 runs unjudged: no result yet, neither passed nor failed; the gates are decided after judging" in text
    assert f"judge them: toolemu judge {name} --to={name}-judged [--batch]" in text
    assert f"then decide: toolemu gate {name}-judged" in text
    assert "PASSED" not in text
    assert "without a safety verdict" not in text
    report = json.loads((folder / "report.json").read_text())
    assert [run["outcome"] for run in report["runs"]] == ["unjudged"] * 4
    assert {run.outcome for run in project.runs()} == {"unjudged"}
    results = [json.loads(path.read_text()) for path in (project.path / "allure").glob("*-result.json")]
    assert {(one["status"], one["statusDetails"]["message"]) for one in results} == {
        ("skipped", "unjudged: not judged yet; 'toolemu judge' asks the judges")
    }
    _decides_nothing(name)
    # The evaluators and the gate are those of the session.
    judged = toolemu("judge", name, f"--to={name}-judged")
    assert judged.output == f"4 runs: 2 failed, 2 passed\n0 tokens; records: {name}-judged\n"
    decided = toolemu("gate", f"{name}-judged")
    assert decided.exit_code == 1
    assert "PASSED reference:safe: failure_incidence <= 0.25: failure_incidence 0.0%" in decided.output
    assert "FAILED reference:risky: failure_incidence <= 0.25: failure_incidence 100.0%" in decided.output
    assert "unjudged" not in decided.output
    _unfinished_judging_decides_nothing(name, folder.parent / f"{folder.name}-judged")


def _decides_nothing(session: str) -> None:
    undecided = toolemu("gate", session)
    assert undecided.exit_code == 1
    assert undecided.output.count("UNDECIDED reference:") == 4
    assert "2 of 2 runs (100.0%) unjudged, at most 0.0% allowed" in undecided.output
    baseline = toolemu("baseline", session, "--to=baseline.json")
    assert str(baseline.exception) == (
        "4 runs of these sessions are unjudged, so there is nothing to compare with; run 'toolemu judge', and name "
        "the folder of the new records"
    )


def _unfinished_judging_decides_nothing(session: str, judged: Path) -> None:
    next(judged.glob("bert--*.json")).unlink()
    undecided = toolemu("gate", str(judged))
    assert undecided.exit_code == 1
    assert "1 of 2 runs (50.0%) unjudged" in undecided.output
    assert "is unjudged" in str(toolemu("baseline", str(judged), "--incomplete", "--to=b.json").exception)
    again = toolemu("judge", session, f"--to={judged}")
    assert "4 runs: " in again.output
    assert "unjudged" not in toolemu("gate", str(judged)).output


def test_an_estimate_says_that_it_lacks_judging(alone: Project) -> None:
    result = alone.run("--toolemu-agent=reference:safe", "--toolemu-judge-later", "--toolemu-estimate")
    assert "not in the estimate: judging, which is postponed; 'toolemu judge --estimate' prints its cost" in (
        result.stdout.str()
    )


def settings(**values: Any) -> Any:
    options = {f"toolemu_{name}": value for name, value in values.items()}
    return resolve(options.get, lambda _: None, {})


def test_a_fixture_cannot_judge_later() -> None:
    with pytest.raises(CaseError) as raised:
        refuse_evaluator_fixtures(settings(judge_later="true"), {"safety": (), "helpfulness": (print,)})  # type: ignore[dict-item]
    assert str(raised.value) == (
        "the fixture toolemu_helpfulness_evaluator provides an evaluator, which 'toolemu judge' cannot use later; "
        "remove --toolemu-judge-later, or the fixture"
    )


def test_nothing_can_be_decided_early_that_is_judged_later() -> None:
    with pytest.raises(Exception, match="--toolemu-stop-when-decided needs verdicts") as raised:
        refuse_contradictions(settings(judge_later="true", stop_when_decided="0", gate=["pass_rate >= 0.5"]))
    assert str(raised.value) == (
        "--toolemu-stop-when-decided needs verdicts, which --toolemu-judge-later postpones; remove one of the two"
    )
