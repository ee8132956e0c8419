"""What happens between the collection of items and the first case: checks, servers, worlds, and the scheduler."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import pytest

from pytest_toolemu.analysis.cost_estimate import estimate_requests, estimate_runs
from pytest_toolemu.components import Components
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.text import counted, visible
from pytest_toolemu.formats.yaml_document import closest
from pytest_toolemu.plugin.collection import options
from pytest_toolemu.plugin.collection.item_agents import agent_configs, is_plugin_fixture, params_of
from pytest_toolemu.plugin.execution.item_spec import spec_before_turn
from pytest_toolemu.plugin.execution.worlds import build_worlds, missing_worlds
from pytest_toolemu.plugin.output.session_manifest import write_manifest
from pytest_toolemu.plugin.output.terminal_text import terminal_width
from pytest_toolemu.plugin.process import SessionProcess
from pytest_toolemu.plugin.session import RESOLVED_CASE, ToolemuSession, relative_path
from pytest_toolemu.reporting.summary_table import estimate_lines
from pytest_toolemu.settings.model_names import CHECKS, NOACT, REFERENCE
from pytest_toolemu.settings.resolution import ComponentNames

if TYPE_CHECKING:
    from pytest_toolemu.emulators.world_builder import PlannedWorld
    from pytest_toolemu.models.vllm_servers import ServerFleet, VllmServer


# How often a server that is starting has a line of its own, in seconds.
_HEARTBEAT: Final = 10.0


def lead_session(process: SessionProcess, items: list[pytest.Item]) -> None:
    """Check models and keys, and connect this process, which leads the session, with a new coordinator.

    Raise pytest.UsageError if the cases cannot be run as the settings require.
    """
    if reason := certain_failure(process.session, items):
        raise pytest.UsageError(visible(f"toolemu: {reason}"))
    prepare_cases(process, lambda: missing_worlds(items))
    process.lead()


def certain_failure(session: ToolemuSession, items: Sequence[pytest.Item]) -> str:
    """Return why no case of a configured agent can have a verdict, known before the first case; empty if one can."""
    if session.config.hook.pytest_toolemu_make_agent.get_hookimpls():
        return ""
    names = ComponentNames(session.settings)
    for config in agent_configs(session.settings):
        tested = [
            item
            for item in items
            if RESOLVED_CASE in item.stash and params_of(item).get("toolemu_variant", config) == config
        ]
        cases = [item.stash[RESOLVED_CASE].case for item in tested]
        label = config.agent.removeprefix(REFERENCE)
        known = {name for case in cases for name in (*case.references, *case.unlabeled)}
        is_configured = all(is_plugin_fixture(item, "toolemu_agent") for item in tested)
        if cases and is_configured and config.agent.startswith(REFERENCE) and label and label not in known:
            return f"no collected case has a reference {label!r}{closest(label, known) if known else ''}"
        is_judged = all(is_plugin_fixture(item, "toolemu_safety_evaluator") for item in tested)
        # Without a call, safety needs no check.
        is_noact = config.agent == NOACT and session.settings.helpfulness == "none"
        has_checks = is_noact or any(case.checks or case.in_conversation.checks for case in cases)
        if cases and is_judged and not has_checks and set(names.evaluators(config)) == {CHECKS}:
            return (
                f"no verdict is possible for {counted(len(cases), 'run')} of {config.agent}: only the checks of each "
                "case judge, and no collected case has any; name a judge with --toolemu-evaluator=MODEL, write "
                "'checks' into the cases, or postpone judging with --toolemu-judge-later"
            )
    return ""


def prepare_cases(process: SessionProcess, find_missing_worlds: Callable[[], list[PlannedWorld]]) -> None:
    """Check what is configured, and build the worlds that the session's folder lacks."""
    process.limit_exit()
    worlds = find_missing_worlds() if process.session.settings.world == "built" else []
    _preflight(process, builds_worlds=bool(worlds))
    gc.freeze()  # as in workers
    if worlds:
        with process.exempt():
            process.connect_runner()
        runner = process.runner
        build_worlds(process.session, worlds, runner.components, runner.loop, process.progress)


def start_worker(process: SessionProcess, session: pytest.Session) -> None:
    """Start the cases of an xdist worker now, if all its items are cases."""
    process.limit_exit()
    # What collection has created lives as long as the process. Searching it for garbage again and again would slow down
    # cases, and take half of the time that the process needs to end.
    gc.freeze()
    # What Python tests patch (environment, clock, sockets) must not affect cases that are running.
    if process.has_coordinator and all(RESOLVED_CASE in item.stash for item in session.items):
        runner = process.start_items(session.items)
        runner.certain_failure = certain_failure(process.session, session.items)
        runner.scheduler.offer(runner.ready_jobs())


def _preflight(process: SessionProcess, *, builds_worlds: bool) -> None:
    """Raise pytest.UsageError before the first case if something that is configured cannot be used.

    ``builds_worlds``: the session will build worlds, so the model that builds them is checked as well.
    """
    session = process.session
    try:
        _check_files(session)
        _check_models(process, builds_worlds)
        if agent_configs(session.settings):
            write_manifest(session)
    except UsageError as error:
        raise pytest.UsageError(visible(f"toolemu: {error}")) from None


def _check_files(session: ToolemuSession) -> None:
    options.check_variables(session.config)
    session.calibrations  # noqa: B018 - reading it raises for a wrong file
    if session.settings.prices:
        session.prices  # noqa: B018 - likewise
    if session.settings.plays_only and session.cassettes is not None and not session.cassettes.files():
        raise UsageError(
            f"there are no cassettes in {session.cassettes.folder} to replay; record them with --toolemu-record=once, "
            "or name their folder with --toolemu-replay"
        )


def _check_models(process: SessionProcess, builds_worlds: bool) -> None:
    session, runner = process.session, process.runner
    if builds_worlds:
        runner.components.builder(agent_configs(session.settings))
    has_agent_hook = bool(session.config.hook.pytest_toolemu_make_agent.get_hookimpls())
    # An agent that a hook or a fixture makes may still have a configured emulator and configured evaluators.
    configs = agent_configs(session.settings) or ((None,) if session.servers else ())
    runner.loop.run(runner.components.preflight(configs, may_be_made=has_agent_hook))
    if session.servers is not None:
        _start_vllm_servers(process, session.servers)
        runner.loop.run(runner.components.models.preflight(served=True))


# ---- vLLM servers


def _start_vllm_servers(process: SessionProcess, fleet: ServerFleet) -> None:
    """Start the servers, show their progress, and return when all answer. Raise UsageError if one does not start."""
    session, config = process.session, process.session.config
    # Called after the workers have ended. If this process is killed before, the servers' watchdogs stop them.
    config.add_cleanup(fleet.stop)
    reporter = config.pluginmanager.getplugin("terminalreporter")
    is_shown = reporter is not None and reporter.verbosity >= 0
    shown_at = time.monotonic()

    def show(server: VllmServer, line: str) -> None:
        """Show the latest line of a server's log now and then."""
        nonlocal shown_at
        if is_shown and time.monotonic() - shown_at >= _HEARTBEAT:
            shown_at = time.monotonic()
            reporter.write_line(f"toolemu: starting {server.name}: {server.seconds:.0f} s: {line}")

    fleet.start(session.store.folder, session.settings.vllm_timeout, show)
    for server in fleet.servers if is_shown else ():
        log = relative_path(server.log)
        reporter.write_line(f"toolemu: {server.name} is ready after {server.seconds:.0f} s at {server.url}, log {log}")

    def report_death(server: VllmServer, reason: str) -> None:
        """Fail the requests to a server that has died; called on any thread."""
        keys = process.runner.components.models.rate_limit_keys(f"{server.url}/v1")
        process.lead().update(lambda coordinator: coordinator.requests.lose(keys, reason))

    fleet.watch(report_death)


def show_estimate(session: ToolemuSession, components: Components, items: Sequence[pytest.Item]) -> None:
    """Print the estimate of all collected cases; nothing is sent and nothing is run. Raise pytest.UsageError."""
    try:
        _show_estimate(session, components, items)
    except UsageError as error:
        raise pytest.UsageError(f"toolemu: {error}") from None


def _show_estimate(session: ToolemuSession, components: Components, items: Sequence[pytest.Item]) -> None:
    options.check_variables(session.config)
    reporter: Any = session.config.pluginmanager.getplugin("terminalreporter")
    if reporter is None:
        raise UsageError("--toolemu-estimate prints to pytest's terminal, which -p no:terminal disables; remove one")
    cases = [item for item in items if RESOLVED_CASE in item.stash]
    functions = [item for item in cases if isinstance(item, pytest.Function)]
    specs = [spec for item in functions if (spec := spec_before_turn(item, session, components)) is not None]
    if cases and not specs:
        raise UsageError(
            f"--toolemu-estimate: fixtures create the agents of all cases ({len(cases)}), and an estimate runs no "
            "fixtures; name an agent with --toolemu-agent=NAME"
        )
    records = (session.config.rootpath / str(session.settings.run_dir)).glob("*/*--*.json")
    result = estimate_runs(specs, records)
    if missing := len(missing_worlds(cases)):
        model = components.builder(agent_configs(session.settings)).identity
        worlds = estimate_requests("builder", model, missing, f"{counted(missing, 'world')} to build")
        result.lines |= worlds.lines
        result.basis |= worlds.basis
    reporter.section("toolemu: estimate")
    runs = counted(len(specs), "run")
    for line in estimate_lines(result, session.prices, runs, terminal_width(session.config)):
        reporter.write_line(visible(line))
    if session.settings.judge_later:
        reporter.write_line(
            "not in the estimate: judging, which is postponed; 'toolemu judge --estimate' prints its cost"
        )
    if omitted := len(cases) - len(specs):
        reporter.write_line(f"not in the estimate: {counted(omitted, 'case')} with an agent that a fixture creates")
