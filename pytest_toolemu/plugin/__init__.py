"""The hooks of the plugin. Each makes one decision and one call.

This module is loaded in every pytest run of an environment. What only sessions with cases need is imported where it is
used: nothing here imports yaml, pydantic, asyncio, or an SDK.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from time import time
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest


class PackageFinder:
    """Finds the modules of this package before pytest's finder does. It knows no other module.

    pytest treats every module of a plugin's distribution as test code, and rewrites its assertions. Sessions that may
    not write bytecode would compile a hundred modules again in each worker. Measured with pytest 9.2 and
    ``PYTHONDONTWRITEBYTECODE=1`` in CPU seconds, with and without this class: an empty folder 0.56 and 0.66, one case
    1.0 and 1.5, one case with ``-n 2`` 2.9 and 4.0. There is no public switch: with ``PYTEST_DONT_REWRITE`` in its
    docstring, a module keeps its assertions but is still parsed and compiled.
    """

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return how to import a module of this package; None for any other module."""
        return PathFinder.find_spec(name, path, target) if name.startswith("pytest_toolemu.") else None


if PackageFinder not in sys.meta_path:  # before the modules below are imported
    sys.meta_path.insert(0, PackageFinder)

from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.case_names import misnamed_case
from pytest_toolemu.formats.redaction import REGISTRY
from pytest_toolemu.formats.text import visible
from pytest_toolemu.plugin.collection import options
from pytest_toolemu.plugin.output.redact_output import Redaction
from pytest_toolemu.plugin.output.report_hooks import ReportHooks
from pytest_toolemu.plugin.output.reports import collapsed_errors, representation, status
from pytest_toolemu.plugin.process import PROCESS, SessionProcess
from pytest_toolemu.plugin.session import (
    INI_MARKS,
    RESOLVED_CASE,
    RUN_TIMES,
    SESSION,
    CaseError,
    CaseFailure,
    CaseUnjudged,
    ToolemuSession,
    WorkerInput,
    is_case_file,
)
from pytest_toolemu.sessions import session_id

if TYPE_CHECKING:
    from pytest_toolemu.plugin.collection.collect import CaseFile

pytest_plugins = ["pytest_toolemu.plugin.fixtures"]

# ---- configuration


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare every setting as an option and an ini key."""
    options.declare(parser)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Declare the hooks that users may implement."""
    from pytest_toolemu.plugin import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Resolve the settings, and register the hooks that depend on them. The rest waits until a case is collected."""
    # This runs before all other plugins, so only the ini file has declared marks.
    config.stash[INI_MARKS] = tuple(config.getini("markers"))
    config.addinivalue_line("markers", "toolemu(cases=PATH): run this test once for each case below PATH")
    config.add_cleanup(REGISTRY.begin())
    settings, worker_input = options.resolve_settings(config), WorkerInput.received(config)
    config.stash[SESSION] = session = ToolemuSession(
        config,
        settings,
        name=worker_input.session_name if worker_input else session_id(),
        started=worker_input.started if worker_input else time(),
        worker_input=worker_input,
        is_worker=hasattr(config, "workerinput"),
    )
    config.stash[PROCESS] = process = SessionProcess(session)
    # Cleanups run in reverse order, after all plugins: this one runs last, when the exit status is known.
    config.add_cleanup(process.finish)
    if settings.estimate and hasattr(config.option, "dist"):  # printed where the cases are collected: not in workers
        config.option.dist, config.option.tx = "no", []
    _register_hooks(config, process)
    if settings.benchmark:
        options.add_benchmark(config)


def _register_hooks(config: pytest.Config, process: SessionProcess) -> None:
    """Register the hooks that every session needs, and those that the settings ask for."""
    session, register = process.session, config.pluginmanager.register
    register(ReportHooks(process), "toolemu-reports")
    register(Redaction(session), "toolemu-redaction")
    if config.getoption("dist", "no") != "no":  # in the controller
        from pytest_toolemu.plugin.execution.xdist_hooks import XdistHooks

        register(XdistHooks(process), "toolemu-xdist")
    if session.settings.gate and not session.is_worker:
        from pytest_toolemu.plugin.output.gate_hooks import GateHooks

        register(GateHooks(process), "toolemu-gates")
    if getattr(config.option, "allure_report_dir", None) and not config.option.collectonly:
        from pytest_toolemu.plugin.output.allure_hooks import AllureReports

        register(AllureReports(session), "toolemu-allure")


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Show the resolved settings and their sources, if an agent is configured."""
    if not config.stash[SESSION].settings.agent:
        return []
    from pytest_toolemu.plugin.output.header import session_header

    try:
        components = config.stash[PROCESS].runner.components
        return [visible(line) for line in session_header(config.stash[SESSION], components)]
    except UsageError as error:  # a .env file that cannot be read, a dataset file that is wrong
        raise pytest.UsageError(visible(f"toolemu: {error}")) from None


# ---- collection


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> CaseFile | None:
    """Collect ``*.toolemu.yaml`` files, except drafts; warn of a case under another name."""
    if not is_case_file(file_path.name):
        if problem := misnamed_case(file_path):
            parent.warn(pytest.PytestCollectionWarning(visible(problem)))
        return None
    from pytest_toolemu.plugin.collection.collect import CaseFile, is_left_out

    if is_left_out(file_path, parent):
        return None
    process = parent.config.stash[PROCESS]
    if not process.session.is_worker:  # the controller does not know yet that there are cases
        process.signals.handle_termination()
    return CaseFile.from_parent(parent, path=file_path)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Create an item for each agent, prompt, and trial, and for each case if a Python test asks for several."""
    if "toolemu_case" in metafunc.fixturenames:
        from pytest_toolemu.plugin.collection.collect import parametrize

        parametrize(metafunc, metafunc.config.stash[SESSION].settings)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the items of the requested sample and shard, and order cases after other tests."""
    session = config.stash[SESSION]
    try:
        _mark_cases(items)
        # With --keep-duplicates: equal items would overwrite each other's record.
        distinct = {item.nodeid: item for item in items if RESOLVED_CASE in item.stash}
        options.deselect(config, items, {item for item in items if distinct.get(item.nodeid, item) is not item})
        options.sample(config, items)
        if session.settings.shard:
            from pytest_toolemu.plugin.collection.shards import select_shard
            from pytest_toolemu.sessions.shard_assignment import Shard

            session.shard_manifest = select_shard(config, Shard.of(session.settings.shard), items)
        if session.permitted_error is not None:
            from pytest_toolemu.plugin.collection.collect import shuffle

            shuffle(items, session.settings.seed)
    except UsageError as error:  # a missing world, or durations or a session to resume that cannot be read
        raise pytest.UsageError(visible(f"toolemu: {error}")) from None
    # What Python tests patch (environment, clock, sockets) must not affect cases that are running.
    items.sort(key=lambda item: RESOLVED_CASE in item.stash)
    session.has_cases = bool(items) and RESOLVED_CASE in items[-1].stash


def _mark_cases(items: list[pytest.Item]) -> None:
    """Mark Python tests over cases as cases, for the preflight, the sample, and the order."""
    for item in items:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        if RESOLVED_CASE not in item.stash and "toolemu_case" in params:
            from pytest_toolemu.plugin.execution.worlds import set_case

            set_case(item, params["toolemu_case"])


@pytest.hookimpl(tryfirst=True, specname="pytest_collection_finish")
def pytest_collection_finish_first(session: pytest.Session) -> None:
    """In an xdist worker, announce missing worlds. When xdist reports the collection, the controller builds them."""
    toolemu = session.config.stash[SESSION]
    if toolemu.is_worker and toolemu.has_cases and toolemu.settings.world == "built":
        from pytest_toolemu.plugin.execution.worlds import announce_missing

        announce_missing(toolemu, session.items)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Record what will run. A worker starts its cases now if all its items are cases.

    Errors in a worker must come after xdist has reported its collection: it cannot handle a worker that ends before.
    """
    toolemu = session.config.stash[SESSION]
    if toolemu.shard_manifest:
        from pytest_toolemu.plugin.collection.shards import write_shard_manifest

        write_shard_manifest(toolemu)
    if toolemu.has_cases and not session.config.option.collectonly:
        from pytest_toolemu.plugin.collection.collect import case_plan
        from pytest_toolemu.plugin.output.header import agent_notice

        toolemu.case_plan = case_plan(session.items)
        toolemu.overridden_agent = agent_notice(toolemu.settings, session.items)
        if toolemu.is_worker:
            from pytest_toolemu.plugin.execution.session_start import start_worker

            start_worker(session.config.stash[PROCESS], session)


@pytest.hookimpl(trylast=True)
def pytest_report_collectionfinish(config: pytest.Config, items: list[pytest.Item]) -> list[str]:
    """Name drafts that were left out, and the fixtures that the header could not know.

    pytest prints this before ``pytest_collection_finish``.
    """
    session = config.stash[SESSION]
    notices: list[str] = []
    if session.drafts:
        from pytest_toolemu.plugin.collection.collect import draft_notice

        notices.append(draft_notice(session.drafts))
    if session.has_cases:
        from pytest_toolemu.plugin.output.header import agent_notice

        notices.append(agent_notice(session.settings, items))
    return [visible(f"toolemu: {notice}") for notice in notices if notice]


# ---- execution


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Without xdist: check models and keys before the first case. An estimate replaces the run."""
    process = session.config.stash[PROCESS]
    toolemu = process.session
    starts_cases = toolemu.has_cases and not toolemu.is_worker
    if session.config.option.collectonly or not (starts_cases or toolemu.settings.estimate):
        return None
    from pytest_toolemu.plugin.collection.item_agents import refuse_without_agent
    from pytest_toolemu.plugin.execution.session_start import lead_session, show_estimate

    refuse_without_agent(toolemu, session.items)
    if toolemu.settings.estimate:
        show_estimate(toolemu, process.runner.components, session.items)
        return True
    lead_session(process, session.items)
    return None


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, Any, Any]:
    """Remember fixtures that serve several items, for cases run ahead; what they start was not left by an agent."""
    process = request.config.stash[PROCESS]
    if not process.session.has_cases or fixturedef.scope == "function":
        return (yield)
    with process.exempt():
        value = yield
    process.fixtures.add_fixture(request, fixturedef, value)
    return value


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Report the case's own times instead of the time spent waiting for it, and its errors as text."""
    if call.when == "setup" and RUN_TIMES in item.stash:
        call.start, call.duration = item.stash[RUN_TIMES]
        call.stop = call.start + call.duration
        del item.stash[RUN_TIMES]
    if call.excinfo is None:
        return (yield)
    error = call.excinfo.value
    if isinstance(error, CaseError | CaseFailure | UsageError):
        # These are shown as text. To show source lines, pytest would parse modules while other threads, which format
        # tracebacks, do so too; Python 3.11 may fail with a SystemError then.
        traceback = call.excinfo.traceback
        call.excinfo.traceback = type(traceback)([])
        report = yield
        call.excinfo.traceback = traceback
        report.longrepr = representation(call.excinfo, item)
    else:
        report = yield
    if isinstance(error, CaseError) and hasattr(report, "wasxfail"):
        # The mark ``xfail`` expects the agent to fail. That there is no verdict is an error in any case.
        del report.wasxfail
        report.outcome = "failed"
    if isinstance(error, CaseUnjudged):
        report.outcome, report.longrepr = "skipped", (str(item.path), 1, str(error))
        report.toolemu_unjudged = True  # type: ignore[attr-defined]
    elif item.config.stash[SESSION].settings.gate:
        from pytest_toolemu.plugin.output.gate_hooks import leave_to_gate

        leave_to_gate(report, error, item)
    return report


def pytest_report_teststatus(report: pytest.CollectReport | pytest.TestReport) -> tuple[str, str, Any] | None:
    """Show a case without a verdict that a gate counts as undecided, and a resumed one as ``PASSED (resumed)``."""
    return status(report) if isinstance(report, pytest.TestReport) else None


# ---- the end


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """End what is still running, close every connection, and write the reports."""
    process = session.config.stash[PROCESS]
    toolemu = process.session
    is_ended_early = exitstatus == pytest.ExitCode.INTERRUPTED or session.shouldstop or session.shouldfail
    if toolemu.servers is not None:
        toolemu.servers.stop_watching()
    if (toolemu.run_summaries or toolemu.has_built_worlds) and not toolemu.is_worker:
        from pytest_toolemu.plugin.output.session_manifest import complete_manifest

        complete_manifest(toolemu)
    process.close(finish_running=not is_ended_early)
    if toolemu.is_worker:
        return
    if toolemu.settings.shard:
        from pytest_toolemu.plugin.collection.shards import shard_exit_status

        session.exitstatus = shard_exit_status(toolemu, exitstatus)
    if toolemu.untested:
        from pytest_toolemu.plugin.collection.item_agents import untested_exit_status

        session.exitstatus = untested_exit_status(toolemu, exitstatus)
    is_incomplete = any(run.outcome == "not run" for run in toolemu.run_summaries.values())
    if is_incomplete and exitstatus == pytest.ExitCode.OK and not (toolemu.settings.gate or toolemu.settings.shard):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED  # pytest itself lets skipped cases pass
    if toolemu.run_summaries:
        from pytest_toolemu.plugin.output.session_manifest import write_reports

        write_reports(toolemu)


@pytest.hookimpl(trylast=True, specname="pytest_sessionfinish")
def pytest_sessionfinish_last(session: pytest.Session) -> None:
    """In an xdist worker, end here what agents left behind: once it has reported its end, it may be killed."""
    toolemu = session.config.stash[SESSION]
    toolemu.exit_status = int(session.exitstatus)
    if toolemu.is_worker:
        if toolemu.overridden_agent:
            from pytest_toolemu.plugin.output.terminal_text import report_late

            report_late(toolemu, toolemu.overridden_agent)
        session.config.stash[PROCESS].finish()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> Generator[None, object, object]:
    """Write the summary after everything else, such as the list of failed tests.

    pytest also calls this in xdist workers, whose output is not shown.
    """
    process = config.stash[PROCESS]
    if process.session.is_worker:
        return (yield)
    try:
        with collapsed_errors(terminalreporter, process.session.run_summaries.values()):
            return (yield)
    finally:
        if process.has_results():
            from pytest_toolemu.plugin.output.terminal_summary import write_summary

            write_summary(terminalreporter, process.session, process.transport)
        if process.session.untested:
            from pytest_toolemu.plugin.collection.item_agents import untested_line

            line, is_error = untested_line(process.session)
            terminalreporter.write_line(f"toolemu: {line}", red=is_error, yellow=not is_error)
        elif process.session.has_no_cases:
            terminalreporter.write_line(
                "toolemu: there is no case to run, a file named ID.toolemu.yaml; write a first one with 'toolemu "
                "init', or run the shipped cases with --toolemu-benchmark",
                yellow=True,
            )
