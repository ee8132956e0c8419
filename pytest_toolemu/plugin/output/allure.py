"""Tells allure-pytest of cases. Registered where ``--alluredir`` is given, which only that plugin declares."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_toolemu.core.case import SUFFIXES
from pytest_toolemu.plugin.collection.variants import is_own, names
from pytest_toolemu.plugin.output.gates import LEFT
from pytest_toolemu.plugin.session import ITEM, ToolemuSession
from pytest_toolemu.reporting.allure.allure_files import write_files
from pytest_toolemu.reporting.allure.allure_results import AllureResultListener, AllureSubject
from pytest_toolemu.settings import is_model

if TYPE_CHECKING:
    from pytest_toolemu.core.run import Run

# Told by what each run says of itself.
_PARTS = ("agent", "emulator", "evaluator")


class AllureReports:
    """Hears what happens to each case, and has the results of this process completed."""

    def __init__(self, session: ToolemuSession) -> None:
        self._session = session
        # As seen from where pytest was started; a test may go elsewhere.
        self._folder = Path(session.config.option.allure_report_dir).absolute()
        self._lost: list[str] = []
        self._results = AllureResultListener()
        self._results.register()
        session.config.add_cleanup(self._results.unregister)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """The next result is this item's; allure writes it before the next item starts."""
        self._results.subject = self._subject(item) if ITEM in item.stash else None
        return (yield)

    def pytest_toolemu_run_finished(self, run: Run) -> None:
        """The item has its run; a rerun's replaces the former."""
        if self._results.subject is not None:
            self._results.subject.run = run

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Allure saw a failure before the gate made it its own."""
        subject = self._results.subject
        if subject is None:
            return
        if report.when == "setup":
            subject.left = None
        if getattr(report, "toolemu_undecided", False):
            subject.left = str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else report.longreprtext
        elif self._session.settings.gate and report.skipped and getattr(report, "wasxfail", "").startswith(LEFT):
            subject.left = report.wasxfail

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str) -> None:
        """No result of this item was written."""
        self._lost.append(crashitem)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Once a session, where all its rows are: gates, cases that were lost, and the files beside the results."""
        session = self._session
        if session.is_worker or not session.rows:
            return
        for decision in session.decisions:
            self._results.gate(decision)
        for nodeid in self._lost:
            if nodeid in session.rows:
                self._results.lost(session.rows[nodeid])
        write_files(self._folder, list(session.rows.values()), self._facts(), os.environ, session.name)

    def _subject(self, item: Any) -> AllureSubject:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        subject = AllureSubject(item.stash[ITEM], is_file=item.path.name.endswith(SUFFIXES))
        subject.trial = params.get("toolemu_trial", 1)
        # What pytest puts in brackets, unless it only repeats the one agent of the session.
        several = set(params) - {"toolemu_variant"} or len(self._session.variants()) > 1
        subject.label = item.name.partition("[")[2].removesuffix("]") if several else ""
        variant = params.get("toolemu_variant")
        if variant is not None and is_own(item, "toolemu_agent"):
            subject.agent = names(self._session.variants())[variant]
            subject.prompt = variant.prompt if is_model(variant.agent) else None
        return subject

    def _facts(self) -> dict[str, str]:
        from pytest_toolemu.core.environment import versions
        from pytest_toolemu.plugin.output.terminal import shown

        settings = [pair for pair in self._session.settings.chosen.items() if pair[0] not in _PARTS]
        chosen = {name: f"{shown(setting.value)} ({setting.source})" for name, setting in settings}
        return {**chosen, "records": self._session.name, "pytest": pytest.__version__, **versions()}
