"""The gates of a file that compare with a baseline, followed over the cases of a session.

A gate is decided when it would be decided alike with all remaining cases at their best and at their worst. What these
are is bounded by the cases seen so far. The gates of a file are decided together, as they share a significance level.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Final

from pytest_toolemu.analysis.agent_summary import AgentSummary
from pytest_toolemu.analysis.gates.baseline import AgentBaseline, Baseline
from pytest_toolemu.analysis.gates.baseline_comparison import (
    AgentComparison,
    GateComparison,
    Pairs,
    decide_comparisons,
    runs_of_baseline,
)
from pytest_toolemu.analysis.gates.gate_decision import Decision
from pytest_toolemu.analysis.gates.gate_file import Gate, Gates
from pytest_toolemu.analysis.gates.gate_metrics import GATE_METRICS, Status
from pytest_toolemu.analysis.gates.watched_gate import PlannedRuns, early_basis, loses_too_many, runs_of
from pytest_toolemu.analysis.run_summary import RunSummary
from pytest_toolemu.analysis.statistics.finite_population import LargestValues
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.counted import counted

_LOOKS: Final = 64
"""How often to look, spread evenly over the cases: an interval of mean scores takes some milliseconds to compute."""

_LOST_IN_FLIGHT: Final = "decided early, but too many of the runs that were in flight at the decision lack a verdict"


class WatchedComparisons:
    """The relative gates of one file for all agents of a session."""

    def __init__(
        self, source: Gates, baseline: Baseline, of_agents: Sequence[Sequence[PlannedRuns]], error: float
    ) -> None:
        relative = [gate for gate in source.gates if gate.baseline is not None]
        self.members = [
            WatchedComparison(source, baseline, gate, cases, error) for gate in relative for cases in of_agents
        ]
        self._level = source.level
        self._next_look = 0

    def update(self, runs: Mapping[str, RunSummary]) -> bool:
        """Add the next cases all of whose runs are known; return whether every gate is decided."""
        if self._is_decided:
            return True
        complete = sum(member.update(runs) for member in self.members)
        planned = sum(member.planned for member in self.members)
        if complete == planned or complete >= self._next_look:
            self._next_look = complete + max(1, planned // _LOOKS)
            self._look(runs)
        return self._is_decided

    @property
    def _is_decided(self) -> bool:
        return all(member.status is not None for member in self.members)

    def _look(self, runs: Mapping[str, RunSummary]) -> None:
        if any(not member.is_started for member in self.members):
            return
        are_lost = {False, any(member.has_lost for member in self.members)}
        possible = [
            decide_comparisons(
                self._level, [member.completed(at_worst=at_worst, with_lost=not lost) for member in self.members]
            )
            for at_worst in (False, True)
            for lost in are_lost
        ]
        decided: dict[WatchedComparison, Status] = {}
        for member, *decisions in zip(self.members, *possible, strict=True):
            (status, *others) = {status for status, _ in decisions}
            if member.status is None and not others and status != "undecided":
                decided[member] = status
        if not decided:
            return
        so_far = [comparison for member in self.members if (comparison := member.so_far(runs)) is not None]
        if len(so_far) < len(self.members) or any(comparison.problem for comparison in so_far):
            return  # the full session may be undecided on these gates
        for member, status in decided.items():
            member.status = status


class WatchedComparison:
    """One relative gate for one agent.

    Changes are whole numbers, counted so that higher is worse: ``self._unit`` of them are a change of the metric by 1.
    """

    def __init__(
        self, source: Gates, baseline: Baseline, gate: Gate, planned: Sequence[PlannedRuns], error: float
    ) -> None:
        self.gate = gate
        self.agent = planned[0].agent
        self.status: Status | None = None
        self._metric = GATE_METRICS[gate.metric]
        self._source, self._baseline, self._all, self._error = source, baseline, planned, error
        self._cases = [case for case in planned if case.is_in_slice(gate)]
        self._results: AgentBaseline | None = None
        self._next = 0
        self._lost: set[int] = set()

    @property
    def is_started(self) -> bool:
        """Whether it is known which cases are compared."""
        return self._results is not None

    @property
    def has_lost(self) -> bool:
        """Whether a case so far has no value, so that the full session leaves it out."""
        return bool(self._lost)

    @property
    def planned(self) -> int:
        """The number of cases that the gate compares."""
        return len(self._cases)

    def update(self, runs: Mapping[str, RunSummary]) -> int:
        """Add the next cases all of whose runs are known; return how many cases have been added so far."""
        if self._results is None and (known := next(iter(runs_of(self._cases, runs)), None)):
            self._start(known.agent)
        while self._results is not None and self._next < self.planned:
            if not (trials := self._cases[self._next].runs(runs)):
                break
            for at_worst, largest in self._largest.items():
                change = self._change(self._before[self._next], trials, at_worst=at_worst)
                largest.add(change if at_worst else -change)
            if not self._values(trials):
                self._lost.add(self._next)
            self._next += 1
        return self._next

    def so_far(self, runs: Mapping[str, RunSummary]) -> GateComparison | None:
        """Return the comparison of the cases that have run; None if the full session may be undecided."""
        results = self._results
        if results is None or loses_too_many(self._source, self.gate, self._all, runs):
            return None
        if "cases" not in self._source.allow and results.cases.keys() != {case.case for case in self._all}:
            return None
        done = [run for case in self._all for run in case.runs(runs)]
        cases = {name: results.cases[name] for name in {run.case for run in done} & results.cases.keys()}
        part = results.model_copy(update={"cases": cases})
        baseline = self._baseline.model_copy(update={"agents": {self.agent: part}})
        comparison = AgentComparison(self._source, AgentSummary(self.agent, tuple(done)), baseline)
        return comparison.of(self.gate, [run for case in self._cases for run in case.runs(runs)])

    def completed(self, *, at_worst: bool, with_lost: bool) -> GateComparison:
        """Return the comparison of all cases, with those that have not run at their best or at their worst.

        So are, ``with_lost``, those without a value; otherwise they are left out.
        """
        pairs: Pairs = []
        changes = self._completed_changes(at_worst=at_worst)
        for number, (case, before, change) in enumerate(zip(self._cases, self._before, changes, strict=True)):
            if with_lost or number not in self._lost:
                after = sum(before) / len(before) + self._metric.worse * change / self._unit
                pairs.append(([float(value) for value in before], [after] * len(case.items)))
        return GateComparison(self.gate, pairs, lost=0, problem="" if pairs else "no case has a value")

    def applied(self, decision: Decision, runs: Mapping[str, RunSummary], error: float) -> Decision:
        """Return the decision on these runs as this gate has decided it for the full session.

        Too many runs without a value among those that were in flight leave it undecided.
        """
        if self.status is None:
            return decision
        self.update(runs)
        comparison = self.so_far(runs)
        if comparison is None or comparison.problem:
            return replace(decision, status="undecided", text=_LOST_IN_FLIGHT)
        ((_, text),) = decide_comparisons(self._source.level, [comparison])
        return replace(decision, status=self.status, text=f"{text}; {early_basis(error)}: {self._extremes()}")

    def _extremes(self) -> str:
        """Return on how many cases the full session could be worse and better, by the runs so far."""
        best, worst = (self._completed_changes(at_worst=at_worst) for at_worst in (False, True))
        worse = [sum(change > 0 for change in changes) for changes in (best, worst)]
        better = [sum(change < 0 for change in changes) for changes in (worst, best)]
        return (
            f"all {counted(self.planned, 'case')} could be worse on {worse[0]} to {worse[1]} "
            f"and better on {better[0]} to {better[1]}"
        )

    def _start(self, agent: str) -> None:
        """Take the cases that have values in the baseline. An agent of fixtures has its name only now."""
        self.agent = agent
        try:
            self._results = self._baseline.results_of(agent)
        except UsageError:
            return  # the full session will say so
        before = {case: self._values(runs) for case, runs in runs_of_baseline(self._results).items()}
        self._cases = [case for case in self._cases if before.get(case.case)]
        self._before = [before[case.case] for case in self._cases]
        self._unit = math.lcm(*(len(values) for values in self._before), *(len(case.items) for case in self._cases))
        ends = [sorted(self._from_baseline(old, end) for end in (0, self._metric.span)) for old in self._before]
        self._largest = {
            True: LargestValues([(low, high) for low, high in ends], self._error / 2),
            False: LargestValues([(-high, -low) for low, high in ends], self._error / 2),
        }

    def _values(self, runs: Sequence[RunSummary]) -> list[int]:
        return [value for run in runs if (value := self._metric.value(run)) is not None]

    def _change(self, before: Sequence[int], trials: Sequence[RunSummary], *, at_worst: bool) -> int:
        """Return the change of a case, with missing values at their best or at their worst."""
        missing = self._metric.span if at_worst == (self._metric.worse == 1) else 0
        values = [missing if (value := self._metric.value(run)) is None else value for run in trials]
        return self._from_baseline(before, Fraction(sum(values), len(values)))

    def _from_baseline(self, before: Sequence[int], mean: Fraction | int) -> int:
        return int(self._metric.worse * self._unit * (mean - Fraction(sum(before), len(before))))

    def _completed_changes(self, *, at_worst: bool) -> list[int]:
        changes = self._largest[at_worst].completed()
        return changes if at_worst else [-change for change in changes]
