"""Calibrations and validations as a person reads them in a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_toolemu.analysis.calibration.calibration_file import why_kappa_undefined
from pytest_toolemu.analysis.calibration.judge_calibration import JudgeCalibration
from pytest_toolemu.analysis.calibration.judge_queries import Opinion
from pytest_toolemu.analysis.calibration.validation_table import ValidationTable
from pytest_toolemu.analysis.gates.gate_metrics import format_interval
from pytest_toolemu.analysis.statistics.description import SCORES
from pytest_toolemu.analysis.statistics.intervals import Estimate
from pytest_toolemu.formats.redaction import plain

_WORST = 5
_REASON = 200


def calibration_lines(judge: str, found: JudgeCalibration, opinions: Sequence[Opinion]) -> Iterator[str]:
    """The figures of one judge, what is missing, and the runs it judged furthest off."""
    by = ", ".join(f"{name} {count}" for name, count in found.labelled_by.items())
    yield plain(
        f"{judge}: {found.judged} of {found.labels} labelled runs judged (labels by {by}), dataset {found.dataset}"
    )
    yield _line("accuracy at the threshold", found.accuracy, "{:.1%}")
    yield _line("precision of failures", found.precision, "{:.1%}")
    yield _line("recall of failures", found.recall, "{:.1%}")
    yield _line("exact agreement", found.exact, "{:.1%}")
    yield _line("kappa, quadratic", found.kappa, "{:.2f}", why=why_kappa_undefined(found))
    yield _line("kappa, failure or not", found.kappa_binary, "{:.2f}", why=why_kappa_undefined(found))
    yield _line("bias, score less label", found.bias, "{:+.2f}")
    for label, bias in zip(SCORES, found.bias_by_label, strict=True):
        if bias is not None:
            yield _line(f"  of label {label}", bias, "{:+.2f}")
    yield "  confusion: a row for each label, a column for each score 0 to 3"
    for label, row in zip(SCORES, found.confusion, strict=True):
        yield f"    {label}: " + " ".join(f"{count:5}" for count in row)
    if found.same_score is not None and found.same_side is not None:
        yield _line(f"same score in {found.repeats} repeats", found.same_score, "{:.1%}")
        yield _line("same side of the threshold", found.same_side, "{:.1%}")
    for problem, count in found.missing.items():
        yield plain(f"  {count} without a verdict: {problem}")
    for opinion in _furthest(opinions):
        reason = " ".join(opinion.reason.split())[:_REASON]
        yield plain(
            f"  far off: {opinion.subject}: label {opinion.label}, score {opinion.score}: {reason} {opinion.path}"
        )


def _furthest(opinions: Sequence[Opinion]) -> list[Opinion]:
    """Of the first repeat, those on the wrong side of the threshold or two points off; the furthest first."""
    first = [opinion for opinion in opinions if opinion.repeat == 1 and opinion.score is not None]
    return sorted((o for o in first if _off(o) > 1), key=lambda o: (-_off(o), o.subject))[:_WORST]


def _off(opinion: Opinion) -> int:
    return abs((opinion.score or 0) - opinion.label)


def validation_lines(found: ValidationTable) -> Iterator[str]:
    """The table of the ToolEmu study, for these runs and labels."""
    by = ", ".join(f"{name} {count}" for name, count in found.annotators.items())
    yield plain(f"{found.title}: {found.runs} labelled runs of {found.cases} cases; labels by {by}")
    figures = {
        "identified-failure precision": (found.precision, "{:.1%}"),
        "true-failure incidence": (found.incidence, "{:.1%}"),
        "free of critical issues": (found.free, "{:.1%}"),
        "recall of true failures": (found.recall, "{:.1%}"),
    }
    agreements = {f"kappa, {plain(pair.name)}": pair for pair in found.agreements}
    wide = max(map(len, (*figures, *agreements)))
    for name, (figure, unit) in figures.items():
        yield _line(name, figure, unit, wide)
    for name, pair in agreements.items():
        yield _line(name, pair.kappa, "{:.2f}", wide, plain(pair.why_undefined))
    if found.unjudged:
        yield f"  {found.unjudged} runs without a safety verdict count in no precision or recall"


def _line(name: str, figure: Estimate | None, unit: str, wide: int = 30, why: str = "") -> str:
    undefined = f"undefined: {why}" if why else "not defined here"
    shown = undefined if figure is None else f"{format_interval(figure, unit)}, n {figure.n}"
    return f"  {name:<{wide}} {shown}"
