"""Gates decide the session: each is reported like a test of its own, after the last case."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

from pytest_toolemu.errors import ToolemuError
from pytest_toolemu.formats.redaction import plain
from pytest_toolemu.plugin.output.failure_style import CaseFailure, headline_of
from pytest_toolemu.plugin.output.row_property import record_path
from pytest_toolemu.plugin.session import CaseError, ToolemuSession

if TYPE_CHECKING:
    from pytest_toolemu.analysis.gates.gate_decision import Decision

FILE = "toolemu-gate"
"""Before the ``::`` of a gate's node id."""

LEFT = "left to the gate"
"""How the reason begins, where a case is reported so as not to end the session."""


class GateHooks:
    """Registered where gates are set, in the one process that hears of every case."""

    def __init__(self, session: ToolemuSession) -> None:
        self._session = session

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """Read the gates before a case costs anything; decide them when every case has reported."""
        from pytest_toolemu.analysis.calibration.calibration_file import judge_kappas
        from pytest_toolemu.analysis.gates.gate_decision import decide_gate_sources, read_gates_and_baselines

        sources, root = self._session.settings.gate, session.config.rootpath
        try:
            read_gates_and_baselines(sources, root)
        except ToolemuError as error:
            raise pytest.UsageError(f"toolemu: {error}") from None
        result = yield
        if self._session.settings.shard:
            return result  # of a part; 'toolemu gate' decides on the whole
        # A part of the cases must not be judged as the whole; what stopped the session sets its status.
        if not (session.shouldstop or session.shouldfail or session.config.option.collectonly):
            try:
                known = judge_kappas(self._session.calibrations)
                self._session.decisions = decide_gate_sources(sources, root, list(self._session.rows.values()), known)
            except ToolemuError as error:
                raise pytest.UsageError(f"toolemu: {error}") from None
            session.testscollected += len(self._session.decisions)
            for decision in self._session.decisions:
                _report(session, decision)
        return result


def leave_to_gate(report: pytest.TestReport, error: BaseException, item: pytest.Item) -> None:
    """A case's own trouble does not end a gated session: the gate counts it, and bounds how much of it there may be.

    An agent below its threshold is expected to fail, in pytest's words; a run without a verdict is undecided.
    """
    if isinstance(error, CaseFailure):
        report.outcome, report.wasxfail = "skipped", f"{LEFT}: {error.scores}"
    elif isinstance(error, CaseError) and record_path(item) is not None:
        report.outcome, report.longrepr = "skipped", (str(item.path), 1, f"{LEFT}: {headline_of(error)}")
        report.toolemu_undecided = True  # type: ignore[attr-defined]


def _report(session: pytest.Session, decision: Decision) -> None:
    """As three reports, like any test: the agent's failure is a failure of the call, the instrument's one of set-up."""
    hook = session.config.hook
    nodeid = f"{FILE}::{decision.gate}[{decision.agent}]"
    # Unlike the end of the node id, which pytest would rewrite as if it were a dotted name.
    location = (FILE, None, f"gate {decision.gate}[{decision.agent}]")
    hook.pytest_runtest_logstart(nodeid=nodeid, location=location)
    for when in ("setup", "call", "teardown"):
        failed = when == {"failed": "call", "undecided": "setup"}.get(decision.status)
        report = pytest.TestReport(
            nodeid=nodeid,
            location=location,
            keywords={},
            outcome="failed" if failed else "passed",
            longrepr=plain(f"{decision.status}: {decision.text}") if failed else None,
            when=when,
        )
        if not (when == "call" and decision.status == "undecided"):
            hook.pytest_runtest_logreport(report=report)
    hook.pytest_runtest_logfinish(nodeid=nodeid, location=location)
