"""The pytest face: hooks only. Each makes one decision and one call; what they call is imported when it is needed.

This module is loaded in every pytest run of an environment. It imports no yaml, pydantic, asyncio or SDK.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_toolemu.plugin import bytecode

bytecode.import_plainly()  # before the others are imported

from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.redaction import plain
from pytest_toolemu.formats.secret_registry import REGISTRY
from pytest_toolemu.plugin.collection import options
from pytest_toolemu.plugin.output.failure_style import CaseFailure, representation
from pytest_toolemu.plugin.output.redact_output import Redaction
from pytest_toolemu.plugin.output.report_hooks import ReportHooks
from pytest_toolemu.plugin.output.row_property import status
from pytest_toolemu.plugin.session import ITEM, MARKS, RAN, SESSION, CaseError, ToolemuSession

if TYPE_CHECKING:
    from pytest_toolemu.plugin.collection.collect import CaseFile

pytest_plugins = ["pytest_toolemu.plugin.fixtures"]

SUFFIXES = (".toolemu.yaml", ".toolemu.yml")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare every knob as option and ini key."""
    options.declare(parser)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Declare the hooks that users may implement."""
    from pytest_toolemu.plugin import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Resolve the settings; nothing else happens until a case is collected."""
    # First of all plugins: so far only the ini file has listed marks.
    config.stash[MARKS] = tuple(config.getini("markers"))
    config.addinivalue_line("markers", "toolemu(cases=PATH): run this test once for each case below PATH")
    config.add_cleanup(REGISTRY.begin())
    settings = options.resolved(config)
    config.stash[SESSION] = session = ToolemuSession(config, settings)
    # Cleanups run in reverse order, after all plugins: this one is the last. By then, the exit status is known.
    config.add_cleanup(session.finish)
    config.pluginmanager.register(ReportHooks(session), "toolemu-reports")
    config.pluginmanager.register(Redaction(session), "toolemu-redaction")
    if settings.estimate:
        options.without_workers(config)
    if settings.gate and not session.is_worker:
        from pytest_toolemu.plugin.output.gates import GateHooks

        config.pluginmanager.register(GateHooks(session), "toolemu-gates")
    if getattr(config.option, "allure_report_dir", None) and not config.option.collectonly:
        from pytest_toolemu.plugin.output.allure import AllureReports

        config.pluginmanager.register(AllureReports(session), "toolemu-allure")
    if settings.benchmark:
        options.add_benchmark(config)


def pytest_report_header(config: pytest.Config) -> list[str]:
    """What was resolved, and where from; nothing in runs that configure no agent."""
    if not config.stash[SESSION].settings.agent:
        return []
    from pytest_toolemu.plugin.output import terminal

    try:
        return [plain(line) for line in terminal.header(config.stash[SESSION])]
    except UsageError as error:  # a .env file that cannot be read, a dataset file that is wrong
        raise pytest.UsageError(plain(f"toolemu: {error}")) from None


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> CaseFile | None:
    """Collect ``*.toolemu.yaml``."""
    if not file_path.name.endswith(SUFFIXES):
        return None
    from pytest_toolemu.plugin.collection.collect import CaseFile

    session = parent.config.stash[SESSION]
    if not session.is_worker:  # the controller does not know yet that there are cases
        session.signals.handle_termination()
    return CaseFile.from_parent(parent, path=file_path)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One item for each agent, prompt and trial; and for each case, where a Python test asks for several."""
    if "toolemu_case" in metafunc.fixturenames:
        from pytest_toolemu.plugin.collection import variants

        variants.parametrize(metafunc, metafunc.config.stash[SESSION].settings)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Cases last, and only the sample that was asked for."""
    options.mark_cases(items)
    options.sample(config, items)
    if config.stash[SESSION].settings.shard:
        from pytest_toolemu.plugin.collection import shards

        try:
            shards.divide(config, items)
        except UsageError as error:  # durations that cannot be read
            raise pytest.UsageError(f"toolemu: {error}") from None
    # What Python tests patch (environment, clock, sockets) must not reach cases that are in flight.
    items.sort(key=lambda item: ITEM in item.stash)
    config.stash[SESSION].has_cases = bool(items) and ITEM in items[-1].stash


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell an xdist worker what session it belongs to, and give it a channel to the hub."""
    from pytest_toolemu.plugin.execution import xdist

    try:
        xdist.attach(node.config.stash[SESSION], node)
    except UsageError as error:  # nothing to resume in the folder that was named
        raise pytest.UsageError(f"toolemu: {error}") from None


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """In the xdist controller: load what the check of models and keys needs, while the workers collect."""
    toolemu = session.config.stash[SESSION]
    if toolemu.carrier is not None and toolemu.settings.agent:
        from pytest_toolemu import components  # noqa: F401
        from pytest_toolemu.plugin.execution import preflight  # noqa: F401
        from pytest_toolemu.sessions import store  # noqa: F401


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: Any, ids: list[str]) -> None:
    """In the xdist controller: check models and keys once, before any worker runs a case."""
    session = node.config.stash[SESSION]
    if session.nodeids:  # all workers collect the same
        return
    session.nodeids = ids
    if any(suffix + "::" in nodeid for nodeid in ids for suffix in SUFFIXES):
        from pytest_toolemu.plugin.execution.preflight import preflight

        session.prepare_end()
        preflight(session)
        gc.freeze()  # as in the workers
    if session.carrier is not None:
        from pytest_toolemu.plugin.execution import xdist

        xdist.begin(session)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Without xdist: check models and keys before the first case runs. An estimate takes the place of the run."""
    toolemu = session.config.stash[SESSION]
    starts_here = not toolemu.is_worker and not session.config.option.collectonly
    if starts_here and toolemu.has_cases:
        from pytest_toolemu.plugin.collection import missing_agent

        missing_agent.refuse(toolemu, session.items)
    if toolemu.settings.estimate and not session.config.option.collectonly:
        return _estimated(session)
    if starts_here and toolemu.has_cases:
        from pytest_toolemu.plugin.execution import xdist
        from pytest_toolemu.plugin.execution.preflight import preflight

        toolemu.prepare_end()
        preflight(toolemu)
        xdist.lead(toolemu)
    return None


def pytest_collection_finish(session: pytest.Session) -> None:
    """A shard leaves word of what it is to run.

    A worker need not wait until the others have collected, nor for its first item, if all items are cases.

    What Python tests patch (environment, clock, sockets) must not reach cases that are in flight.
    """
    toolemu = session.config.stash[SESSION]
    if toolemu.account:
        from pytest_toolemu.plugin.collection import shards

        shards.leave_account(toolemu)
    if toolemu.has_cases:
        from pytest_toolemu.plugin.collection.planned_cases import planned

        toolemu.planned = planned(session.items)
    if not toolemu.is_worker or not toolemu.has_cases:
        return
    toolemu.prepare_end()
    # What collection has made lives as long as this process, and need not be searched for garbage over and over; at the
    # end of the process, which everybody waits for, half of the time would go into that.
    gc.freeze()
    if all(ITEM in item.stash for item in session.items):
        from pytest_toolemu.plugin.execution import run_item

        run_item.flight_of(session).start()


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, Any, Any]:
    """Cases that need a fixture of the project's that serves many can run as long as it is up."""
    session = request.config.stash[SESSION]
    # The run of a case is a fixture of this package.
    is_projects = fixturedef.func.__module__ != "pytest_toolemu.plugin.fixtures"
    with session.exempt() if is_projects else contextlib.nullcontext():
        value = yield
    if session.has_cases and fixturedef.scope != "function":
        session.fixtures.up(request, fixturedef, value)
    return value


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """What a test that is no case leaves behind is no agent's."""
    with contextlib.nullcontext() if ITEM in item.stash else item.config.stash[SESSION].exempt():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Nor is what the body of a test starts: agents have ended by then."""
    with item.config.stash[SESSION].exempt():
        return (yield)


def _estimated(session: pytest.Session) -> bool:
    from pytest_toolemu.plugin.execution import dry_run

    try:
        dry_run.show(session)
    except UsageError as error:
        raise pytest.UsageError(f"toolemu: {error}") from None
    return True


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """The case's own times, not those of the wait for it. Trouble of the instrument is shown as its own text, without
    a traceback through this package.
    """
    if call.when == "setup" and RAN in item.stash:
        call.start, call.duration = item.stash[RAN]
        call.stop = call.start + call.duration
        del item.stash[RAN]
    report = yield
    if call.excinfo is not None and isinstance(call.excinfo.value, CaseError | CaseFailure | UsageError):
        report.longrepr = representation(call.excinfo, item)
    if call.excinfo is not None and item.config.stash[SESSION].settings.gate:
        from pytest_toolemu.plugin.output import gates

        gates.leave_to_gate(report, call.excinfo.value, item)
    return report


def pytest_report_teststatus(report: pytest.CollectReport | pytest.TestReport) -> tuple[str, str, Any] | None:
    """A case without a verdict that a gate counts: no pass, no failure. Else ``PASSED (resumed)`` and its like."""
    if getattr(report, "toolemu_undecided", False):
        return "undecided", "?", ("UNDECIDED", {"yellow": True})
    return status(report) if isinstance(report, pytest.TestReport) else None


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str, report: Any, sched: Any) -> None:
    """A worker died in a case: xdist reports the item, and the summary must count it too."""
    if any(suffix + "::" in crashitem for suffix in SUFFIXES):
        sched.config.stash[SESSION].crashed(crashitem)
        from pytest_toolemu.plugin.execution import xdist

        report.longrepr = f"{report.longrepr}{xdist.in_flight(sched.config.stash[SESSION], report.node)}"


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """End what is still running, close every connection, and write the reports."""
    disturbed = exitstatus == pytest.ExitCode.INTERRUPTED or session.shouldstop or session.shouldfail
    toolemu = session.config.stash[SESSION]
    toolemu.close(in_peace=not disturbed)
    if toolemu.settings.shard and not toolemu.is_worker:
        from pytest_toolemu.plugin.collection import shards

        session.exitstatus = shards.status(toolemu, exitstatus)
    if toolemu.untested and not toolemu.is_worker:
        from pytest_toolemu.plugin.collection import missing_agent

        session.exitstatus = missing_agent.status(toolemu, exitstatus)
    if toolemu.rows:
        from pytest_toolemu.plugin.output import equal_failures, write_reports

        session.config.pluginmanager.register(equal_failures.Collapsed(), equal_failures.NAME)

        if write_reports.wanted(toolemu):
            write_reports.write(toolemu)


@pytest.hookimpl(trylast=True, specname="pytest_sessionfinish")
def pytest_sessionfinish_last(session: pytest.Session) -> None:
    """In an xdist worker, end here what agents left behind: once the worker has reported its end, it may be killed."""
    toolemu = session.config.stash[SESSION]
    toolemu.exit_status = int(session.exitstatus)
    if toolemu.is_worker:
        toolemu.finish()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> Generator[None, object, object]:
    """Write the table of agents and the worst cases after everything else, such as the list of failed tests.

    pytest calls this in xdist workers too, where nobody reads it.
    """
    try:
        return (yield)
    finally:
        if not config.stash[SESSION].is_worker:
            _summarize(terminalreporter, config.stash[SESSION])


def _summarize(terminalreporter: pytest.TerminalReporter, session: ToolemuSession) -> None:
    if session.has_news:
        from pytest_toolemu.plugin.output import equal_failures, terminal

        equal_failures.count(terminalreporter)
        terminal.summarize_terminal(terminalreporter, session)
    if session.untested:
        from pytest_toolemu.plugin.collection import missing_agent

        for line, is_error in missing_agent.lines(session):
            terminalreporter.write_line(f"toolemu: {line}", red=is_error, yellow=not is_error)
