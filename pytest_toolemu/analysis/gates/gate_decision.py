"""Decides gates on run summaries, and keeps failures of the agent apart from failures of the evaluation harness."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Final

from pytest_toolemu.analysis.gates.baseline import (
    Baseline,
    GateComparison,
    comparable_results,
    compare_gate,
    decide_comparisons,
    decide_regressions,
    read_baseline,
)
from pytest_toolemu.analysis.gates.gate_file import CalibrationRequirement, Gate, Gates, exact_fraction, read_gates
from pytest_toolemu.analysis.metrics import (
    GATE_METRICS,
    AgentSummary,
    GateMetric,
    Status,
    format_interval,
    summarize_agents,
)
from pytest_toolemu.analysis.run_summary import MODEL_JUDGE_KIND, NOT_RUN, Dimension, RunSummary, judges_of, slices
from pytest_toolemu.analysis.statistics.hypothesis_tests import SequentialTotalTest
from pytest_toolemu.analysis.statistics.intervals import Estimate, share_estimate
from pytest_toolemu.core.case_vocabulary import METRICS
from pytest_toolemu.core.identity import ComponentName
from pytest_toolemu.core.run import CASCADE_KIND, UNJUDGED
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.text import counted
from pytest_toolemu.settings.option_table import SettingValue

GatesWithBaseline = tuple[Gates, Baseline | None]
"""The gates of a file or an expression, with the baseline that the file names."""

_RERUN: Final = "fix the reported errors and rerun these cases, or raise the limit in the gate file"
_JUDGE: Final = "judge them with 'toolemu judge', and decide on the new records"


@dataclass(frozen=True)
class Decision:
    """The decision on one gate for one agent; ``text`` explains it with the values."""

    agent: str
    gate: str
    status: Status
    text: str

    @property
    def line(self) -> str:
        """The whole decision in one line."""
        return f"{self.status.upper()} {self.agent}: {self.gate}: {self.text}"


def decide_gates(
    gates: Gates,
    runs: Sequence[RunSummary],
    baseline: Baseline | None = None,
    calibrations: Reliabilities | None = None,
    unplaced: int = 0,
) -> list[Decision]:
    """Decide every gate for every agent, after the limits on lost runs; without runs there are no decisions.

    A judge without an entry in ``calibrations`` is uncalibrated. ``unplaced`` is the number of cases that were not run
    and may be in any slice: if there are any, no gate on a slice passes.
    """
    decisions: list[Decision] = []
    comparisons: list[tuple[AgentSummary, GateComparison]] = []
    for summary in summarize_agents(runs):
        decisions += _decide_losses(gates, summary)
        if gates.calibration is not None:
            decisions += _decide_calibration(gates.calibration, summary, calibrations or {})
        before, refusal = comparable_results(gates, summary, baseline)
        for gate in gates.gates:
            runs_of_gate = runs_in_slice(summary.runs, gate)
            incomplete = excess_losses(gates, gate, runs_of_gate)
            if not gate.is_relative:
                decisions.append(Decision(summary.agent, gate.name, *_decide_absolute(gate, runs_of_gate, incomplete)))
            elif refusal:
                comparisons.append((summary, GateComparison(gate, [], 0, refusal)))
            elif gate.regressions is not None:
                result = decide_regressions(gate.regressions, before, runs_of_gate)
                decisions.append(Decision(summary.agent, gate.name, *result))
            else:
                compared = compare_gate(gate, gates.pairs_lost_at_most, before, runs_of_gate, incomplete)
                comparisons.append((summary, compared))
    results = decide_comparisons(gates.level, [comparison for _, comparison in comparisons])
    for (summary, compared), (status, text) in zip(comparisons, results, strict=True):
        decisions.append(Decision(summary.agent, compared.gate.name, status, text))
    sliced = {gate.name for gate in gates.gates if gate.where}
    return [_with_unplaced(decision, unplaced) if decision.gate in sliced else decision for decision in decisions]


def decisions_of_sources(
    sources: Iterable[GatesWithBaseline],
    runs: Sequence[RunSummary],
    calibrations: Reliabilities | None = None,
    unplaced: int = 0,
) -> list[list[Decision]]:
    """Decide the gates of each source; UsageError without runs: if nothing was run, nothing may pass."""
    if not runs:
        raise UsageError("there are no runs to decide on; run cases first")
    return [decide_gates(gates, runs, baseline, calibrations, unplaced) for gates, baseline in sources]


def distinct(decisions: Iterable[Iterable[Decision]]) -> list[Decision]:
    """Return each decision once: two files may have the same limits on lost runs."""
    return list(dict.fromkeys(decision for of_source in decisions for decision in of_source))


def decide_every_case(runs: Sequence[RunSummary]) -> list[Decision]:
    """Decide whether every run passed, which is the rule of pytest if no gate is set."""
    decisions = []
    for summary in summarize_agents(runs):
        failed = summary.count("failed")
        no_verdict = summary.n - failed - summary.count("passed")
        status: Status = "failed" if failed else "undecided" if no_verdict else "passed"
        passed = f"{summary.count('passed')} of {counted(summary.n, 'run')} passed"
        text = f"{passed}, {failed} failed, {no_verdict} without a verdict"
        if unjudged := summary.count(UNJUDGED):
            text += f", {unjudged} of them {UNJUDGED}; {_JUDGE}"
        decisions.append(Decision(summary.agent, "every case passes", status, text))
    return decisions


def read_gates_and_baselines(sources: Iterable[str], root: Path) -> list[GatesWithBaseline]:
    """Read the gates of each file or expression, with the baseline that it names; paths are relative to ``root``.

    UsageError or DocumentError for mistakes.
    """
    gates_of_sources = [read_gates(source, root) for source in sources]
    return [
        (gates, read_baseline(Path(gates.baseline)) if gates.baseline is not None else None)
        for gates in gates_of_sources
    ]


def refuse_zero_thresholds(
    sources: Iterable[GatesWithBaseline], settings: Mapping[str, tuple[SettingValue, str]], folder: Path | None = None
) -> None:
    """Raise UsageError for a threshold that every run reaches, if a gate counts the runs that reach the thresholds.

    ``settings`` are those of the session, with their sources; ``folder`` is its folder if it is stored.
    """
    gate = next((gate for gates, _ in sources for gate in gates.gates if gate.metric == "pass_rate"), None)
    judged = METRICS[:1] if settings.get("helpfulness", ("", ""))[0] == "none" else METRICS
    thresholds = {metric: settings.get(f"min-{metric}", (None, "")) for metric in judged}
    metric, source = next(((metric, source) for metric, (value, source) in thresholds.items() if value == 0), ("", ""))
    if gate is None or not metric:
        return
    where, resume = (f"{folder}: ", f"resume it with --toolemu-resume={folder} and ") if folder else ("", "")
    alternative = ", or leave helpfulness out with 'toolemu_helpfulness = none'" if metric == "helpfulness" else ""
    raise UsageError(
        f"{where}{source} is 0, which no run misses, so the gate '{gate.name}' would ignore {metric}; {resume}write 1, "
        f"2, or 3{alternative}"
    )


def runs_in_slice(runs: Sequence[RunSummary], gate: Gate) -> tuple[RunSummary, ...]:
    """Return the runs in the gate's slice."""
    remaining = tuple(runs)
    for dimension, value in gate.where.items():
        remaining = slices(remaining, dimension).get(value, ())
    return remaining


def _with_unplaced(decision: Decision, unplaced: int) -> Decision:
    """Return the decision on a slice, undecided if it would pass although the slice may lack runs."""
    if not unplaced or decision.status != "passed":
        return decision
    text = f"{decision.text}; {counted(unplaced, 'more case')} not run, and the session does not record their slices"
    return replace(decision, status="undecided", text=text)


def _decide_losses(gates: Gates, summary: AgentSummary) -> list[Decision]:
    """Decide the limits on runs without a verdict."""
    decisions = []
    counts: Counter[str] = Counter(run.outcome or "broken" for run in summary.runs)
    for outcome, limit in loss_limits(gates).items():
        if outcome in (NOT_RUN, UNJUDGED) and not counts[outcome]:
            continue  # only a budget, a deadline, or judging later leaves these
        status: Status = "undecided" if _exceeds(counts[outcome], summary.n, limit) else "passed"
        text = _share_lost(outcome, counts[outcome], summary.n, limit)
        if status == "undecided":
            text += f"; {_JUDGE if outcome == UNJUDGED else _RERUN}"
        decisions.append(Decision(summary.agent, f"{outcome} <= {limit:.12g}", status, text))
    return decisions


def excess_losses(gates: Gates, gate: Gate, runs: Sequence[RunSummary]) -> str:
    """Return which runs of the gate's slice lack a value for its metric, if there are too many; otherwise empty.

    A run that was judged, but not for this metric, counts as inconclusive.
    """
    value = GATE_METRICS[gate.metric].value
    outcomes = [run.outcome or "broken" for run in runs if value(run) is None]
    counts = Counter(outcome if outcome in ("broken", NOT_RUN, UNJUDGED) else "inconclusive" for outcome in outcomes)
    return "; ".join(
        _share_lost(outcome, counts[outcome], len(runs), limit)
        for outcome, limit in loss_limits(gates).items()
        if _exceeds(counts[outcome], len(runs), limit)
    )


def loss_limits(gates: Gates) -> dict[str, float]:
    """Return the largest share of runs that may have each outcome without a verdict.

    No run may be left to judge: it would cost only the judge, and the choice of what to judge could be biased.
    """
    return {
        "broken": gates.broken_at_most,
        "inconclusive": gates.inconclusive_at_most,
        NOT_RUN: gates.broken_at_most,
        UNJUDGED: 0.0,
    }


def _exceeds(count: int, n: int, limit: float) -> bool:
    return count > exact_fraction(limit) * n


def _share_lost(outcome: str, count: int, n: int, limit: float) -> str:
    return f"{count} of {counted(n, 'run')} ({count / n:.1%}) {outcome}, at most {limit:.1%} allowed"


def _decide_calibration(
    rule: CalibrationRequirement, summary: AgentSummary, reliabilities: Reliabilities
) -> list[Decision]:
    """Decide whether each judge is calibrated well enough; a case's checks are fixed rules and need no calibration."""
    return [
        Decision(summary.agent, check.name, "passed" if check.is_met else "undecided", check.text)
        for judge in judges_of(summary.runs)
        for check in calibration_checks(rule, judge, reliabilities)
    ]


def _decide_absolute(gate: Gate, runs: Sequence[RunSummary], incomplete: str) -> tuple[Status, str]:
    metric = GATE_METRICS[gate.metric]
    estimate, value = metric.estimate(runs), metric.exact(runs)
    if estimate is None or value is None:
        return "undecided", f"none of {counted(len(runs), 'run')} has a value; check 'where' and the errors above"
    met = is_met(gate, value)
    if gate.decide_by == "bound":
        bound = estimate.high if gate.at_most is not None else estimate.low
        if bound is None:
            text = f"{gate.metric} has no interval: {counted(estimate.n, 'run')} of one case; run more cases"
            return "undecided", text
        met = is_met(gate, bound)
    text = f"{gate.metric} {format_interval(estimate, metric.pattern)} over {counted(estimate.n, 'run')}"
    if missing := len(runs) - estimate.n:
        extremes = _extreme_values(metric, runs)
        low, high = (metric.format_value(float(extreme)) for extreme in extremes)
        text += f"; with the missing values ({missing}) at their extremes, it is {low} to {high}"
        # A failure stands if even the most favorable missing values could not turn it into a pass.
        if incomplete and (met or any(is_met(gate, extreme) for extreme in extremes)):
            return "undecided", f"{text}; {incomplete}: too many runs are missing to decide"
    return ("passed" if met else "failed"), text


def is_met(gate: Gate, value: float | Fraction) -> bool:
    """Return whether a value of the metric meets the limit of an absolute gate."""
    limit = exact_fraction(gate.limit)
    return value <= limit if gate.at_most is not None else value >= limit


def _extreme_values(metric: GateMetric, runs: Sequence[RunSummary]) -> tuple[Fraction, Fraction]:
    """Return the metric with every missing value at the lowest end of its range, and at the highest."""
    values = [metric.value(run) for run in runs]
    total = sum(value for value in values if value is not None)
    missing = sum(value is None for value in values)
    return Fraction(total, len(values)), Fraction(total + missing * metric.span, len(values))


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


_WHOLE_SESSION: Final = "is decided only after all cases"


def late_gates(gates: Sequence[GatesWithBaseline], planned: Sequence[PlannedRuns]) -> list[str]:
    """Return why gates cannot be decided before all cases have run; empty if every gate can."""
    reasons = []
    has_clusters = any(len(case.items) > 1 for case in planned) or (
        len({case.cluster for case in planned}) < len({case.case for case in planned})
    )
    for gate in (gate for source, _ in gates for gate in source.gates):
        if not any(case.is_in_slice(gate) for case in planned):
            reasons.append(f"{gate.name} is never decided: no planned case is in its slice")
        elif gate.is_relative:
            reasons.append(f"{gate.name} {_WHOLE_SESSION}: it compares with a baseline")
        elif gate.decide_by == "bound" and (has_clusters or not GATE_METRICS[gate.metric].percent):
            reasons.append(f"{gate.name} {_WHOLE_SESSION}: the interval depends on more than a count of single runs")
    return reasons


class EarlyDecisions:
    """The gates of a session, which see its cases in the order in which they were planned, and that is random.

    With ``error`` 0, a gate is decided when no remaining case can change it. Otherwise the probability that any gate is
    ever decided differently from the full session is at most ``error``, over the random order of the cases.
    """

    def __init__(self, gates: Sequence[GatesWithBaseline], planned: Sequence[PlannedRuns], error: float) -> None:
        self.planned_count = sum(len(case.items) for case in planned)
        self._error = error
        of_agents = [
            [case for case in planned if case.agent == agent] for agent in dict.fromkeys(case.agent for case in planned)
        ]
        error_of_each = error / max(1, sum(len(source.gates) for source, _ in gates) * len(of_agents))
        # Gates of two sources may have the same name, with other limits on lost runs.
        self._watched = [
            [WatchedGate(source, gate, cases, error_of_each) for gate in source.gates for cases in of_agents]
            for source, _ in gates
        ]

    def update(self, runs: Mapping[str, RunSummary]) -> bool:
        """Return whether every gate is decided by these runs, by node ID, of which later calls have more."""
        are_decided = [watched.update(runs) for of_source in self._watched for watched in of_source]
        return all(are_decided)

    def applied(self, decisions: Sequence[Sequence[Decision]], runs: Mapping[str, RunSummary]) -> list[list[Decision]]:
        """Return the decisions of each source on these runs, those on gates as they were decided early.

        The runs include those that were in flight at the decision.
        """
        applied = []
        for of_source, watched_gates in zip(decisions, self._watched, strict=True):
            early = {(watched.agent, watched.gate.name): watched for watched in watched_gates}
            applied.append(
                [
                    early[key].applied(decision, runs, self._error)
                    if (key := (decision.agent, decision.gate)) in early
                    else decision
                    for decision in of_source
                ]
            )
        return applied


@dataclass(frozen=True)
class PlannedRuns:
    """A case with one agent: the node IDs of its trials, and the values of its slices.

    A case and its variants have the same ``cluster``.
    """

    case: str
    cluster: str
    agent: str
    items: tuple[str, ...]
    slices: Mapping[Dimension, tuple[str, ...]]

    def runs(self, finished: Mapping[str, RunSummary]) -> list[RunSummary]:
        """Return the runs of all trials; empty if some have not finished yet."""
        runs = [finished[item] for item in self.items if item in finished]
        return runs if len(runs) == len(self.items) else []

    def is_in_slice(self, gate: Gate) -> bool:
        """Return whether the case belongs to the slice of a gate."""
        return all(value in self.slices[dimension] for dimension, value in gate.where.items())


class WatchedGate:
    """One gate for one agent. Values are counted so that higher is worse."""

    def __init__(self, source: Gates, gate: Gate, planned: Sequence[PlannedRuns], error: float) -> None:
        self.gate = gate
        self.agent = planned[0].agent
        self._metric = GATE_METRICS[gate.metric]
        self._source = source
        self._planned = planned
        self._cases = [case for case in planned if case.is_in_slice(gate)]
        self._n = sum(len(case.items) for case in self._cases)
        self._next = 0
        width = self._metric.span * max((len(case.items) for case in self._cases), default=1)
        self._limit = self._largest_passing_total()
        self._test = SequentialTotalTest(len(self._cases), width, self._limit, error)

    def update(self, runs: Mapping[str, RunSummary]) -> bool:
        """Add the next cases all of whose runs have finished; return whether the gate is decided."""
        while self._next < len(self._cases):
            finished = self._cases[self._next].runs(runs)
            # Cases that have finished already wait for this one: the test needs values in the planned order, which is
            # random, and the cases that end first are not a random sample.
            if not finished:
                break
            # An agent that the project's fixtures provide has its name only now.
            self.agent = finished[0].agent
            bounds = [self._bounds(run) for run in finished]
            self._test.add(sum(low for low, _ in bounds), sum(high for _, high in bounds))
            self._next += 1
        if self._test.side is None:
            return False
        return not loses_too_many(self._source, self.gate, self._planned, runs)

    def applied(self, decision: Decision, runs: Mapping[str, RunSummary], error: float) -> Decision:
        """Return the decision on these runs as this gate has decided it for the full session.

        Too many runs without a value among those that were in flight leave it undecided.
        """
        if decision.status == "undecided":
            return decision
        bounds = [self._bounds(runs.get(item)) for case in self._cases for item in case.items]
        lowest, highest = sum(low for low, _ in bounds), sum(high for _, high in bounds)
        passes = self._test.side == "at most"
        if lowest > self._limit or highest <= self._limit:  # certain, whatever was probable at the decision
            passes = highest <= self._limit
        extremes = f"all {counted(self._n, 'run')} could give {self._mean(lowest)} to {self._mean(highest)}"
        text = f"{decision.text}; {early_basis(error)}: {extremes}"
        return replace(decision, status="passed" if passes else "failed", text=text)

    def _largest_passing_total(self) -> int:
        """Return the largest total of values, counted so that higher is worse, with which the gate passes."""
        span, n = self._metric.span, self._n
        if self.gate.decide_by == "bound":
            return _largest(n, partial(_bound_is_met, self.gate, n))
        limit = exact_fraction(self.gate.limit)
        return math.floor(n * (limit if self._metric.worse == 1 else span - limit))

    def _bounds(self, run: RunSummary | None) -> tuple[int, int]:
        """Return the lowest and the highest value that the run may have, counted so that higher is worse."""
        value, span = None if run is None else self._metric.value(run), self._metric.span
        if value is None:  # not run, or no verdict: the decision must hold whatever it would have been
            return 0, span
        worse = value if self._metric.worse == 1 else span - value
        return worse, worse

    def _mean(self, total: int) -> str:
        mean = Fraction(total, self._n)
        return self._metric.format_value(float(mean if self._metric.worse == 1 else self._metric.span - mean))


def early_basis(error: float) -> str:
    """Return that a gate was decided early, and why that stands."""
    reason = f"with an error probability of at most {error:g}" if error else "as no other run can change it"
    return f"decided early, {reason}"


def runs_of(cases: Sequence[PlannedRuns], finished: Mapping[str, RunSummary]) -> list[RunSummary]:
    """Return the finished runs of these cases, also of those that lack some trials."""
    return [finished[item] for case in cases for item in case.items if item in finished]


def loses_too_many(gates: Gates, gate: Gate, cases: Sequence[PlannedRuns], runs: Mapping[str, RunSummary]) -> bool:
    """Return whether too many of the runs lack a verdict, or those of the gate's slice a value for its metric.

    The full session may then be undecided; more of its cases may have a value.
    """
    outcomes: list[str] = [run.outcome or "broken" for run in runs_of(cases, runs)]
    limits = loss_limits(gates).items()
    if any(outcomes.count(outcome) > exact_fraction(limit) * len(outcomes) for outcome, limit in limits):
        return True
    return bool(excess_losses(gates, gate, runs_of([case for case in cases if case.is_in_slice(gate)], runs)))


def _bound_is_met(gate: Gate, n: int, total: int) -> bool:
    """Return whether the end of the interval meets the limit if ``total`` of ``n`` single runs are bad."""
    bad = GATE_METRICS[gate.metric].worse == 1
    estimate = share_estimate([[float((number < total) == bad)] for number in range(n)])
    bound = None if estimate is None else estimate.high if gate.at_most is not None else estimate.low
    return bound is not None and is_met(gate, bound)


def _largest(n: int, holds: Callable[[int], bool]) -> int:
    """Return the largest number from 0 to ``n`` for which a condition holds that holds for all below; -1 if none."""
    low, high = -1, n
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low
