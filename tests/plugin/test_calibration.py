"""Every session shows the calibration of its judges, and gates may require it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_toolemu.analysis.calibration.calibration_file import (
    calibration_line,
    judge_reliabilities,
    read_calibrations,
    update_calibration_file,
)
from pytest_toolemu.analysis.gates.gate_decision import JudgeReliability
from pytest_toolemu.errors import UsageError
from tests.calibration.judges import judging, right
from tests.loopback.fixtures import Loopback
from tests.plugin.conftest import Project

GATE = "gates: [{metric: failure_incidence, at_most: 0.5}]\ncalibration: {kappa_at_least: 0.6, labels_at_least: 4}\n"


@pytest.fixture
def judge(alone: Project, loopback: Loopback) -> str:
    """Calibrate a judge that is always right over the four references, into ``cal.json``; return its option."""
    for name in ("anna", "bert"):
        path = alone.path / "cases" / f"{name}.toolemu.yaml"
        path.write_text(path.read_text() + "expected: [Asks first.]\n")
    server = loopback(judging(right))
    evaluator = f"openai:gpt-4o@{server.url}/v1"
    calibrated = alone.pytester.run(
        "toolemu", "calibrate", f"--evaluator={evaluator}", "--cases=cases", "--to=cal.json"
    )
    assert calibrated.ret == 0
    return f"--toolemu-evaluator={evaluator}"


def test_a_calibrated_judge_is_shown_with_its_metrics_and_meets_the_gate(alone: Project, judge: str) -> None:
    alone.write("release.yaml", GATE)
    calibration = "--toolemu-calibration=cal.json"
    result = alone.run("--toolemu-agent=reference:safe", judge, calibration, "--toolemu-gate=release.yaml")
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            "toolemu: judges calibrated: judged openai:gpt-4o helpfulness #*, judged openai:gpt-4o safety #*",
            "judged openai:gpt-4o safety #*: calibrated: kappa 1.00 [[]*, 1.00[]], precision of failures 100% [[]*[]], recall 100% "
            "[[]*[]] on 4 labels (20??-??-??, dataset *)",
            "PASSED reference:safe: calibration of judged openai:gpt-4o safety #*: kappa 1.00 [[]*[]] on 4 labels, *",
        ]
    )
    session = sorted((alone.path / ".toolemu").glob("2*"))[-1]
    later = alone.pytester.run("toolemu", "gate", str(session), "--gate=release.yaml", "--calibration=cal.json")
    assert later.ret == 0
    later.stdout.fnmatch_lines(["judged openai:gpt-4o safety #*: kappa 1.00 *", "PASSED reference:safe: calibration *"])
    uncalibrated = alone.pytester.run("toolemu", "gate", str(session), "--gate=release.yaml")
    assert uncalibrated.ret == 1
    uncalibrated.stdout.fnmatch_lines(["UNDECIDED reference:safe: calibration of *is uncalibrated; run 'toolemu *"])


def test_every_report_names_the_calibration_in_use(alone: Project, judge: str) -> None:
    calibration, formats = "--toolemu-calibration=cal.json", "--toolemu-report=html,md,json"
    assert alone.run("--toolemu-agent=reference:safe", judge, calibration, formats).ret == 0
    (session,) = (alone.path / ".toolemu").glob("*/report.html")
    texts = [(session.parent / f"report.{name}").read_text(encoding="utf-8") for name in ("html", "md", "json")]
    assert all("calibrated: kappa 1.00 [" in text and "uncalibrated" not in text for text in texts)
    calibrations = json.loads(texts[-1])["calibrations"]
    assert [one["kappa"]["value"] for name, one in calibrations.items() if " safety #" in name] == [1.0]

    # A report on stored records takes the calibration from the session's settings or from the option.
    later = alone.pytester.run("toolemu", "report", str(session.parent), "--format=md")
    assert later.ret == 0
    assert "calibrated: kappa 1.00 [" in (session.parent / "report.md").read_text(encoding="utf-8")
    (alone.path / "cal.json").rename(alone.path / "moved.json")
    result = alone.pytester.run("toolemu", "report", str(session.parent), "--format=md")
    result.stderr.fnmatch_lines(
        ["note: *cal.json does not exist, so its judges are shown as uncalibrated; name the file with --calibration"]
    )
    assert "(uncalibrated; see 'toolemu calibrate')" in (session.parent / "report.md").read_text(encoding="utf-8")
    alone.write("release.yaml", GATE)
    gated = ("--gate=release.yaml", "--calibration=moved.json")
    assert alone.pytester.run("toolemu", "report", str(session.parent), "--format=md", *gated).ret == 0
    again = (session.parent / "report.md").read_text(encoding="utf-8")
    assert "**Every gate passed.**" in again
    assert "calibrated: kappa 1.00 [" in again


@pytest.mark.usefixtures("judge")
def test_a_judge_without_a_kappa_counts_as_calibrated(alone: Project) -> None:
    calibrations = read_calibrations([alone.path / "cal.json"])
    name = next(name for name in calibrations if " safety #" in name)
    empty = [[0] * 4 for _ in range(3)]
    alike = {name: calibrations[name].model_copy(update={"kappa": None, "confusion": [*empty, [0, 0, 0, 4]]})}
    assert calibration_line(name, alike).startswith(
        f"{name}: calibrated, kappa undefined (labels and scores are all 3), precision "
    )
    assert judge_reliabilities(alike) == {name: JudgeReliability("labels and scores are all 3")}
    silent = {name: calibrations[name].model_copy(update={"kappa": None, "judged": 0, "confusion": [*empty, [0] * 4]})}
    assert f"{name}: calibrated, kappa undefined (none of 4 labeled runs was judged)," in calibration_line(name, silent)


def test_an_uncalibrated_judge_is_reported_as_uncalibrated(alone: Project, judge: str) -> None:
    result = alone.run("--toolemu-agent=reference:safe", judge)
    result.stdout.fnmatch_lines(
        [
            "toolemu: judges uncalibrated; 'toolemu calibrate' writes a file for --toolemu-calibration",
            "judged openai:gpt-4o safety #*: uncalibrated; see 'toolemu calibrate'",
        ]
    )
    checks = alone.run("--toolemu-agent=reference:safe", "--toolemu-evaluator=checks")
    checks.stdout.no_fnmatch_line("toolemu: judges *")
    checks.stdout.no_fnmatch_line("checks safety *")


def test_a_calibration_applies_only_to_the_same_judge(alone: Project, judge: str) -> None:
    result = alone.run(
        "--toolemu-agent=reference:safe", judge, "--toolemu-calibration=cal.json", "-otoolemu_temperature=1"
    )
    result.stdout.fnmatch_lines(
        [
            "judged openai:gpt-4o safety #*: uncalibrated (judged openai:gpt-4o safety #* is calibrated, with a different prompt, "
            "parameter, or endpoint); see 'toolemu calibrate'"
        ]
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "*other.json: no such calibration file; create it with 'toolemu calibrate'"),
        (
            "{",
            "*other.json: not a calibration that this version reads: line 1, column 1: EOF while parsing an object; create it again with 'toolemu calibrate'",
        ),
        (
            '{"judges": {"x": {}}}',
            "*other.json: not a calibration that this version reads: judges.x: the key 'accuracy' is missing in judges.x; create it again with 'toolemu calibrate'",
        ),
    ],
)
def test_an_unreadable_calibration_file_stops_the_session(alone: Project, text: str | None, message: str) -> None:
    if text is not None:
        alone.write("other.json", text)
    result = alone.run("--toolemu-agent=reference:safe", "-q", "--toolemu-calibration=other.json")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: toolemu: {message}"])
    assert alone.runs() == []


@pytest.mark.usefixtures("judge")
def test_different_calibrations_of_one_judge_are_refused(alone: Project, tmp_path: Path) -> None:
    calibrations = read_calibrations([alone.path / "cal.json"])
    update_calibration_file(tmp_path / "same.json", calibrations)
    assert read_calibrations([alone.path / "cal.json", tmp_path / "same.json"]) == calibrations
    update_calibration_file(
        tmp_path / "other.json",
        {name: calibration.model_copy(update={"judged": 1}) for name, calibration in calibrations.items()},
    )
    with pytest.raises(
        UsageError, match=r"other.json: judged openai:.* is also calibrated in .*cal.json; name only one"
    ):
        read_calibrations([alone.path / "cal.json", tmp_path / "other.json"])
