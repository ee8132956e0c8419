"""Hooks that remove secrets from what pytest itself shows: reports, captured output, log records, and warnings.

Only in sessions that use this plugin: the output of other projects stays as it is.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Generator
from typing import Any, Final

import pytest

from pytest_toolemu.formats.redaction import Redactor, redact, redact_writes, secrets
from pytest_toolemu.formats.text import in_log, visible
from pytest_toolemu.plugin.execution.captured_output import is_in_case
from pytest_toolemu.plugin.session import ToolemuSession, is_case_file

# pytest's handlers for --log-cli-level and --log-file. Other records are shown in the sections of reports.
_HANDLERS: Final = ("log_cli_handler", "log_file_handler")


class Redaction:
    """Removes secrets from everything that pytest is about to show."""

    def __init__(self, session: ToolemuSession) -> None:
        self._session = session

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Make pytest's terminal writer and log handlers write text without secrets."""
        reporter = self._session.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            redact_writes(self._session.config.get_terminal_writer(), lambda: self._session.is_used)
        plugin = self._session.config.pluginmanager.get_plugin("logging-plugin")
        for handler in (getattr(plugin, name, None) for name in _HANDLERS):
            if isinstance(handler, logging.Handler):
                handler.setFormatter(_Formatter(handler.formatter or logging.Formatter()))

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Redact a report as soon as it is created, because allure-pytest reads it during this hook."""
        report = yield
        self._redact(report)
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Redact what other plugins put into a report, before it is shown, stored, or sent to the xdist controller."""
        self._redact(report)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Redact the output and the errors of modules that are imported."""
        self._redact(report)

    def _redact(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        properties = report.user_properties if isinstance(report, pytest.TestReport) else []
        # Most reports are of tests that passed without output.
        if not (self._session.is_used and (report.longrepr or report.sections or properties)):
            return
        redactor = secrets()
        report.longrepr = _redacted(report.longrepr, redactor)
        # An agent prints what a model wrote; other tests may print colors.
        is_case = is_case_file(report.nodeid)
        report.sections[:] = [
            (redactor(name), in_log(visible(redactor(text))) if is_case else redactor(text))
            for name, text in report.sections
        ]
        if isinstance(report, pytest.TestReport):
            report.user_properties = _redacted(report.user_properties, redactor)


class _Formatter(logging.Formatter):
    """Formats like another formatter, without secrets, with invisible characters and CI commands of a case escaped."""

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self._inner = inner

    def format(self, record: logging.LogRecord) -> str:
        if is_in_case():
            record = copy.copy(record)
            record.msg, record.args = visible(record.getMessage()), None
            return in_log(redact(self._inner.format(record)))
        return redact(self._inner.format(record))


def _redacted(value: Any, redactor: Redactor) -> Any:
    """Return a value without secrets; pytest's representation of an exception is changed in place."""
    if isinstance(value, str):
        return redactor(value)
    if isinstance(value, tuple | list):
        return type(value)(_redacted(part, redactor) for part in value)
    if type(value).__module__.startswith("_pytest."):
        for name, part in vars(value).items():
            setattr(value, name, _redacted(part, redactor))
    return value
