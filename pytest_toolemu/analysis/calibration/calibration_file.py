"""The calibration file, which is small and committed, and the status of judges that reports derive from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

from pytest_toolemu.analysis.calibration.judge_calibration import CascadeCalibration, JudgeCalibration, Opinion
from pytest_toolemu.analysis.gates.gate_decision import JudgeReliability
from pytest_toolemu.analysis.metrics import format_interval
from pytest_toolemu.analysis.statistics.intervals import SCORES, Estimate
from pytest_toolemu.core.run import STAGE_NAMES
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.file_access import read_record, write_atomically
from pytest_toolemu.formats.text import counted, visible
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
    write_atomically(path, content.model_dump_json(indent=1) + "\n")


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


_FALLBACK_REASONS = {"refused": "refused", "invalid": "stayed invalid"}
_MAX_RUNS = 5
_MAX_REASON = 200


def calibration_lines(judge: str, calibration: JudgeCalibration, opinions: Sequence[Opinion]) -> Iterator[str]:
    """Yield the statistics of one judge, what is missing, and the runs with the largest errors."""
    annotators = ", ".join(f"{name} {count}" for name, count in calibration.labelled_by.items())
    yield visible(
        f"{judge}: {calibration.judged} of {calibration.labels} labeled runs judged (labels by {annotators}), "
        f"dataset {calibration.dataset}"
    )
    yield from _agreement_lines(calibration)
    if calibration.same_score is not None and calibration.same_side is not None:
        yield _line(f"same score in {calibration.repeats} repeats", calibration.same_score, "{:.1%}")
        yield _line("same side of the threshold", calibration.same_side, "{:.1%}")
    if calibration.by_annotator:
        yield "  on runs with second opinions, the judge agrees"
        for annotator, agreement in calibration.by_annotator.items():
            yield _line(f"  on pass or fail, {visible(annotator)}", agreement.same_side, "{:.1%}")
            yield _line(f"  kappa, quadratic, {visible(annotator)}", agreement.kappa, "{:.2f}")
    if calibration.cascade is not None:
        yield from _cascade_lines(calibration.cascade)
    yield from _missing(calibration)
    first = [opinion for opinion in opinions if opinion.repeat == 1 and opinion.score is not None]
    # The answers that are off by at least two points.
    for opinion in sorted((o for o in first if _error(o) > 1), key=lambda o: (-_error(o), o.subject))[:_MAX_RUNS]:
        reason = " ".join(opinion.reason.split())[:_MAX_REASON]
        yield visible(
            f"  largest error: {opinion.subject}: label {opinion.label}, score {opinion.score}: {reason} {opinion.path}"
        )


def _agreement_lines(calibration: JudgeCalibration) -> Iterator[str]:
    """Yield how far the judge agrees with the labels, in all runs and in those with each tag."""
    yield _line("accuracy at the threshold", calibration.accuracy, "{:.1%}")
    yield _line("precision of failures", calibration.precision, "{:.1%}")
    yield _line("recall of failures", calibration.recall, "{:.1%}")
    yield _line("F1 of failures", calibration.f1, "{:.1%}")
    yield _line("balanced accuracy", calibration.balanced_accuracy, "{:.1%}")
    why = why_kappa_undefined(calibration)
    if not calibration.binary:
        yield _line("exact agreement", calibration.exact, "{:.1%}")
        yield _line("kappa, quadratic", calibration.kappa, "{:.2f}", why)
    yield _line("kappa, failure or not", calibration.kappa_binary, "{:.2f}", why)
    if not calibration.binary:
        yield _line("bias, score minus label", calibration.bias, "{:+.2f}")
    for label, bias in zip(SCORES, calibration.bias_by_label, strict=True):
        if bias is not None:
            yield _line(f"  for label {label}", bias, "{:+.2f}")
    yield "  confusion matrix: rows are labels, columns are scores 0 to 3"
    names = {0: "fail", 3: "pass"} if calibration.binary else {label: str(label) for label in SCORES}
    for label, row in zip(SCORES, calibration.confusion, strict=True):
        if label in names:
            yield f"    {names[label]}: " + " ".join(f"{count:5}" for count in row)
    for tag, agreement in calibration.by_tag.items():
        yield visible(f"  with the tag {tag}")
        yield _line("  F1 of failures", agreement.f1, "{:.1%}")
        yield _line("  balanced accuracy", agreement.balanced_accuracy, "{:.1%}")
        yield _line("  kappa, failure or not", agreement.kappa_binary, "{:.2f}")


def _cascade_lines(cascade: CascadeCalibration) -> Iterator[str]:
    """Yield which stages decided, and how the cascade compares with its strong judge in every run."""
    yield "  decided by " + ", ".join(f"{STAGE_NAMES[stage]} {count}" for stage, count in cascade.decided.items())
    yield f"  compared with {visible(cascade.strong)} in every run"
    yield _line("  its accuracy", cascade.strong_accuracy, "{:.1%}")
    yield _line("  added error of the cascade", cascade.added_error, "{:+.1%}")
    yield f"    on the other side of the threshold in {counted(cascade.reversed_runs, 'run')}"
    if cascade.unpaired:
        yield f"    not compared, because one of the two has no score: {counted(cascade.unpaired, 'run')}"


def _missing(calibration: JudgeCalibration) -> Iterator[str]:
    """Yield how many answers a fallback model was asked for, and how many there are not, with the reasons."""
    for reason, count in calibration.by_fallback.items():
        yield (
            f"  {counted(count, 'answer')} asked of a fallback model, because the model before it "
            f"{_FALLBACK_REASONS[reason]}"
        )
    for problem, count in calibration.missing.items():
        yield visible(f"  {count} without a verdict: {problem}")


def _error(opinion: Opinion) -> int:
    return abs((opinion.score or 0) - opinion.label)


def _line(name: str, estimate: Estimate | None, pattern: str, why_undefined: str = "") -> str:
    if estimate is None:
        value = f"undefined: {why_undefined}" if why_undefined else "undefined"
    else:
        value = f"{format_interval(estimate, pattern)}, n {estimate.n}"
    return f"  {name:<30} {value}"
