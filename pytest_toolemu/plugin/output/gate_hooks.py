"""Hooks of sessions with gates: after the last case, each gate is decided and reported like a test."""

from __future__ import annotations

import functools
from collections.abc import Generator, Iterable, Sequence
from typing import TYPE_CHECKING, get_args

import pytest

from pytest_toolemu.analysis.calibration.calibration_file import judge_reliabilities
from pytest_toolemu.analysis.gates.gate_decision import (
    Decision,
    EarlyDecisions,
    GatesWithBaseline,
    PlannedRuns,
    check_added_error,
    late_gates,
)
from pytest_toolemu.analysis.run_summary import DIMENSIONS, slice_values
from pytest_toolemu.core.case_vocabulary import Metric
from pytest_toolemu.core.run import CASCADE_KIND
from pytest_toolemu.errors import ToolemuError, UsageError
from pytest_toolemu.formats.text import counted, visible
from pytest_toolemu.plugin.collection.collect import drawn_position
from pytest_toolemu.plugin.collection.item_agents import agent_configs
from pytest_toolemu.plugin.output.reports import record_path
from pytest_toolemu.plugin.session import (
    LEFT_TO_GATE,
    CaseError,
    CaseFailure,
    TerminalNote,
    headline_of,
)
from pytest_toolemu.sessions.manifest_records import PlannedCase
from pytest_toolemu.sessions.stored_decision import planned_run

if TYPE_CHECKING:
    from pytest_toolemu.analysis.gates.gate_decision import Decision
    from pytest_toolemu.analysis.gates.gate_file import Gates
    from pytest_toolemu.plugin.process import SessionProcess


FILE = "toolemu-gate"
"""The part of a gate's node ID before ``::``."""


class GateHooks:
    """Registered if gates are set, in the process that has the run summaries of all cases."""

    def __init__(self, process: SessionProcess) -> None:
        self._process = process
        self._session = process.session
        self._gates: Sequence[GatesWithBaseline] = ()
        self._is_stopped = False

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """Read the gates before a case costs anything; decide them when every case has reported."""
        from pytest_toolemu.analysis.gates.gate_decision import (
            decisions_of_sources,
            distinct,
            read_gates_and_baselines,
            refuse_zero_thresholds,
        )

        sources, root = self._session.settings.gate, session.config.rootpath
        try:
            self._gates = read_gates_and_baselines(sources, root)
            refuse_zero_thresholds(self._gates, self._session.settings.with_sources())
            if not (session.config.option.collectonly or self._session.settings.estimate):
                _check_cascades(self._process, [gates for gates, _ in self._gates])
        except ToolemuError as error:
            raise pytest.UsageError(f"toolemu: {error}") from None
        if self._session.permitted_error is not None:
            self._process.lead()  # before output is captured
        result = yield
        if self._session.settings.shard or self._session.settings.judge_later:
            return result  # 'toolemu gate' decides on the merged session, or after 'toolemu judge'
        # A gate must not be decided on a part of the cases. What stopped the session sets its exit status.
        if not (session.shouldstop or session.shouldfail or session.config.option.collectonly):
            try:
                reliabilities = judge_reliabilities(self._session.calibrations)
                decisions = decisions_of_sources(self._gates, list(self._session.run_summaries.values()), reliabilities)
                self._session.decisions = distinct(self._as_stopped(decisions))
            except ToolemuError as error:
                raise pytest.UsageError(f"toolemu: {error}") from None
            session.testscollected += len(self._session.decisions)
            for decision in self._session.decisions:
                _report(session, decision)
        return result

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """After the teardown of a case, see whether the gates need more of them."""
        session, is_case = self._session, report.when == "teardown" and report.nodeid in self._session.run_summaries
        if not is_case or self._is_stopped or session.stopped_early or self._early_decisions is None:
            return
        if (
            self._early_decisions.update(session.run_summaries)
            and len(session.run_summaries) < self._early_decisions.planned_count
        ):
            self._is_stopped, reason = True, "every gate is decided"
            session.stopped_early = reason
            self._process.lead().update(lambda coordinator: coordinator.conclude(reason))

    def _as_stopped(self, decisions: list[list[Decision]]) -> list[list[Decision]]:
        """Return the decisions of each source; if the session was stopped, those on gates as they were decided then."""
        if not self._is_stopped or self._early_decisions is None:
            return decisions
        runs, planned = len(self._session.run_summaries), counted(self._early_decisions.planned_count, "run")
        if runs == self._early_decisions.planned_count:  # the cases in flight were the last ones
            self._session.stopped_early = ""
            return decisions
        self._session.stopped_early = (
            f"stopped after {runs} of {planned}, when every gate was decided; run the rest with --toolemu-resume"
        )
        self._session.notes.append(TerminalNote(self._session.stopped_early, "yellow"))
        return self._early_decisions.applied(decisions, self._session.run_summaries)

    @functools.cached_property
    def _early_decisions(self) -> EarlyDecisions | None:
        """The gates with the planned runs; None if all cases are to run, or some gate cannot be decided early."""
        if self._session.permitted_error is None:
            return None
        # An xdist controller collects nothing; its workers have stored the plan.
        plan = self._session.case_plan or self._session.store.manifest().planned
        planned = planned_runs(plan, self._session.nodeids)
        decisions = EarlyDecisions(self._gates, planned, self._session.permitted_error)
        reasons = late_gates(self._gates, planned)
        if self._process.lead().read(lambda coordinator: coordinator.total) != decisions.planned_count:
            reasons = ["Python tests run some of its cases"]
        cases = {item: case for case, planned_case in plan.items() for item in planned_case.items}
        order = [
            drawn_position(cases[item], self._session.settings.seed) for item in self._session.nodeids if item in cases
        ]
        if self._session.permitted_error and order != sorted(order):
            reasons = ["another plugin, or an option such as --ff, has changed the random order of its cases"]
        if reasons:
            text = f"the session cannot stop when its gates are decided: {'; '.join(reasons)}"
            self._session.notes.append(TerminalNote(text, "yellow"))
            return None
        return decisions


def leave_to_gate(report: pytest.TestReport, error: BaseException, item: pytest.Item) -> None:
    """Report a case so that it does not fail a session with gates: the gates count it and limit how many there may be.

    A case that its agent fails is reported as an expected failure, a case without a verdict as undecided.
    """
    if isinstance(error, CaseFailure):
        report.outcome, report.wasxfail = "skipped", f"{LEFT_TO_GATE}: {error.scores}"
    elif isinstance(error, CaseError) and record_path(item) is not None:
        report.outcome, report.longrepr = "skipped", (str(item.path), 1, f"{LEFT_TO_GATE}: {headline_of(error)}")
        report.toolemu_undecided = True  # type: ignore[attr-defined]


def _check_cascades(process: SessionProcess, gates: Iterable[Gates]) -> None:
    """Raise UsageError for a named cascade whose calibration does not show the added error that the gates require."""
    rules = [each.calibration for each in gates if each.calibration and each.calibration.added_error_at_most]
    if not rules:
        return
    from pytest_toolemu.core.identity import component_name, identity_of

    session = process.session
    reliabilities, components = judge_reliabilities(session.calibrations), process.runner.components
    judges = [
        component_name(identity_of(evaluator, in_dialogue=session.settings.turns > 1))
        for config in agent_configs(session.settings) or (None,)
        for metric in get_args(Metric)
        for evaluator in components.evaluators(config, metric)
    ]
    checks = [
        check_added_error(rule, rule.added_error_at_most or 0.0, judge, reliabilities.get(str(judge)))
        for judge in dict.fromkeys(judges)
        if judge.kind == CASCADE_KIND
        for rule in rules
    ]
    for check in checks:
        if not check.is_met:
            raise UsageError(
                f"a gate limits the {check.name}: {check.text}; pass its file with --toolemu-calibration, or name "
                "only its strong judge with --toolemu-evaluator"
            )


def _report(session: pytest.Session, decision: Decision) -> None:
    """Report a gate like a test: a failed gate is a failure of the call, an undecided gate an error of setup."""
    hook = session.config.hook
    nodeid = f"{FILE}::{decision.gate}[{decision.agent}]"
    # This differs from the end of the node ID, which pytest would rewrite as if it were a dotted name.
    location = (FILE, None, f"gate {decision.gate}[{decision.agent}]")
    hook.pytest_runtest_logstart(nodeid=nodeid, location=location)
    for when in ("setup", "call", "teardown"):
        failed = when == {"failed": "call", "undecided": "setup"}.get(decision.status)
        report = pytest.TestReport(
            nodeid=nodeid,
            location=location,
            keywords={},
            outcome="failed" if failed else "passed",
            longrepr=visible(f"{decision.status}: {decision.text}") if failed else None,
            when=when,
        )
        if not (when == "call" and decision.status == "undecided"):
            hook.pytest_runtest_logreport(report=report)
    hook.pytest_runtest_logfinish(nodeid=nodeid, location=location)


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
