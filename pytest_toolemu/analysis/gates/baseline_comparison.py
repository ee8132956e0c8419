"""An agent against its baseline, case by case."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_toolemu.analysis.gates.baseline import AgentBaseline, Baseline, baseline_mismatches
from pytest_toolemu.analysis.gates.gate_file import Gate, Gates
from pytest_toolemu.analysis.gates.gate_limits import exact_fraction
from pytest_toolemu.analysis.gates.gate_metrics import GATE_METRICS, GateMetric, Status
from pytest_toolemu.analysis.run_row import RunRow
from pytest_toolemu.analysis.statistics.paired_tests import (
    case_changes,
    detectable_change,
    holm_rejections,
    mean_change,
    p_worse,
)
from pytest_toolemu.analysis.summary import Summary
from pytest_toolemu.errors import UsageError

Pairs = list[tuple[list[float], list[float]]]


@dataclass(frozen=True)
class GateComparison:
    """A relative gate before it is decided: with others in its family, or already undecided by ``trouble``."""

    gate: Gate
    pairs: Pairs
    lost: int
    trouble: str = ""

    @property
    def p_worse(self) -> float:
        """The p-value of the test for harm beyond the margin."""
        measure = GATE_METRICS[self.gate.metric]
        return p_worse(self.pairs, measure.worse, measure.span, self.gate.margin)


def compare_with_baseline(
    gates: Gates, gate: Gate, rows: Sequence[RunRow], summary: Summary, baseline: Baseline | None, incomplete: str = ""
) -> GateComparison:
    """Pair the rows of a gate's slice with the baseline; the trouble says why they cannot be compared.

    ``incomplete`` says that too many runs of the slice lack a value; empty if enough have one.
    """
    try:
        if baseline is None:
            raise UsageError("there is no baseline to compare with")
        side = baseline.side(summary.agent)
    except UsageError as error:
        return GateComparison(gate, [], 0, str(error))
    if differing := {k: text for k, text in baseline_mismatches(side, summary.rows).items() if k not in gates.allow}:
        listed = "; ".join(f"{kind}: {text}" for kind, text in differing.items())
        remedy = f"make a new baseline, or allow it by name with 'allow: [{', '.join(differing)}]'"
        return GateComparison(gate, [], 0, f"the baseline was made differently: {listed}; {remedy}")
    pairs, lost = pair_with_baseline(GATE_METRICS[gate.metric], side, rows)
    if not pairs:
        return GateComparison(gate, [], lost, "no case has a verdict on both sides")
    if lost > exact_fraction(gates.pairs_lost_at_most) * (len(pairs) + lost):
        share = lost / (len(pairs) + lost)
        trouble = (
            f"{lost} of {len(pairs) + lost} pairs ({share:.1%}) lost to errors, allowed {gates.pairs_lost_at_most:.1%}"
        )
        return GateComparison(gate, pairs, lost, trouble)
    return GateComparison(gate, pairs, lost, f"{incomplete}: too many runs are missing to tell" if incomplete else "")


def pair_with_baseline(measure: GateMetric, side: AgentBaseline, rows: Sequence[RunRow]) -> tuple[Pairs, int]:
    """Cases with a value on both sides, and how many that both sides ran have none on one."""
    after = Summary("", tuple(rows)).cases
    before = Summary("", side.rows("baseline")).cases
    sides = [(before[case], after[case]) for case in after if case in before]
    values = [(_values(measure, old), _values(measure, new)) for old, new in sides]
    pairs = [(old, new) for old, new in values if old and new]
    return pairs, len(sides) - len(pairs)


def _values(measure: GateMetric, runs: Sequence[RunRow]) -> list[float]:
    return [float(value) for row in runs if (value := measure.value(row)) is not None]


def decide_comparisons(level: float, comparisons: Sequence[GateComparison]) -> list[tuple[Status, str]]:
    """Status and figures of each; those that look for harm share one level: more gates, but no more false alarms."""
    tested = [c for c in comparisons if not c.trouble and c.gate.baseline == "no_worse"]
    p_values = [comparison.p_worse for comparison in tested]
    alarms = dict(zip(map(id, tested), zip(p_values, holm_rejections(p_values, level), strict=True), strict=True))
    return [_decided(level, comparison, alarms.get(id(comparison))) for comparison in comparisons]


def _decided(level: float, comparison: GateComparison, tested: tuple[float, bool] | None) -> tuple[Status, str]:
    if comparison.trouble:
        return "undecided", comparison.trouble
    gate, measure = comparison.gate, GATE_METRICS[comparison.gate.metric]
    # Two-sided at twice the level: its unfavourable end is the one-sided bound that decides 'not_inferior'.
    change = mean_change(comparison.pairs, measure.span, 1 - 2 * level)
    assert change is not None
    moved = [measure.worse * value for value in case_changes(comparison.pairs)]
    text = (
        f"{gate.metric} {measure.change(change)} {measure.unit} against the baseline "
        f"({100 - 200 * level:.4g} % interval): worse on {sum(value > 0 for value in moved)}, "
        f"better on {sum(value < 0 for value in moved)} of {change.n} cases ({comparison.lost} lost to errors)"
    )
    if tested is not None:
        p_value, worse = tested
        return (
            "failed" if worse else "passed"
        ), f"{text}; p {p_value:.3g} at level {level:g}; {_power(level, comparison)}"
    bound = change.high if measure.worse > 0 else change.low
    if bound is None:
        return "undecided", f"{text}; one case alone shows nothing"
    shown = measure.worse * bound < gate.margin
    end = "upper" if measure.worse > 0 else "lower"
    text = f"{text}; the {end} end decides, the margin is {measure.distance(gate.margin)}"
    return ("passed" if shown else "failed"), text


def _power(level: float, comparison: GateComparison) -> str:
    """Say which true change the test would find, as a sentence."""
    gate, measure = comparison.gate, GATE_METRICS[comparison.gate.metric]
    smallest = detectable_change(comparison.pairs, measure.span, level, gate.margin)
    if smallest is None or smallest > measure.span:
        return "so few cases show no change at all with 80 % power"
    way = "rise" if measure.worse > 0 else "fall"
    return f"a true {way} of {measure.distance(smallest)} would be found with 80 % power"
