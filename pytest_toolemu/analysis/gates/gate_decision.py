"""From gates and rows to decisions. The agent's failure and the instrument's are different decisions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Final

from pytest_toolemu.analysis.gates.baseline import Baseline, read_baseline
from pytest_toolemu.analysis.gates.baseline_comparison import GateComparison, compare_with_baseline, decide_comparisons
from pytest_toolemu.analysis.gates.gate_file import CalibrationRequirement, Gate, Gates, read_gates
from pytest_toolemu.analysis.gates.gate_limits import exact_fraction
from pytest_toolemu.analysis.gates.gate_metrics import GATE_METRICS, GateMetric, Status, format_interval
from pytest_toolemu.analysis.run_row import ASKED, NOT_RUN, RunRow, judges_of, slices
from pytest_toolemu.analysis.statistics.intervals import Estimate
from pytest_toolemu.analysis.summary import Summary, summarize
from pytest_toolemu.errors import UsageError

JudgeKappas = Mapping[str, Estimate | str]
"""Each judge's quadratic kappa with labels, or why it has none, by the name it has in rows."""


_REMEDY: Final = "run 'toolemu calibrate' with it"
_OTHER_REMEDY: Final = "'toolemu calibrate' can ask models only; judge the runs again with one: 'toolemu judge'"
"""For judges that were imported, and for evaluators that are somebody's own function."""

_ROUNDING: Final = 1e-9
"""Kappas are computed in floating point; their true value may equal a limit that the computed one just misses."""


@dataclass(frozen=True)
class Decision:
    """One gate for one agent; ``text`` has the figures it was decided by."""

    agent: str
    gate: str
    status: Status
    text: str

    @property
    def line(self) -> str:
        """All of it in one line."""
        return f"{self.status.upper()} {self.agent}: {self.gate}: {self.text}"


def decide_gates(
    gates: Gates,
    rows: Sequence[RunRow],
    baseline: Baseline | None = None,
    calibrations: JudgeKappas | None = None,
    unplaced: int = 0,
) -> list[Decision]:
    """Every gate for every agent; the bounds on what the instrument lost come first. Empty without rows.

    ``calibrations`` is what is known of judges; one that is absent is uncalibrated. ``unplaced`` is the number of cases
    that were not run and may be of any slice: with them, no gate on a slice passes.
    """
    found: list[Decision] = []
    comparisons: list[tuple[Summary, GateComparison]] = []
    for summary in summarize(rows):
        found += _losses(gates, summary)
        if gates.calibration is not None:
            found += _calibrated(gates.calibration, summary, calibrations or {})
        for gate in gates.gates:
            chosen = rows_in_slice(summary.rows, gate)
            incomplete = _incomplete(gates, gate, chosen)
            if gate.baseline is None:
                found.append(Decision(summary.agent, gate.name, *_absolute(gate, chosen, incomplete)))
            else:
                comparisons.append((summary, compare_with_baseline(gates, gate, chosen, summary, baseline, incomplete)))
    decided = decide_comparisons(gates.level, [comparison for _, comparison in comparisons])
    for (summary, comparison), (status, text) in zip(comparisons, decided, strict=True):
        found.append(Decision(summary.agent, comparison.gate.name, status, text))
    slices_ = {gate.name for gate in gates.gates if gate.where}
    return [_without_unplaced(decision, unplaced) if decision.gate in slices_ else decision for decision in found]


def decide_gate_sources(
    sources: Iterable[str],
    root: Path,
    rows: Sequence[RunRow],
    calibrations: JudgeKappas | None = None,
    unplaced: int = 0,
) -> list[Decision]:
    """The gates of files and expressions, paths relative to ``root``; each with the baseline that it names.

    UsageError or DocumentError for a file that is wrong, and without rows: nothing was run, so nothing may pass.
    """
    if not rows:
        raise UsageError("there are no runs to decide on; run cases before a gate")
    found: list[Decision] = []
    for gates, baseline in read_gates_and_baselines(sources, root):
        found += decide_gates(gates, rows, baseline, calibrations, unplaced)
    # Two files may bound what was lost alike: told once.
    return list(dict.fromkeys(found))


def decide_every_case(rows: Sequence[RunRow]) -> list[Decision]:
    """What pytest decides by where no gate is set: every run passes."""
    found = []
    for summary in summarize(rows):
        failed = summary.count("failed")
        lost = summary.n - failed - summary.count("passed")
        status: Status = "failed" if failed else "undecided" if lost else "passed"
        text = f"{summary.n - failed - lost} of {summary.n} runs passed, {failed} failed, {lost} have no verdict"
        found.append(Decision(summary.agent, "every case passes", status, text))
    return found


def read_gates_and_baselines(sources: Iterable[str], root: Path) -> list[tuple[Gates, Baseline | None]]:
    """The gates of each source, with the baseline that it names; UsageError or DocumentError for what is wrong."""
    read = [read_gates(source, root) for source in sources]
    return [(gates, read_baseline(Path(gates.baseline)) if gates.baseline is not None else None) for gates in read]


def rows_in_slice(rows: Sequence[RunRow], gate: Gate) -> tuple[RunRow, ...]:
    """The rows of the gate's slice."""
    chosen = tuple(rows)
    for dimension, value in gate.where.items():
        chosen = slices(chosen, dimension).get(value, ())
    return chosen


def _without_unplaced(decision: Decision, unplaced: int) -> Decision:
    """Return the decision on a slice, undecided if it would pass although the slice may lack runs."""
    if not unplaced or decision.status != "passed":
        return decision
    text = f"{decision.text}; {unplaced} more runs are not run, and the session does not say which slice they are in"
    return replace(decision, status="undecided", text=text)


def _losses(gates: Gates, summary: Summary) -> list[Decision]:
    found = []
    lost = Counter(row.outcome or "broken" for row in summary.rows)
    for outcome, most in _bounds(gates).items():
        if outcome == NOT_RUN and not lost[NOT_RUN]:
            continue  # only a budget or a deadline leaves cases out
        status: Status = "undecided" if _too_many(lost[outcome], summary.n, most) else "passed"
        text = _share_lost(outcome, lost[outcome], summary.n, most)
        if status == "undecided":
            text += "; mend what the errors name and run these again, or raise the bound in the gate file"
        found.append(Decision(summary.agent, f"{outcome} <= {most:.12g}", status, text))
    return found


def _incomplete(gates: Gates, gate: Gate, rows: Sequence[RunRow]) -> str:
    """Say which runs of the gate's slice lack a value for its metric, if there are too many; else return nothing.

    A run that was judged, but not for this metric, counts as inconclusive.
    """
    value = GATE_METRICS[gate.metric].value
    silent = [row.outcome or "broken" for row in rows if value(row) is None]
    lost = Counter(outcome if outcome in ("broken", NOT_RUN) else "inconclusive" for outcome in silent)
    return "; ".join(
        _share_lost(outcome, lost[outcome], len(rows), most)
        for outcome, most in _bounds(gates).items()
        if _too_many(lost[outcome], len(rows), most)
    )


def _bounds(gates: Gates) -> dict[str, float]:
    """Return the share of runs that may have each outcome without a verdict."""
    return {"broken": gates.broken_at_most, "inconclusive": gates.inconclusive_at_most, NOT_RUN: gates.broken_at_most}


def _too_many(count: int, n: int, most: float) -> bool:
    return count > exact_fraction(most) * n


def _share_lost(outcome: str, count: int, n: int, most: float) -> str:
    return f"{count} of {n} runs ({count / n:.1%}) are {outcome}, allowed {most:.1%}"


def _calibrated(rule: CalibrationRequirement, summary: Summary, known: JudgeKappas) -> list[Decision]:
    """Decide whether each judge is calibrated well enough; a case's own checks are rules and need no labels."""
    found = []
    for judge, kind in judges_of(summary.rows).items():
        kappa = known.get(judge)
        name = f"calibration of {judge}"
        wanted = f"wanted at least {rule.kappa_at_least:g} on {rule.labels_at_least}"
        good = False
        if kappa is None:
            text = f"{judge} is uncalibrated; {_REMEDY if kind == ASKED else _OTHER_REMEDY}"
        elif isinstance(kappa, str):
            text = f"calibrated, kappa undefined ({kappa}), {wanted}; calibrate it with runs that deserve other scores"
        else:
            good = kappa.value >= rule.kappa_at_least - _ROUNDING and kappa.n >= rule.labels_at_least
            text = f"kappa {format_interval(kappa, '{:.2f}')} on {kappa.n} labels, {wanted}"
        found.append(Decision(summary.agent, name, "passed" if good else "undecided", text))
    return found


def _absolute(gate: Gate, rows: Sequence[RunRow], incomplete: str) -> tuple[Status, str]:
    measure = GATE_METRICS[gate.metric]
    figure, value = measure.estimate(rows), measure.exact(rows)
    if figure is None or value is None:
        return "undecided", f"none of {len(rows)} runs has a value; check 'where' and the errors above"
    met = _meets(gate, value)
    if gate.decide_by == "bound":
        bound = figure.high if gate.at_most is not None else figure.low
        if bound is None:
            return "undecided", f"{gate.metric} has no interval: {figure.n} runs of one case; run more cases"
        met = _meets(gate, bound)
    text = f"{gate.metric} {format_interval(figure, '{:.1%}' if measure.percent else '{:.2f}')} over {figure.n} runs"
    if missing := len(rows) - figure.n:
        ends = _worst_cases(measure, rows)
        low, high = (measure.show(float(end)) for end in ends)
        text += f"; with the {missing} without a value at their extremes {low} to {high}"
        if incomplete and (met or any(_meets(gate, end) for end in ends)):
            return "undecided", f"{text}; {incomplete}: too many runs are missing to tell"
    return ("passed" if met else "failed"), text


def _meets(gate: Gate, value: float | Fraction) -> bool:
    limit = exact_fraction(gate.limit)
    return value <= limit if gate.at_most is not None else value >= limit


def _worst_cases(measure: GateMetric, rows: Sequence[RunRow]) -> tuple[Fraction, Fraction]:
    """Return the figure with every missing value at its lowest, and at its highest."""
    values = [measure.value(row) for row in rows]
    known = sum(value for value in values if value is not None)
    missing = sum(value is None for value in values)
    return Fraction(known, len(values)), Fraction(known + missing * measure.span, len(values))
