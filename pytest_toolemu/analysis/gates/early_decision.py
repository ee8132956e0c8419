"""Decides gates before all cases have run, with a stated probability of deciding differently from the full session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pytest_toolemu.analysis.gates.gate_decision import Decision, GatesWithBaseline
from pytest_toolemu.analysis.gates.gate_metrics import GATE_METRICS
from pytest_toolemu.analysis.gates.watched_comparison import WatchedComparison, WatchedComparisons
from pytest_toolemu.analysis.gates.watched_gate import PlannedRuns, WatchedGate
from pytest_toolemu.analysis.run_summary import RunSummary

_WHOLE_SESSION: Final = "is decided only after all cases"


def late_gates(gates: Sequence[GatesWithBaseline], planned: Sequence[PlannedRuns]) -> list[str]:
    """Return why gates cannot be decided before all cases have run; empty if every gate can."""
    reasons = []
    has_trials = any(len(case.items) > 1 for case in planned)
    has_variants = len({case.cluster for case in planned}) < len({case.case for case in planned})
    for gate in (gate for source, _ in gates for gate in source.gates):
        if not any(case.is_in_slice(gate) for case in planned):
            reasons.append(f"{gate.name} is never decided: no planned case is in its slice")
        elif gate.baseline is not None and has_variants:
            reasons.append(f"{gate.name} {_WHOLE_SESSION}: a case and its variants count as one pair")
        elif gate.decide_by == "bound" and (has_trials or has_variants or not GATE_METRICS[gate.metric].percent):
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
        self._sources = [_WatchedSource(source, of_agents, error_of_each) for source in gates]

    def update(self, runs: Mapping[str, RunSummary]) -> bool:
        """Return whether every gate is decided by these runs, by node ID, of which later calls have more."""
        are_decided = [source.update(runs) for source in self._sources]
        return all(are_decided)

    def applied(self, decisions: Sequence[Sequence[Decision]], runs: Mapping[str, RunSummary]) -> list[list[Decision]]:
        """Return the decisions of each source on these runs, those on gates as they were decided early.

        The runs include those that were in flight at the decision.
        """
        return [
            source.applied(of_source, runs, self._error)
            for source, of_source in zip(self._sources, decisions, strict=True)
        ]


class _WatchedSource:
    """The gates of one source. Those of another may have the same names, with another baseline or other limits."""

    def __init__(self, source: GatesWithBaseline, of_agents: Sequence[Sequence[PlannedRuns]], error: float) -> None:
        gates, baseline = source
        self._absolute = [
            WatchedGate(gates, gate, cases, error)
            for gate in gates.gates
            if gate.baseline is None
            for cases in of_agents
        ]
        self._relative = None if baseline is None else WatchedComparisons(gates, baseline, of_agents, error)

    def update(self, runs: Mapping[str, RunSummary]) -> bool:
        """Return whether every gate of the source is decided by these runs."""
        are_met = [watched.update(runs) for watched in self._absolute]
        is_compared = self._relative is None or self._relative.update(runs)
        return all(are_met) and is_compared

    def applied(self, decisions: Sequence[Decision], runs: Mapping[str, RunSummary], error: float) -> list[Decision]:
        """Return the decisions on these runs, those on gates as they were decided early."""
        members: list[WatchedGate | WatchedComparison] = [*self._absolute]
        if self._relative is not None:
            members += self._relative.members
        early = {(watched.agent, watched.gate.name): watched for watched in members}
        return [
            early[key].applied(decision, runs, error) if (key := (decision.agent, decision.gate)) in early else decision
            for decision in decisions
        ]
