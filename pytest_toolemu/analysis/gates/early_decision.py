"""Decides gates before all cases have run, with a stated probability of deciding differently from the full session."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Final

from pytest_toolemu.analysis.gates.gate_decision import Decision, GatesWithBaseline, excess_losses, is_met, loss_limits
from pytest_toolemu.analysis.gates.gate_file import Gate, Gates, exact_fraction
from pytest_toolemu.analysis.metrics import GATE_METRICS
from pytest_toolemu.analysis.run_summary import Dimension, RunSummary
from pytest_toolemu.analysis.statistics.hypothesis_tests import SequentialTotalTest
from pytest_toolemu.analysis.statistics.intervals import share_estimate
from pytest_toolemu.formats.text import counted

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
        elif gate.baseline is not None:
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
