"""Calibrations of judges as a small committed file, bound to what they were made with, and as reports tell them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from pytest_toolemu.analysis.calibration.judge_calibration import JudgeCalibration
from pytest_toolemu.analysis.gates.gate_metrics import format_interval
from pytest_toolemu.analysis.statistics.description import SCORES
from pytest_toolemu.analysis.statistics.intervals import Estimate
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.atomic_write import write_json_text
from pytest_toolemu.formats.stored_json import read_record
from pytest_toolemu.formats.yaml_document import Record

Calibrations = Mapping[str, JudgeCalibration]
"""By the judge's name in rows, which ends in a hash of model, parameters, prompt texts and reply schema."""


class CalibrationFile(Record):
    """Every judge that was calibrated into one file."""

    version: Literal[1] = 1
    judges: dict[str, JudgeCalibration] = {}


def read_calibrations(paths: Iterable[Path]) -> dict[str, JudgeCalibration]:
    """All judges of the files; UsageError for a file that is none, and for a judge that two files tell differently."""
    found: dict[str, JudgeCalibration] = {}
    origin: dict[str, Path] = {}
    for path in paths:
        for judge, calibration in _read(path).judges.items():
            if judge in found and found[judge] != calibration:
                raise UsageError(f"{path}: {judge} is calibrated otherwise in {origin[judge]}; name one of the files")
            found[judge], origin[judge] = calibration, path
    return found


def update_calibration_file(path: Path, judges: Calibrations) -> None:
    """Write calibrations into a file, whole or not at all; others that are in it stay."""
    former = _read(path).judges if path.exists() else {}
    content = CalibrationFile(judges=dict(sorted({**former, **judges}.items())))
    write_json_text(path, content.model_dump_json(indent=1) + "\n")


def judge_kappas(calibrations: Calibrations) -> dict[str, Estimate | str]:
    """What gates hold judges to: the quadratic kappa of each, or why it has none."""
    return {judge: found.kappa or why_kappa_undefined(found) for judge, found in calibrations.items()}


def why_kappa_undefined(found: JudgeCalibration) -> str:
    """Say why a judge whose kappa is None has none: kappa is agreement beyond chance, so both sides have to vary."""
    if not found.judged:
        return f"none of {found.labels} labelled runs was judged"
    labels = [score for score, row in zip(SCORES, found.confusion, strict=True) if any(row)]
    scores = [score for score, column in zip(SCORES, zip(*found.confusion, strict=True), strict=True) if any(column)]
    if len(labels) == len(scores) == 1 and labels == scores:
        return f"labels and scores are all {labels[0]}"
    sides = {"labels": labels, "scores": scores}
    same = [f"{name} are all {side[0]}" for name, side in sides.items() if len(side) == 1]
    return " and ".join(same) or "labels or scores are all on one side of the threshold"


def calibration_line(judge: str, calibrations: Calibrations) -> str:
    """How far the judge can be trusted, in one line."""
    return f"{judge}: {calibration_status(judge, calibrations)}"


def calibration_status(judge: str, calibrations: Calibrations) -> str:
    """The same without its name, as every report tells it; ``uncalibrated`` where nobody knows."""
    found = calibrations.get(judge)
    if found is None:
        name = judge.rpartition("#")[0]
        near = [known for known in calibrations if known.startswith(f"{name}#")]
        other = f" (known is {near[0]}, with another prompt, parameter or endpoint)" if near else ""
        return f"uncalibrated{other}; see 'toolemu calibrate'"
    kappa = (
        f": kappa {format_interval(found.kappa, '{:.2f}')}"
        if found.kappa
        else f", kappa undefined ({why_kappa_undefined(found)})"
    )
    failures = f"precision of failures {_figure(found.precision)}, recall {_figure(found.recall)}"
    origin = f"on {found.judged} labels ({found.made[:10]}, dataset {found.dataset})"
    return f"calibrated{kappa}, {failures} {origin}"


def _figure(figure: Estimate | None) -> str:
    return "undefined" if figure is None else format_interval(figure, "{:.0%}")


def _read(path: Path) -> CalibrationFile:
    try:
        return read_record(path, CalibrationFile, what="a calibration", remedy="make it again with 'toolemu calibrate'")
    except FileNotFoundError:
        raise UsageError(f"{path}: there is no such calibration; make it with 'toolemu calibrate'") from None
