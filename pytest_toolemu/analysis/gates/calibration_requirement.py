"""Decides whether judges are calibrated as a gate file requires."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pytest_toolemu.analysis.gates.gate_file import CalibrationRequirement
from pytest_toolemu.analysis.gates.gate_metrics import format_interval
from pytest_toolemu.analysis.run_summary import MODEL_JUDGE_KIND
from pytest_toolemu.analysis.statistics.intervals import Estimate
from pytest_toolemu.core.identity import ComponentName
from pytest_toolemu.core.run_parts.cascade_record import CASCADE_KIND
from pytest_toolemu.formats.counted import counted

_REMEDY: Final = "run 'toolemu calibrate' with this judge"
_OTHER_REMEDY: Final = "'toolemu calibrate' supports only models; judge the runs again with a model ('toolemu judge')"
"""For imported judges, and for custom evaluators."""

_MODEL_KINDS: Final = (MODEL_JUDGE_KIND, CASCADE_KIND)
"""Kinds of judges that can be calibrated."""

_ROUNDING: Final = 1e-9
"""Tolerance for a kappa whose exact value equals the limit, but whose floating-point value is just below it."""


@dataclass(frozen=True)
class JudgeReliability:
    """What gates need of a calibration: quadratic kappa with the labels, and the added error of a cascade.

    Each is the reason if it is undefined. ``added_error`` is None for a judge that is not a cascade.
    """

    kappa: Estimate | str
    added_error: Estimate | str | None = None


Reliabilities = Mapping[str, JudgeReliability]
"""The reliability of each calibrated judge by its name in run summaries."""


@dataclass(frozen=True)
class RequirementCheck:
    """Whether a judge meets one requirement; ``name`` names it in reports, and ``text`` explains it with the values."""

    name: str
    is_met: bool
    text: str


def calibration_checks(
    rule: CalibrationRequirement, judge: ComponentName, reliabilities: Reliabilities
) -> Iterator[RequirementCheck]:
    """Yield whether a judge meets each requirement that applies to it."""
    reliability = reliabilities.get(str(judge))
    if rule.kappa_at_least is not None:
        yield _check_kappa(rule, rule.kappa_at_least, judge, reliability)
    if rule.added_error_at_most is not None and judge.kind == CASCADE_KIND:
        yield check_added_error(rule, rule.added_error_at_most, judge, reliability)


def format_limit(limit: float) -> str:
    """Return a share as the percentage that the user wrote: ``3%`` for 0.03."""
    return f"{100 * limit:.12g}%"


def check_added_error(
    rule: CalibrationRequirement, limit: float, judge: ComponentName, reliability: JudgeReliability | None
) -> RequirementCheck:
    """Return whether the upper end of the interval of a cascade's added error is within the limit."""
    labels = counted(rule.labels_at_least, "label")
    required = f"required at most {format_limit(limit)} at the upper end, on at least {labels}"
    added = reliability.added_error if reliability else None
    is_met = False
    if added is None:
        text = f"{judge} is uncalibrated; {_REMEDY}"
    elif isinstance(added, str):
        text = f"added error undefined ({added}), {required}"
    else:
        is_met = added.high is not None and added.high <= limit and added.n >= rule.labels_at_least
        text = f"added error {format_interval(added, '{:+.1%}')} on {counted(added.n, 'label')}, {required}"
    return RequirementCheck(f"added error of {judge}", is_met, text)


def _check_kappa(
    rule: CalibrationRequirement, limit: float, judge: ComponentName, reliability: JudgeReliability | None
) -> RequirementCheck:
    required = f"required at least {limit:g} on {rule.labels_at_least}"
    is_met = False
    if reliability is None:
        text = f"{judge} is uncalibrated; {_REMEDY if judge.kind in _MODEL_KINDS else _OTHER_REMEDY}"
    elif isinstance(reliability.kappa, str):
        text = (
            f"calibrated, kappa undefined ({reliability.kappa}), {required}; calibrate it with runs whose labels differ"
        )
    else:
        kappa = reliability.kappa
        is_met = kappa.value >= limit - _ROUNDING and kappa.n >= rule.labels_at_least
        text = f"kappa {format_interval(kappa, '{:.2f}')} on {counted(kappa.n, 'label')}, {required}"
    return RequirementCheck(f"calibration of {judge}", is_met, text)
