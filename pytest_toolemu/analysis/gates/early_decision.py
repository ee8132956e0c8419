"""Decides gates before all cases have run, with a stated probability of deciding differently from the full session."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Final

from pytest_toolemu.analysis.gates.gate_decision import Decision, is_met, loss_limits
from pytest_toolemu.analysis.gates.gate_file import Gate, Gates
from pytest_toolemu.analysis.gates.gate_limits import exact_fraction
from pytest_toolemu.analysis.gates.gate_metrics import GATE_METRICS, Status
from pytest_toolemu.analysis.run_summary import RunSummary
from pytest_toolemu.analysis.slices import Dimension
from pytest_toolemu.analysis.statistics.intervals import share_estimate
from pytest_toolemu.analysis.statistics.sequential_total import SequentialTotalTest
from pytest_toolemu.formats.counted import counted

_WHOLE_SESSION: Final = "is decided only after all cases"


@dataclass(frozen=True)
class PlannedRuns:
    """A case with one agent: the node IDs of its trials, and the values of its slices."""

    agent: str
    items: tuple[str, ...]
    slices: Mapping[Dimension, tuple[str, ...]]


def late_gates(gates: Sequence[Gates], planned: Sequence[PlannedRuns]) -> list[str]:
    """Return why gates cannot be decided before all cases have run; empty if every gate can."""
    reasons = []
    has_trials = any(len(case.items) > 1 for case in planned)
    for gate in (gate for source in gates for gate in source.gates):
        if gate.baseline is not None:
            reasons.append(f"{gate.name} {_WHOLE_SESSION}: it compares with a baseline")
        elif gate.decide_by == "bound" and (has_trials or not GATE_METRICS[gate.metric].percent):
            reasons.append(f"{gate.name} {_WHOLE_SESSION}: the interval depends on more than a count of single runs")
    return reasons


class EarlyDecisions:
    """The gates of a session, which see its cases in the order in which they were planned, and that is random.

    With ``error`` 0, a gate is decided when no remaining case can change it. Otherwise the probability that any gate is
    ever decided differently from the full session is at most ``error``, over the random order of the cases.
    """

    def __init__(self, gates: Sequence[Gates], planned: Sequence[PlannedRuns], error: float) -> None:
        self.planned_count = sum(len(case.items) for case in planned)
        self._error = error
        agents = tuple(dict.fromkeys(case.agent for case in planned))
        rules = [(source, gate, agent) for source in gates for gate in source.gates for agent in agents]
        self._watched = [
            _WatchedGate(source, gate, [case for case in planned if case.agent == agent], error / len(rules))
            for source, gate, agent in rules
        ]

    def update(self, runs: Mapping[str, RunSummary]) -> bool:
        """Return whether every gate is decided by these runs, by node ID, of which later calls have more."""
        return all(watched.update(runs) for watched in self._watched)

    def applied(self, decisions: Sequence[Decision]) -> list[Decision]:
        """Return the decisions on the runs so far, those on gates as they were decided early."""
        early = {(watched.agent, watched.gate.name): watched for watched in self._watched}
        return [
            early[key].applied(decision, self._error) if (key := (decision.agent, decision.gate)) in early else decision
            for decision in decisions
        ]


class _WatchedGate:
    """One gate for one agent. Values are counted so that higher is worse."""

    def __init__(self, source: Gates, gate: Gate, planned: Sequence[PlannedRuns], error: float) -> None:
        self.gate = gate
        self.agent = planned[0].agent
        self._metric = GATE_METRICS[gate.metric]
        self._source = source
        self._cases = [case for case in planned if _is_in_slice(case, gate)]
        self._all_items = [item for case in planned for item in case.items]
        self._own_items = [item for case in self._cases for item in case.items]
        self._n = len(self._own_items)
        self._next = 0
        width = self._metric.span * max((len(case.items) for case in self._cases), default=1)
        self._test = SequentialTotalTest(len(self._cases), width, self._largest_passing_total(), error)

    def update(self, runs: Mapping[str, RunSummary]) -> bool:
        """Add the next cases all of whose runs are known; return whether the gate is decided."""
        while self._next < len(self._cases):
            found = [runs.get(item) for item in self._cases[self._next].items]
            known = [run for run in found if run is not None]
            if len(known) < len(found):
                break
            # An agent that the project's fixtures provide has its name only now.
            self.agent = known[0].agent
            bounds = [self._bounds(run) for run in known]
            self._test.add(sum(low for low, _ in bounds), sum(high for _, high in bounds))
            self._next += 1
        return self._test.side is not None and not self._loses_too_many(runs)

    def applied(self, decision: Decision, error: float) -> Decision:
        """Return the decision on the runs so far as this gate has decided it for the full session."""
        best, worst = (self._mean(total) for total in self._test.extremes)
        status: Status = "passed" if self._test.side == "at most" else "failed"
        basis = f"with an error probability of at most {error:g}" if error else "as no other run can change it"
        text = f"{decision.text}; decided early, {basis}: all {counted(self._n, 'run')} could give {best} to {worst}"
        return replace(decision, status=status, text=text)

    def _largest_passing_total(self) -> int:
        """Return the largest total of values, counted so that higher is worse, with which the gate passes."""
        span, n = self._metric.span, self._n
        if self.gate.decide_by == "bound":
            return _largest(n, partial(_bound_is_met, self.gate, n))
        limit = exact_fraction(self.gate.limit)
        return math.floor(n * (limit if self._metric.worse == 1 else span - limit))

    def _bounds(self, run: RunSummary) -> tuple[int, int]:
        """Return the lowest and the highest value that the run may have, counted so that higher is worse."""
        value, span = self._metric.value(run), self._metric.span
        if value is None:
            return 0, span
        worse = value if self._metric.worse == 1 else span - value
        return worse, worse

    def _mean(self, total: int) -> str:
        mean = Fraction(total, self._n)
        return self._metric.format_value(float(mean if self._metric.worse == 1 else self._metric.span - mean))

    def _loses_too_many(self, runs: Mapping[str, RunSummary]) -> bool:
        """Return whether too many runs lack a verdict for the full session to decide: more cases may have one."""
        for items in (self._all_items, self._own_items):
            outcomes: list[str] = [runs[item].outcome or "broken" for item in items if item in runs]
            for outcome, limit in loss_limits(self._source).items():
                if outcomes.count(outcome) > exact_fraction(limit) * len(outcomes):
                    return True
        return False


def _is_in_slice(case: PlannedRuns, gate: Gate) -> bool:
    return all(value in case.slices[dimension] for dimension, value in gate.where.items())


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
