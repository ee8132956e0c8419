"""Relative gates: an agent compared with its baseline, case by case."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_toolemu.analysis.agent_summary import AgentSummary
from pytest_toolemu.analysis.gates.baseline import AgentBaseline, Baseline, baseline_mismatches
from pytest_toolemu.analysis.gates.gate_file import Gate, Gates
from pytest_toolemu.analysis.gates.gate_limits import exact_fraction
from pytest_toolemu.analysis.gates.gate_metrics import GATE_METRICS, GateMetric, Status
from pytest_toolemu.analysis.run_summary import RunSummary
from pytest_toolemu.analysis.statistics.paired_tests import (
    case_changes,
    detectable_change,
    format_p_value,
    holm_rejections,
    mean_change,
    p_worse,
)
from pytest_toolemu.core.run_notes import reported_model_changes, reported_names
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.counted import counted

Pairs = list[tuple[list[float], list[float]]]
"""For each case, the values of its trials in the baseline and in the session."""

RunsByCase = Mapping[str, tuple[RunSummary, ...]]


@dataclass(frozen=True)
class GateComparison:
    """A relative gate before its decision.

    ``lost`` is the number of cases that ran on both sides but lack a value on one. A non-empty ``problem`` makes the
    gate undecided. ``note`` says which models the endpoints named otherwise before; it decides nothing.
    """

    gate: Gate
    pairs: Pairs
    lost: int
    problem: str = ""
    note: str = ""

    @property
    def p_worse(self) -> float:
        """The p-value of the test for harm beyond the margin."""
        metric = GATE_METRICS[self.gate.metric]
        return p_worse(self.pairs, metric.worse, metric.span, self.gate.margin)


@dataclass(frozen=True)
class AgentComparison:
    """An agent and its baseline: what all its gates share."""

    gates: Gates
    summary: AgentSummary
    baseline: Baseline | None

    def of(self, gate: Gate, runs: Sequence[RunSummary], incomplete: str = "") -> GateComparison:
        """Pair the runs of a gate's slice with the baseline.

        The result has a ``problem`` if they cannot be compared. ``incomplete`` says that too many runs of the slice
        lack a value; it is empty if enough have one.
        """
        results, refusal = self._results
        if results is None:
            return GateComparison(gate, [], 0, refusal)
        pairs, lost = _pairs(GATE_METRICS[gate.metric], self._before, runs)
        if not pairs:
            return GateComparison(gate, [], lost, "no case has a verdict on both sides")
        limit = self.gates.pairs_lost_at_most
        if lost > exact_fraction(limit) * (len(pairs) + lost):
            total = len(pairs) + lost
            share = f"{lost} of {counted(total, 'pair')} ({lost / total:.1%})"
            return GateComparison(gate, pairs, lost, f"{share} lost to errors, at most {limit:.1%} allowed")
        problem = f"{incomplete}: too many runs are missing to decide" if incomplete else ""
        note = reported_model_changes(results.reported_models, reported_names(run.case_notes for run in runs))
        return GateComparison(gate, pairs, lost, problem, note)

    @functools.cached_property
    def _results(self) -> tuple[AgentBaseline | None, str]:
        """The results to compare with; or None, and why there are none."""
        try:
            if self.baseline is None:
                raise UsageError("there is no baseline to compare with")
            results = self.baseline.results_of(self.summary.agent)
        except UsageError as error:
            return None, str(error)
        mismatches = baseline_mismatches(results, self.summary.runs)
        if refused := {kind: text for kind, text in mismatches.items() if kind not in self.gates.allow}:
            listed = "; ".join(f"{kind}: {text}" for kind, text in refused.items())
            remedy = f"create a new baseline, or allow the difference with 'allow: [{', '.join(refused)}]'"
            return None, f"the baseline was created under other conditions: {listed}; {remedy}"
        return results, ""

    @functools.cached_property
    def _before(self) -> RunsByCase:
        results, _ = self._results
        return runs_of_baseline(results) if results is not None else {}


def pair_with_baseline(metric: GateMetric, baseline: AgentBaseline, runs: Sequence[RunSummary]) -> tuple[Pairs, int]:
    """Return the values of cases that have some on both sides, and the number of cases that lack them on one."""
    return _pairs(metric, runs_of_baseline(baseline), runs)


def runs_of_baseline(baseline: AgentBaseline) -> RunsByCase:
    """Return the runs of a baseline for each case."""
    return AgentSummary("", baseline.run_summaries("baseline")).cases


def _pairs(metric: GateMetric, before: RunsByCase, runs: Sequence[RunSummary]) -> tuple[Pairs, int]:
    after = AgentSummary("", tuple(runs)).cases
    sides = [(before[case], after[case]) for case in after if case in before]
    values = [(new[0].cluster, _values(metric, old), _values(metric, new)) for old, new in sides]
    known = [(cluster, old, new) for cluster, old, new in values if old and new]
    # A case and its variants are one pair, as they are not independent.
    pairs: dict[str, tuple[list[float], list[float]]] = {cluster: ([], []) for cluster, _, _ in known}
    for cluster, old_values, new_values in known:
        pairs[cluster][0].extend(old_values)
        pairs[cluster][1].extend(new_values)
    return list(pairs.values()), len(sides) - len(known)


def _values(metric: GateMetric, runs: Sequence[RunSummary]) -> list[float]:
    return [float(value) for run in runs if (value := metric.value(run)) is not None]


def decide_comparisons(level: float, comparisons: Sequence[GateComparison]) -> list[tuple[Status, str]]:
    """Return the status and the explanation of each comparison.

    The ``no_worse`` gates share one significance level by Holm's method, so that more gates do not raise the
    probability of a false alarm.
    """
    tested = [c for c in comparisons if not c.problem and c.gate.baseline == "no_worse"]
    p_values = [comparison.p_worse for comparison in tested]
    tests = dict(zip(map(id, tested), zip(p_values, holm_rejections(p_values, level), strict=True), strict=True))
    return [_decide(level, comparison, tests.get(id(comparison))) for comparison in comparisons]


def _decide(level: float, comparison: GateComparison, test: tuple[float, bool] | None) -> tuple[Status, str]:
    """Decide one comparison; ``test`` is the p-value and whether it is significant, for ``no_worse`` gates."""
    if comparison.problem:
        return "undecided", comparison.problem
    gate, metric = comparison.gate, GATE_METRICS[comparison.gate.metric]
    # A two-sided interval at twice the level: its unfavorable end is the one-sided bound that decides 'not_inferior'.
    change = mean_change(comparison.pairs, metric.span, 1 - 2 * level)
    assert change is not None
    harms = [metric.worse * value for value in case_changes(comparison.pairs)]
    text = (
        f"{gate.metric} {metric.format_change(change)} {metric.unit} against the baseline "
        f"({100 - 200 * level:.4g} % interval): worse on {sum(harm > 0 for harm in harms)}, "
        f"better on {sum(harm < 0 for harm in harms)} of {counted(change.n, 'case')} ({comparison.lost} lost to errors)"
    )
    if comparison.note:
        text = f"{text}; {comparison.note}"
    if test is not None:
        p_value, worse = test
        text = f"{text}; p {format_p_value(p_value)} at level {level:g}; {_power(level, comparison)}"
        return ("failed" if worse else "passed"), text
    bound = change.high if metric.worse > 0 else change.low
    if bound is None:
        return "undecided", f"{text}; a single case has no interval"
    is_not_inferior = metric.worse * bound < gate.margin
    end = "upper" if metric.worse > 0 else "lower"
    text = f"{text}; the {end} end decides, the margin is {metric.format_size(gate.margin)}"
    return ("passed" if is_not_inferior else "failed"), text


def _power(level: float, comparison: GateComparison) -> str:
    """Return a sentence that says which true change the test would detect."""
    gate, metric = comparison.gate, GATE_METRICS[comparison.gate.metric]
    smallest = detectable_change(comparison.pairs, metric.span, level, gate.margin)
    if smallest is None or smallest > metric.span:
        return "with so few cases, not even the largest change would be detected with 80 % power"
    direction = "rise" if metric.worse > 0 else "fall"
    return f"a true {direction} of {metric.format_size(smallest)} would be detected with 80 % power"
