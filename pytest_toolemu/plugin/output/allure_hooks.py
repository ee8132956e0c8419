"""Hooks that add cases to the results of allure-pytest. Registered with ``--alluredir``, an option of that plugin."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_toolemu.plugin.collection.item_agents import agent_configs, is_plugin_fixture, names, params_of
from pytest_toolemu.plugin.output.terminal_text import setting_text
from pytest_toolemu.plugin.session import LEFT_TO_GATE, RESOLVED_CASE, ToolemuSession, is_case_file
from pytest_toolemu.reporting.allure_files import write_files
from pytest_toolemu.reporting.allure_results import AllureResultListener, AllureSubject
from pytest_toolemu.settings.model_names import is_model

if TYPE_CHECKING:
    from pytest_toolemu.core.run import Run

# Each run's own identity shows these.
_COMPONENTS = ("agent", "emulator", "evaluator")


class AllureReports:
    """Follows each case, and completes the results of this process."""

    def __init__(self, session: ToolemuSession) -> None:
        self._session = session
        # Absolute, because a test may change the working directory.
        self._folder = Path(session.config.option.allure_report_dir).absolute()
        self._lost: list[str] = []
        self._results = AllureResultListener()
        self._results.register()
        session.config.add_cleanup(self._results.unregister)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Make this item the subject of the next result, which allure writes before the next item starts."""
        self._results.subject = self._subject(item) if RESOLVED_CASE in item.stash else None
        return (yield)

    def pytest_toolemu_run_finished(self, run: Run) -> None:
        """Add the run to the subject; the run of a rerun replaces the former one."""
        if self._results.subject is not None:
            self._results.subject.run = run

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a case that is left to a gate: allure saw its failure before the gate took it over."""
        subject = self._results.subject
        if subject is None:
            return
        if report.when == "setup":
            subject.gate_message = None
        if getattr(report, "toolemu_undecided", False):
            subject.gate_message = (
                str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else report.longreprtext
            )
        elif (
            self._session.settings.gate and report.skipped and getattr(report, "wasxfail", "").startswith(LEFT_TO_GATE)
        ):
            subject.gate_message = report.wasxfail

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str) -> None:
        """Remember an item whose worker died, because allure has written no result for it."""
        self._lost.append(crashitem)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Add gates, lost cases, and the files next to the results, once per session."""
        session = self._session
        if session.is_worker or not session.run_summaries:
            return
        for decision in session.decisions:
            self._results.report_gate(decision)
        for nodeid in self._lost:
            if nodeid in session.run_summaries:
                self._results.report_lost(session.run_summaries[nodeid])
        write_files(self._folder, list(session.run_summaries.values()), self._facts(), os.environ, session.name)

    def _subject(self, item: Any) -> AllureSubject:
        params = params_of(item)
        configs = agent_configs(self._session.settings)
        subject = AllureSubject(item.stash[RESOLVED_CASE], is_file=is_case_file(item.path.name))
        subject.trial = params.get("toolemu_trial", 1)
        # What pytest shows in brackets, unless it only repeats the one agent of the session.
        has_several = set(params) - {"toolemu_variant"} or len(configs) > 1
        subject.label = item.name.partition("[")[2].removesuffix("]") if has_several else ""
        config = params.get("toolemu_variant")
        if config is not None and is_plugin_fixture(item, "toolemu_agent"):
            subject.agent = names(configs)[config]
            subject.prompt = config.prompt if is_model(config.agent) else None
        return subject

    def _facts(self) -> dict[str, str]:
        from pytest_toolemu.core.run import versions

        settings = [pair for pair in self._session.settings.chosen.items() if pair[0] not in _COMPONENTS]
        chosen = {name: f"{setting_text(setting.value)} ({setting.source})" for name, setting in settings}
        return {**chosen, "records": self._session.name, "pytest": pytest.__version__, **versions()}
