"""Ends a session before all of its cases have run, because every gate is decided."""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence

import pytest

from pytest_toolemu.analysis.gates.early_decision import EarlyDecisions, PlannedRuns, late_gates
from pytest_toolemu.analysis.gates.gate_decision import Decision, GatesWithBaseline
from pytest_toolemu.analysis.run_summary import DIMENSIONS, slice_values
from pytest_toolemu.formats.counted import counted
from pytest_toolemu.plugin.services import Services
from pytest_toolemu.plugin.session import RESOLVED_CASE, TerminalNote
from pytest_toolemu.sessions.manifest_records import PlannedCase
from pytest_toolemu.sessions.stored_decision import planned_run


def shuffle(items: list[pytest.Item], seed: int) -> None:
    """Order the cases at random, all trials of one together. The order depends on the seed and the set of cases."""
    paths = sorted({str(item.stash[RESOLVED_CASE].path) for item in items if RESOLVED_CASE in item.stash})
    random.Random(f"order {seed}").shuffle(paths)
    position = {path: number for number, path in enumerate(paths)}
    cases = [item for item in items if RESOLVED_CASE in item.stash]
    cases.sort(key=lambda item: position[str(item.stash[RESOLVED_CASE].path)])
    items[:] = [item for item in items if RESOLVED_CASE not in item.stash] + cases


class EarlyStop:
    """Follows the runs of a session, and lets the coordinator start no more cases when every gate is decided."""

    def __init__(self, services: Services, gates: Sequence[GatesWithBaseline], error: float) -> None:
        self._services = services
        self._session = services.session
        self._gates = gates
        self._error = error
        self._is_stopped = False

    def look(self) -> None:
        """Look at the runs so far, unless the session is being ended already."""
        if self._is_stopped or self._session.stopped_early or self._decisions is None:
            return
        if self._decisions.update(self._session.run_summaries):
            is_incomplete = len(self._session.run_summaries) < self._decisions.planned_count
            if is_incomplete and self._services.transport is not None:
                self._is_stopped = True
                reason = "every gate is decided"
                self._session.stopped_early = reason
                self._services.transport.update(lambda coordinator: coordinator.conclude(reason))

    def applied(self, decisions: list[list[Decision]]) -> list[list[Decision]]:
        """Return the decisions of each source; if the session was stopped, those on gates as they were decided then."""
        if not self._is_stopped or self._decisions is None:
            return decisions
        runs, planned = len(self._session.run_summaries), counted(self._decisions.planned_count, "run")
        if runs == self._decisions.planned_count:  # the cases in flight were the last ones
            self._session.stopped_early = ""
            return decisions
        self._session.stopped_early = (
            f"stopped after {runs} of {planned}, when every gate was decided; run the rest with --toolemu-resume"
        )
        self._session.notes.append(TerminalNote(self._session.stopped_early, "yellow"))
        return self._decisions.applied(decisions, self._session.run_summaries)

    @functools.cached_property
    def _decisions(self) -> EarlyDecisions | None:
        """The gates with the planned runs; None if some gate cannot be decided early."""
        # An xdist controller collects nothing; its workers have stored the plan.
        plan = self._session.case_plan or self._services.files.store.manifest().planned
        planned = planned_runs(plan, self._session.nodeids)
        transport, decisions = self._services.transport, EarlyDecisions(self._gates, planned, self._error)
        reasons = late_gates(self._gates, planned)
        if transport is None or transport.read(lambda coordinator: coordinator.total) != decisions.planned_count:
            reasons = ["Python tests run some of its cases"]
        if reasons:
            text = f"the session cannot stop when its gates are decided: {'; '.join(reasons)}"
            self._session.notes.append(TerminalNote(text, "yellow"))
            return None
        return decisions


def planned_runs(plan: dict[str, PlannedCase], nodeids: Sequence[str]) -> list[PlannedRuns]:
    """Return the cases of a plan for each agent, in the order of their items."""
    position = {nodeid: number for number, nodeid in enumerate(nodeids)}
    planned = []
    for name, case in plan.items():
        run = planned_run(name, case)
        values = {dimension: slice_values(run, dimension) for dimension in DIMENSIONS}
        for agent in dict.fromkeys(item.agent for item in case.items.values()):
            items = [nodeid for nodeid, item in case.items.items() if item.agent == agent]
            planned.append(
                PlannedRuns(name, run.cluster, agent, tuple(sorted(items, key=position.__getitem__)), values)
            )
    return sorted(planned, key=lambda case: position[case.items[0]])
