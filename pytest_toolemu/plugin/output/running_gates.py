"""What gates need while a session runs: judges that are calibrated well enough, and whether every gate is decided."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, get_args

from pytest_toolemu.analysis.calibration.calibration_file import judge_reliabilities
from pytest_toolemu.analysis.gates.early_decision import EarlyDecisions, PlannedRuns, late_gates
from pytest_toolemu.analysis.gates.gate_decision import Decision, GatesWithBaseline, check_added_error, format_limit
from pytest_toolemu.analysis.gates.gate_file import Gates
from pytest_toolemu.analysis.run_summary import DIMENSIONS, slice_values
from pytest_toolemu.components import Components
from pytest_toolemu.core.case_vocabulary import Metric
from pytest_toolemu.core.identity import ComponentName, component_name, identity_of
from pytest_toolemu.core.verdict import CASCADE_KIND
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.counted import counted
from pytest_toolemu.plugin.collection.item_agents import agent_configs
from pytest_toolemu.plugin.session import TerminalNote, ToolemuSession
from pytest_toolemu.scheduling.transport import Transport
from pytest_toolemu.sessions.manifest_records import PlannedCase
from pytest_toolemu.sessions.stored_decision import planned_run
from pytest_toolemu.settings import Settings, cascade_names

if TYPE_CHECKING:
    from pytest_toolemu.plugin.process import SessionProcess


def check_cascades(process: SessionProcess, gates: Iterable[Gates]) -> None:
    """Raise UsageError for a cascade whose calibration does not show the added error that the gates require.

    Cascades of fixtures are known only after the runs; the gates decide on these.
    """
    rules = [each.calibration for each in gates if each.calibration and each.calibration.added_error_at_most]
    if not rules:
        return
    session, components = process.session, process.runner.components
    reliabilities = judge_reliabilities(session.calibrations)
    for judge in dict.fromkeys(_cascades(session.settings, components)):
        reliability = reliabilities.get(str(judge))
        for rule in rules:
            limit = rule.added_error_at_most or 0.0
            check = check_added_error(rule, limit, judge, reliability)
            if check.is_met:
                continue
            if reliability is None:
                problem = f"{check.text}, and pass its file with --toolemu-calibration"
            else:
                remedy = "calibrate it with more labels, or name only its strong judge with --toolemu-evaluator"
                problem = f"{judge}: {check.text}; {remedy}"
            raise UsageError(f"the gates limit the added error of cascades to {format_limit(limit)}, but {problem}")


def _cascades(settings: Settings, components: Components) -> Iterator[ComponentName]:
    """Yield the names of the cascades that the settings name, as they are in runs and calibrations."""
    metrics: tuple[Metric, ...] = get_args(Metric)
    for config in agent_configs(settings) or (None,):
        if any(map(cascade_names, components.names.evaluators(config))):
            for metric in metrics:
                for evaluator in components.evaluators(config, metric):
                    name = component_name(identity_of(evaluator, in_dialogue=settings.turns > 1))
                    if name.kind == CASCADE_KIND:
                        yield name


class EarlyStop:
    """Follows the runs of a session, and lets the coordinator start no more cases when every gate is decided."""

    def __init__(
        self, session: ToolemuSession, transport: Transport, gates: Sequence[GatesWithBaseline], error: float
    ) -> None:
        self._session = session
        self._transport = transport
        self._gates = gates
        self._error = error
        self._is_stopped = False

    def look(self) -> None:
        """Look at the runs so far, unless the session is being ended already."""
        if self._is_stopped or self._session.stopped_early or self._decisions is None:
            return
        if self._decisions.update(self._session.run_summaries):
            is_incomplete = len(self._session.run_summaries) < self._decisions.planned_count
            if is_incomplete:
                self._is_stopped = True
                reason = "every gate is decided"
                self._session.stopped_early = reason
                self._transport.update(lambda coordinator: coordinator.conclude(reason))

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
        plan = self._session.case_plan or self._session.store.manifest().planned
        planned = planned_runs(plan, self._session.nodeids)
        decisions = EarlyDecisions(self._gates, planned, self._error)
        reasons = late_gates(self._gates, planned)
        if self._transport.read(lambda coordinator: coordinator.total) != decisions.planned_count:
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
