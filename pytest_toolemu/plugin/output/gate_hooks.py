"""Hooks of sessions with gates: after the last case, each gate is decided and reported like a test."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

from pytest_toolemu.errors import ToolemuError
from pytest_toolemu.formats.visible_text import visible
from pytest_toolemu.plugin.output.run_property import record_path
from pytest_toolemu.plugin.session import LEFT_TO_GATE, CaseError, CaseFailure, headline_of

if TYPE_CHECKING:
    from pytest_toolemu.analysis.gates.gate_decision import Decision
    from pytest_toolemu.plugin.output.running_gates import EarlyStop
    from pytest_toolemu.plugin.process import SessionProcess

FILE = "toolemu-gate"
"""The part of a gate's node ID before ``::``."""


class GateHooks:
    """Registered if gates are set, in the process that has the run summaries of all cases."""

    def __init__(self, process: SessionProcess) -> None:
        self._process = process
        self._session = process.session
        self._early_stop: EarlyStop | None = None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """Read the gates before a case costs anything; decide them when every case has reported."""
        from pytest_toolemu.analysis.calibration.calibration_file import judge_reliabilities
        from pytest_toolemu.analysis.gates.gate_decision import (
            decisions_of_sources,
            distinct,
            read_gates_and_baselines,
        )
        from pytest_toolemu.plugin.output.running_gates import EarlyStop, check_cascades

        sources, root = self._session.settings.gate, session.config.rootpath
        try:
            gates = read_gates_and_baselines(sources, root)
            if not (session.config.option.collectonly or self._session.settings.estimate):
                check_cascades(self._process, (each for each, _ in gates))
        except ToolemuError as error:
            raise pytest.UsageError(f"toolemu: {error}") from None
        if (permitted_error := self._session.permitted_error) is not None:
            self._early_stop = EarlyStop(self._session, self._process.lead(), gates, permitted_error)
        result = yield
        if self._session.settings.shard or self._session.settings.judge_later:
            return result  # 'toolemu gate' decides on the merged session, or after 'toolemu judge'
        # A gate must not be decided on a part of the cases. What stopped the session sets its exit status.
        if not (session.shouldstop or session.shouldfail or session.config.option.collectonly):
            try:
                reliabilities = judge_reliabilities(self._session.calibrations)
                decisions = decisions_of_sources(gates, list(self._session.run_summaries.values()), reliabilities)
                self._session.decisions = distinct(
                    self._early_stop.applied(decisions) if self._early_stop else decisions
                )
            except ToolemuError as error:
                raise pytest.UsageError(f"toolemu: {error}") from None
            session.testscollected += len(self._session.decisions)
            for decision in self._session.decisions:
                _report(session, decision)
        return result

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """After the teardown of a case, see whether the gates need more of them."""
        if self._early_stop is not None and report.when == "teardown" and report.nodeid in self._session.run_summaries:
            self._early_stop.look()


def leave_to_gate(report: pytest.TestReport, error: BaseException, item: pytest.Item) -> None:
    """Report a case so that it does not fail a session with gates: the gates count it and limit how many there may be.

    A case that its agent fails is reported as an expected failure, a case without a verdict as undecided.
    """
    if isinstance(error, CaseFailure):
        report.outcome, report.wasxfail = "skipped", f"{LEFT_TO_GATE}: {error.scores}"
    elif isinstance(error, CaseError) and record_path(item) is not None:
        report.outcome, report.longrepr = "skipped", (str(item.path), 1, f"{LEFT_TO_GATE}: {headline_of(error)}")
        report.toolemu_undecided = True  # type: ignore[attr-defined]


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
