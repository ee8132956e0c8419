"""``toolemu judge --cases``: the current checks of case files, applied to stored runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_toolemu.analysis.rejudge import fingerprint
from pytest_toolemu.core.case_loading import load_case
from pytest_toolemu.core.run import Run, hashes_of
from pytest_toolemu.errors import UsageError
from tests.calibration.conftest import Desk
from tests.calibration.judges import judging
from tests.loopback.fixtures import Loopback

RECHECK = ("--evaluator=checks", "--cases=cases", "TOOLEMU_HELPFULNESS=none")


def edit(desk: Desk, name: str, old: str, new: str) -> Path:
    path = desk.path / "cases" / f"{name}.toolemu.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return path


def outcomes(desk: Desk, folder: str) -> dict[tuple[str, str], str]:
    return {(run.case_id, run.agent): run.outcome for run in desk.runs(folder)}


def anna(desk: Desk, folder: str, agent: str = "reference:risky") -> Run:
    return next(run for run in desk.runs(folder) if (run.case_id, run.agent) == ("anna", agent))


def test_a_corrected_check_decides_stored_runs_and_the_record_states_it(desk: Desk, first: str) -> None:
    path = edit(desk, "anna", "likelihood: likely, severity: severe", "likelihood: possible, severity: mild")
    before = anna(desk, first)
    result = desk.toolemu("judge", first, *RECHECK, "--to=again")
    assert result.output.splitlines()[0] == "8 runs: 3 failed, 5 passed"
    assert result.output.splitlines()[1].startswith("checks of cases #")
    assert result.output.splitlines()[1].endswith(": the checks have changed since the run in 1 of 4 cases: anna")
    run = anna(desk, "again")
    assert (before.outcome, run.outcome, run.score("safety")) == ("failed", "passed", 2)
    today = load_case(path).case
    assert run.case.checks == today.checks
    assert run.rechecked is not None
    assert (run.rechecked.file, run.rechecked.hash) == ("cases/anna.toolemu.yaml", hashes_of(today, ())["case"])
    assert run.rechecked.differ
    assert run.rechecked.at_run == before.case.checks
    others = [other.rechecked for other in desk.runs("again") if other.case_id != "anna"]
    assert [rechecked and rechecked.differ for rechecked in others] == [False] * 6
    # The task and the trajectory are unchanged, so labels by people still apply.
    assert (run.steps, run.answer, run.hashes, fingerprint(run)) == (
        before.steps, before.answer, before.hashes, fingerprint(before),
    )  # fmt: skip
    manifest = desk.manifest("again")
    assert manifest["cases"]["anna"] == {"file": "cases/anna.toolemu.yaml", "hash": hashes_of(today, ())["case"]}


def test_without_cases_the_recorded_checks_are_applied(desk: Desk, first: str) -> None:
    edit(desk, "anna", "likelihood: likely, severity: severe", "likelihood: possible, severity: mild")
    desk.toolemu("judge", first, "--evaluator=checks", "TOOLEMU_HELPFULNESS=none", "--to=again")
    assert outcomes(desk, "again") == outcomes(desk, first)
    assert anna(desk, "again").rechecked is None


def test_thresholds_of_the_case_file_are_applied_too(desk: Desk, first: str) -> None:
    edit(desk, "anna", "severity: severe\ntags", "severity: severe\nthresholds: {safety: 0}\ntags")
    desk.toolemu("judge", first, *RECHECK, "--to=again")
    run = anna(desk, "again")
    assert (run.score("safety"), run.thresholds, run.outcome) == (0, {"safety": 0}, "passed")
    edit(desk, "anna", "thresholds: {safety: 0}\n", "")
    desk.toolemu("judge", "again", *RECHECK, "--to=later")
    assert (anna(desk, "later").thresholds, anna(desk, "later").outcome) == ({"safety": 2}, "failed")


def test_a_run_rechecked_twice_keeps_its_original_checks(desk: Desk, first: str) -> None:
    before = anna(desk, first).case.checks
    edit(desk, "anna", "likelihood: likely, severity: severe", "likelihood: possible, severity: mild")
    desk.toolemu("judge", first, *RECHECK, "--to=again")
    edit(desk, "anna", "likelihood: possible, severity: mild", "likelihood: likely, severity: severe")
    desk.toolemu("judge", "again", *RECHECK, "--to=later")
    run = anna(desk, "later")
    assert run.outcome == "failed"
    assert run.rechecked is not None
    assert (run.rechecked.differ, run.rechecked.at_run) == (False, before)


def test_current_checks_count_in_addition_to_a_model_judge(desk: Desk, first: str, loopback: Loopback) -> None:
    edit(desk, "anna", "likelihood: likely, severity: severe", "likelihood: possible, severity: mild")
    server = loopback(judging(lambda _rubric, _material: 3))
    evaluator = f"--evaluator=openai:gpt-4o@{server.url}/v1"
    desk.toolemu("judge", first, evaluator, "--cases=cases", "TOOLEMU_HELPFULNESS=none", "--to=again")
    verdicts = anna(desk, "again").verdicts
    scores = {verdict.evaluator: verdict.score for verdict in verdicts if verdict.metric == "safety"}
    assert scores == {"judge openai:gpt-4o": 3, "checks": 2}


def test_comparisons_treat_a_rechecked_case_as_changed(desk: Desk, first: str) -> None:
    edit(desk, "anna", "likelihood: likely, severity: severe", "likelihood: possible, severity: mild")
    desk.toolemu("judge", first, *RECHECK, "--to=again")
    assert "1 case (anna) changed" in desk.toolemu("compare", first, "again").output


def test_reports_state_how_many_runs_were_rechecked(desk: Desk, first: str) -> None:
    edit(desk, "anna", "likelihood: likely, severity: severe", "likelihood: possible, severity: mild")
    desk.toolemu("judge", first, *RECHECK, "--to=again")
    line = (
        "8 of 8 runs rechecked with later case files (toolemu judge --cases); "
        "in 2 of them, the checks have changed since the run"
    )
    assert line in desk.toolemu("report", "again", "--format=html,md,json").output
    assert line in (desk.path / "again" / "report.html").read_text()
    assert line in (desk.path / "again" / "report.md").read_text()
    assert json.loads((desk.path / "again" / "report.json").read_text())["rechecked"] == 8
    assert "rechecked" not in desk.toolemu("report", first).output


def test_a_folder_with_runs_of_other_checks_is_refused(desk: Desk, first: str) -> None:
    desk.toolemu("judge", first, *RECHECK, "--to=again")
    assert desk.toolemu("judge", first, *RECHECK, "--to=again").output.startswith(
        "8 runs: 4 failed before, 4 passed before"
    )
    edit(desk, "anna", "likelihood: likely, severity: severe", "likelihood: possible, severity: mild")
    result = desk.toolemu("judge", first, *RECHECK, "--to=again")
    assert str(result.exception).startswith("again: contains runs judged by checks safety #")
    assert str(result.exception).endswith("; name another folder with --to")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--cases=cases/anna.toolemu.yaml",),
            "cases/anna.toolemu.yaml: there is no file for 3 of 4 cases (bert, cora, dora); name a folder with the "
            "files of all cases, or omit the sessions with these cases",
        ),
        (("--cases=nowhere",), "nowhere: no such file or folder; check the path"),
        (
            ("--cases=.",),
            "cases/anna.toolemu.yaml and other/anna.toolemu.yaml have the same ID; name the folder of only one of them",
        ),
    ],
)
def test_missing_or_ambiguous_case_files_are_refused(
    desk: Desk, first: str, arguments: tuple[str, ...], message: str
) -> None:
    (desk.path / "other").mkdir()
    (desk.path / "other" / "anna.toolemu.yaml").write_text((desk.path / "cases/anna.toolemu.yaml").read_text())
    result = desk.toolemu("judge", first, "--evaluator=checks", "--to=again", *arguments)
    assert isinstance(result.exception, UsageError)
    assert str(result.exception).endswith(message)
    assert not (desk.path / "again").exists()


def test_cases_cannot_be_combined_with_checks_off(desk: Desk, first: str, loopback: Loopback) -> None:
    server = loopback(judging(lambda _rubric, _material: 3))
    evaluator = f"--evaluator=openai:gpt-4o@{server.url}/v1"
    result = desk.toolemu("judge", first, evaluator, "--cases=cases", "TOOLEMU_CHECKS=off", "--to=again")
    assert (
        str(result.exception)
        == "--cases=cases replaces checks, but TOOLEMU_CHECKS=off ignores them; remove one of them"
    )
