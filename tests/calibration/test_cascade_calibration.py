"""A cascade is calibrated as a whole and against its strong judge, and gates may limit the error that it adds."""

from __future__ import annotations

import math

import pytest

from pytest_toolemu.analysis.calibration.calibration_file import (
    calibration_status,
    judge_reliabilities,
    read_calibrations,
)
from pytest_toolemu.analysis.calibration.judge_calibration import Opinion, cascade_calibration
from pytest_toolemu.analysis.gates.gate_decision import JudgeReliability, calibration_checks
from pytest_toolemu.analysis.gates.gate_file import CalibrationRequirement
from pytest_toolemu.analysis.statistics.intervals import Estimate
from pytest_toolemu.core.identity import ComponentName
from pytest_toolemu.core.messages import Stage
from pytest_toolemu.core.run import CascadeRecord, CascadeStage
from tests.calibration.conftest import Desk, lines_with
from tests.calibration.judges import judging, right
from tests.loopback.fixtures import Loopback
from tests.loopback.records import Answer, Request

CASCADE = "checks then gpt-5-mini then gpt-5"
STAGES: tuple[Stage, ...] = ("checks", "cheap", "strong")


def opinion(case: int, label: int, decided_by: Stage, *scores: int | None) -> Opinion:
    """Return what a cascade said of a run, with the scores of all stages."""
    stages = tuple(
        CascadeStage(stage=stage, evaluator=f"the {stage} one", score=score)
        for stage, score in zip(STAGES, scores, strict=True)
    )
    record = CascadeRecord(decided_by=decided_by, stages=stages)
    score = scores[STAGES.index(decided_by)]
    return Opinion("cascade", "safety", f"run {case}", str(case), 1, label, score, cascade=record)


def test_the_added_error_is_the_difference_of_paired_errors() -> None:
    opinions = [
        opinion(1, 0, "cheap", 3, 3, 0),  # only the cascade is wrong
        opinion(2, 0, "cheap", 3, 3, 3),  # both are wrong
        opinion(3, 3, "cheap", 3, 3, 0),  # only the strong judge is wrong
        opinion(4, 0, "cheap", 3, 3, 1),  # only the cascade is wrong
        opinion(5, 0, "checks", 0, 3, 3),  # the failing check counts beside the strong judge
        opinion(6, 3, "strong", 3, 2, 3),
    ]
    calibration = cascade_calibration(opinions)
    assert calibration is not None
    assert calibration.decided == {"checks": 1, "cheap": 4, "strong": 1}
    assert (calibration.strong, calibration.reversed_runs, calibration.unpaired) == ("the strong one", 3, 0)
    assert calibration.added_error is not None
    assert calibration.added_error.value == pytest.approx(1 / 6)
    assert calibration.added_error.n == 6
    assert calibration.strong_accuracy is not None
    assert calibration.strong_accuracy.value == pytest.approx(4 / 6)


def test_runs_without_a_score_of_the_strong_judge_are_not_compared_unless_a_check_fails() -> None:
    calibration = cascade_calibration(
        [opinion(1, 3, "cheap", 3, 3, None), opinion(2, 0, "checks", 0, 3, None), opinion(3, 3, "strong", 3, 2, None)]
    )
    assert calibration is not None
    assert calibration.unpaired == 2
    assert calibration.added_error is not None
    assert (calibration.added_error.value, calibration.added_error.n) == (0, 1)
    nothing = cascade_calibration([opinion(1, 3, "cheap", 3, 3, None)])
    assert nothing is not None
    assert nothing.added_error is None


@pytest.mark.parametrize("cases", [30, 122, 208])
def test_no_difference_in_few_labels_is_no_proof_of_no_added_error(cases: int) -> None:
    """Without any run on another side, the upper end is the exact bound of Clopper and Pearson."""
    calibration = cascade_calibration([opinion(case, 3, "cheap", 3, 3, 3) for case in range(cases)])
    assert calibration is not None
    assert calibration.added_error is not None
    assert calibration.added_error.value == 0
    assert calibration.added_error.high == pytest.approx(1 - 0.025 ** (1 / cases), abs=1e-4)


def two_judges(request: Request) -> Answer:
    """Answer as a cheap judge that misses the risk of Cora and is unsure about Bert, and as a strong one."""

    def opinion_of(rubric: str, material: str) -> int:
        score = right(rubric, material)
        if request.body["model"] != "gpt-5-mini":
            return score
        return 3 if "Pay Cora" in material else 2 if "Pay Bert" in material and score else score

    return judging(opinion_of)(request)


@pytest.fixture
def cascade(desk: Desk, loopback: Loopback, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Return the project with a server of a cheap and a strong judge, and four labeled cases."""
    monkeypatch.setenv("OPENAI_BASE_URL", f"{loopback(two_judges).url}/v1")
    return desk


def test_a_cascade_is_calibrated_with_its_strong_judge(cascade: Desk) -> None:
    command = ("calibrate", "--cases=cases", "TOOLEMU_HELPFULNESS=none", "--evaluator=gpt-5-mini then gpt-5")
    result = cascade.toolemu(*command, f"--evaluator={CASCADE}")
    assert result.exception is None, result.output
    calibrations = cascade.calibration()
    whole = calibrations["cascade checks then openai:gpt-5-mini then openai:gpt-5 safety"]
    assert (whole["accuracy"]["value"], whole["cascade"]["added_error"]["value"]) == (1, 0)
    assert whole["cascade"]["decided"] == {"checks": 4, "cheap": 3, "strong": 1}
    without_checks = calibrations["cascade openai:gpt-5-mini then openai:gpt-5 safety"]
    assert without_checks["accuracy"]["value"] == 7 / 8
    assert without_checks["cascade"]["strong_accuracy"]["value"] == 1
    assert without_checks["cascade"]["added_error"]["value"] == 1 / 8
    assert lines_with(result, ["compared with judge openai:gpt-5 in every run"])
    assert lines_with(result, ["added error of the cascade", "+12.5% [", "n 8"])
    assert lines_with(result, ["on the other side of the threshold in 1 run"])
    stored = read_calibrations([cascade.path / "calibration.json"])
    (name,) = [name for name in stored if name.startswith("cascade openai:gpt-5-mini")]
    assert ", added error +12.5% [" in calibration_status(name, stored)
    added = judge_reliabilities(stored)[name].added_error
    assert isinstance(added, Estimate)
    assert added.high is not None
    assert math.isclose(added.value, 1 / 8)


def test_judging_again_with_a_cascade_counts_its_stages(cascade: Desk, first: str) -> None:
    result = cascade.toolemu("judge", first, f"--evaluator={CASCADE}", "TOOLEMU_HELPFULNESS=none", "--to=again")
    assert result.exception is None, result.output
    assert lines_with(result, ["safety: 8 verdicts, decided by checks 4, cheap judge 3, strong judge 1"])
    again = cascade.toolemu("judge", first, f"--evaluator={CASCADE}", "TOOLEMU_HELPFULNESS=none", "--to=again")
    assert lines_with(again, ["8 runs: 4 failed before, 4 passed before"])
    other = cascade.toolemu(
        "judge", first, "--evaluator=gpt-5-mini then gpt-5", "TOOLEMU_HELPFULNESS=none", "--to=again"
    )
    assert "contains runs judged by cascade checks then openai:gpt-5-mini" in str(other.exception)


JUDGE = ComponentName(kind="cascade", label="cascade a then b safety", hash="0a1b2c3d")
PLAIN = ComponentName(kind="judged", label="judged b safety", hash="4e5f6071")
REQUIRED = "required at most 3% at the upper end, on at least 50 labels"


@pytest.mark.parametrize(
    ("added", "is_met", "text"),
    [
        (Estimate(0.01, -0.01, 0.03, 50), True, f"added error +1.0% [-1.0%, +3.0%] on 50 labels, {REQUIRED}"),
        (Estimate(-0.1, -0.2, 0.031, 90), False, f"added error -10.0% [-20.0%, +3.1%] on 90 labels, {REQUIRED}"),
        (Estimate(0.0, -0.01, 0.01, 49), False, f"added error +0.0% [-1.0%, +1.0%] on 49 labels, {REQUIRED}"),
        (Estimate(0.0, None, None, 90), False, f"added error +0.0% (1 case: no interval) on 90 labels, {REQUIRED}"),
        ("no pair", False, f"added error undefined (no pair), {REQUIRED}"),
        (None, False, f"{JUDGE} is uncalibrated; run 'toolemu calibrate' with this judge"),
    ],
)
def test_a_required_added_error_is_compared_with_the_upper_end(
    added: Estimate | str | None, is_met: bool, text: str
) -> None:
    rule = CalibrationRequirement(added_error_at_most=0.03)
    reliabilities = {str(JUDGE): JudgeReliability("undefined", added)} if added else {}
    (check,) = calibration_checks(rule, JUDGE, reliabilities)
    assert (check.name, check.is_met, check.text) == (f"added error of {JUDGE}", is_met, text)
    assert not list(calibration_checks(rule, PLAIN, {}))
    both = CalibrationRequirement(kappa_at_least=0.6, added_error_at_most=0.03)
    assert len(list(calibration_checks(both, JUDGE, reliabilities))) == 2
