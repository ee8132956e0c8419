"""The calibration file, which is small and committed, and the status of judges that reports derive from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, Literal

from pytest_toolemu.analysis.calibration.judge_calibration import JudgeCalibration
from pytest_toolemu.analysis.gates.calibration_requirement import JudgeReliability
from pytest_toolemu.analysis.gates.gate_metrics import format_interval
from pytest_toolemu.analysis.statistics.description import SCORES
from pytest_toolemu.analysis.statistics.intervals import Estimate
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.counted import counted
from pytest_toolemu.formats.files.atomic_write import write_json_text
from pytest_toolemu.formats.files.stored_json import read_record
from pytest_toolemu.formats.yaml_document import Record

Calibrations = Mapping[str, JudgeCalibration]
"""Calibrations by the judge's name, which ends with a hash of model, parameters, prompts, and reply schema."""


_NO_PAIR: Final = "no labeled run has scores of both the cascade and its strong judge"


class CalibrationFile(Record):
    """The content of a calibration file."""

    version: Literal[1] = 1
    judges: dict[str, JudgeCalibration] = {}


def read_calibrations(paths: Iterable[Path]) -> dict[str, JudgeCalibration]:
    """Read all judges of the files; UsageError for an invalid file, and for different calibrations of one judge."""
    calibrations: dict[str, JudgeCalibration] = {}
    files: dict[str, Path] = {}
    for path in paths:
        for judge, calibration in _read(path).judges.items():
            if judge in calibrations and calibrations[judge] != calibration:
                raise UsageError(
                    f"{path}: {judge} is also calibrated in {files[judge]}; name only one of the two files"
                )
            calibrations[judge], files[judge] = calibration, path
    return calibrations


def update_calibration_file(path: Path, judges: Calibrations) -> None:
    """Write calibrations into a file atomically; other judges in the file are kept."""
    existing = _read(path).judges if path.exists() else {}
    content = CalibrationFile(judges=dict(sorted({**existing, **judges}.items())))
    write_json_text(path, content.model_dump_json(indent=1) + "\n")


def judge_reliabilities(calibrations: Calibrations) -> dict[str, JudgeReliability]:
    """Return what gates check of each judge."""
    return {
        judge: JudgeReliability(
            kappa=item.kappa or why_kappa_undefined(item),
            added_error=(item.cascade.added_error or _NO_PAIR) if item.cascade else None,
        )
        for judge, item in calibrations.items()
    }


def why_kappa_undefined(calibration: JudgeCalibration) -> str:
    """Return why the kappa of a judge is None. Kappa is agreement beyond chance, so labels and scores must vary."""
    if not calibration.judged:
        return f"none of {calibration.labels} labeled runs was judged"
    labels = [score for score, row in zip(SCORES, calibration.confusion, strict=True) if any(row)]
    scores = [
        score for score, column in zip(SCORES, zip(*calibration.confusion, strict=True), strict=True) if any(column)
    ]
    if len(labels) == len(scores) == 1 and labels == scores:
        return f"labels and scores are all {labels[0]}"
    sides = {"labels": labels, "scores": scores}
    constant = [f"{name} are all {side[0]}" for name, side in sides.items() if len(side) == 1]
    return " and ".join(constant) or "labels or scores are all on one side of the threshold"


def calibration_line(judge: str, calibrations: Calibrations) -> str:
    """Return the calibration status of a judge with its name, in one line."""
    return f"{judge}: {calibration_status(judge, calibrations)}"


def calibration_status(judge: str, calibrations: Calibrations) -> str:
    """Return the calibration status of a judge, as every report shows it."""
    calibration = calibrations.get(judge)
    if calibration is None:
        name = judge.rpartition("#")[0]
        similar = [other for other in calibrations if other.startswith(f"{name}#")]
        other = f" ({similar[0]} is calibrated, with a different prompt, parameter, or endpoint)" if similar else ""
        return f"uncalibrated{other}; see 'toolemu calibrate'"
    kappa = (
        f": kappa {format_interval(calibration.kappa, '{:.2f}')}"
        if calibration.kappa
        else f", kappa undefined ({why_kappa_undefined(calibration)})"
    )
    failures = f"precision of failures {_percent(calibration.precision)}, recall {_percent(calibration.recall)}"
    origin = f"on {counted(calibration.judged, 'label')} ({calibration.made[:10]}, dataset {calibration.dataset})"
    added = calibration.cascade.added_error if calibration.cascade else None
    error = f", added error {format_interval(added, '{:+.1%}')}" if added else ""
    return f"calibrated{kappa}, {failures}{error} {origin}"


def _percent(estimate: Estimate | None) -> str:
    return "undefined" if estimate is None else format_interval(estimate, "{:.0%}")


def _read(path: Path) -> CalibrationFile:
    try:
        return read_record(
            path, CalibrationFile, expected="a calibration", remedy="create it again with 'toolemu calibrate'"
        )
    except FileNotFoundError:
        raise UsageError(f"{path}: no such calibration file; create it with 'toolemu calibrate'") from None
