"""What pytest reports of items: rows for the summary, and failures for the hub."""

from __future__ import annotations

import functools
from collections.abc import Generator

import pytest

from pytest_toolemu.plugin.output.row_property import PROPERTY, row_of
from pytest_toolemu.plugin.session import ToolemuSession


class ReportHooks:
    """Hears of every report. A plugin of its own, as pytest reads all attributes of what is registered, and a Session
    makes its parts when they are read.
    """

    def __init__(self, session: ToolemuSession) -> None:
        self._session = session
        self._failures = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
        """Make room for the item's name."""
        if self._session.progress is not None:
            self._session.progress.clear()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the row that a report carries. A rerun's replaces the former."""
        if self._session.progress is not None:
            self._session.progress.clear()
        if any(name == PROPERTY for name, _ in report.user_properties):
            row = row_of(report)
            if row is not None:
                self._session.rows[report.nodeid] = row
            if report.skipped and row is None:
                self._session.skipped.add(report.nodeid)
                from pytest_toolemu.plugin.collection import missing_agent

                missing_agent.note_report(self._session, report)
        if self._session.carrier is not None:
            self._tell(report)

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self) -> None:
        """Start nothing more, and let a second Ctrl-C end the wait for what runs instead of ending it all anywhere."""
        if self._session.has_cases or self._session.carrier is not None:
            self._session.signals.begin_end()
            self._session.signals.hurry_on_interrupt()
        if self._session.carrier is not None:
            self._session.carrier.update(lambda coordinator: coordinator.stop("interrupted"))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, exitstatus: int) -> Generator[None, None, None]:
        """Print, below everything else, how to go on with a session that did not come to its end."""
        self._session.signals.begin_end()
        try:
            return (yield)
        finally:
            if not self._session.is_worker and (self._session.has_cases or self._session.nodeids):
                from pytest_toolemu.plugin.output import resume_command

                resume_command.show(self._session, exitstatus)

    @functools.cached_property
    def _index(self) -> dict[str, int]:
        return {nodeid: index for index, nodeid in enumerate(self._session.nodeids)}

    def _tell(self, report: pytest.TestReport) -> None:
        """Tell the hub what it foresaw or not, and that the session ends when pytest is about to end it."""
        carrier, index = self._session.carrier, self._index.get(report.nodeid)
        assert carrier is not None
        if index is not None and (report.failed or report.when == "call" or report.skipped):
            carrier.update(lambda coordinator: coordinator.report_item(index, failed=report.failed))
        if report.failed:
            self._failures += 1
            most = self._session.config.option.maxfail
            if most and self._failures >= most:
                carrier.update(lambda coordinator: coordinator.stop(f"{self._failures} failures ended the session"))
