"""Hooks that follow the reports of items: run summaries, and failures for the coordinator."""

from __future__ import annotations

import functools
from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

from pytest_toolemu.formats.text import counted
from pytest_toolemu.plugin.output.reports import PROPERTY, properties, run_summary_of
from pytest_toolemu.plugin.session import is_case_file

if TYPE_CHECKING:
    from pytest_toolemu.analysis.run_summary import RunSummary
    from pytest_toolemu.plugin.process import SessionProcess
    from pytest_toolemu.scheduling.transport import Transport

_JUDGED = ("passed", "failed")


class ReportHooks:
    """Collects run summaries from reports, and tells the coordinator when pytest is about to end the session."""

    def __init__(self, process: SessionProcess) -> None:
        self._process = process
        self._session = process.session
        self._failures = 0
        # Of each item: the number of its latest attempt, which pytest-rerunfailures counts, and the summary before it.
        self._attempts: dict[str, tuple[int, RunSummary | None]] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
        """Erase the progress display, because pytest is about to write the item's name."""
        self._clear_progress()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the run summary that a report carries."""
        self._clear_progress()
        if any(name == PROPERTY for name, _ in report.user_properties):
            run = run_summary_of(report)
            if run is not None:
                self._keep(report, run)
            if report.skipped and run is None and not self._is_left_out(report):
                self._keep_skipped(report)
        if self._process.transport is not None:
            self._report_to_coordinator(self._process.transport, report)

    def _keep_skipped(self, report: pytest.TestReport) -> None:
        """Count a skipped case as not run, so that no gate passes over it; without an agent, it is not tested."""
        from pytest_toolemu.analysis.run_summary import NOT_RUN, RunSummary
        from pytest_toolemu.plugin.collection.item_agents import note_untested

        session, item = self._session, report.nodeid
        note_untested(session, report)
        if not is_case_file(item) or item in session.untested or session.config.option.setuponly:
            session.skipped.add(item)
            return
        text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reason = f"skipped{text.removeprefix('Skipped')}"
        # From the report: the first one may arrive before a worker has stored the plan.
        planned = RunSummary.from_json({**(properties(report.user_properties) or {}), "item": item})
        session.run_summaries[item] = planned.model_copy(update={"outcome": NOT_RUN, "reason": reason})

    def _keep(self, report: pytest.TestReport, run: RunSummary) -> None:
        """Keep the run summary in place of an earlier one of this attempt; a rerun also replaces earlier attempts.

        What the earlier attempts of a rerun have cost remains. If one of them has a verdict, the rerun reports its run.
        """
        if str(report.outcome) == "rerun" and run.outcome in _JUDGED:
            self._session.omitted_reruns += 1
        summaries, number = self._session.run_summaries, getattr(report, "rerun", 0)
        latest, before = self._attempts.get(report.nodeid, (number, None))
        if number != latest:
            before = summaries.get(report.nodeid)
            if before is not None and before.outcome in _JUDGED:
                return
        self._attempts[report.nodeid] = number, before
        summaries[report.nodeid] = run if before is None else run.after(before)

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self) -> None:
        """Start nothing more. A second Ctrl-C ends the wait for running cases instead of interrupting the cleanup."""
        process = self._process
        if self._session.has_cases or process.transport is not None:
            process.signals.begin_end()
            process.signals.hurry_on_interrupt()
        if process.transport is not None:
            process.transport.update(lambda coordinator: coordinator.stop("interrupted"))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, exitstatus: int) -> Generator[None, None, None]:
        """Print, below everything else, the command that resumes an unfinished session."""
        self._process.signals.begin_end()
        try:
            return (yield)
        finally:
            may_have_cases = self._session.has_cases or bool(self._session.nodeids)
            if may_have_cases and not self._session.is_worker and self._session.folder.is_dir():
                from pytest_toolemu.plugin.output.terminal_text import show_resume_command

                show_resume_command(self._session, exitstatus)

    def _is_left_out(self, report: pytest.TestReport) -> bool:
        """Return whether the item was skipped because the session stopped early: it remains planned."""
        reason = self._session.stopped_early
        return bool(reason) and isinstance(report.longrepr, tuple) and report.longrepr[2].endswith(f"not run: {reason}")

    def _clear_progress(self) -> None:
        if self._process.progress is not None:
            self._process.progress.clear()

    @functools.cached_property
    def _index(self) -> dict[str, int]:
        return {nodeid: index for index, nodeid in enumerate(self._session.nodeids)}

    def _report_to_coordinator(self, transport: Transport, report: pytest.TestReport) -> None:
        """Report whether the item failed, and stop the coordinator if pytest is about to end the session."""
        index = self._index.get(report.nodeid)
        if index is not None and (report.failed or report.when == "call" or report.skipped):
            transport.update(lambda coordinator: coordinator.report_item(index, failed=report.failed))
        if report.failed:
            self._failures += 1
            maxfail = self._session.config.option.maxfail
            if maxfail and self._failures >= maxfail:
                transport.update(
                    lambda coordinator: coordinator.stop(f"{counted(self._failures, 'failure')} ended the session")
                )
