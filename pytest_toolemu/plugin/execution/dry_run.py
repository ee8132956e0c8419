"""``--toolemu-estimate``: print what a run would cost instead of running it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from pytest_toolemu.analysis.cost_estimate import estimate_requests, estimate_runs
from pytest_toolemu.components import Components
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.counted import counted
from pytest_toolemu.formats.visible_text import visible
from pytest_toolemu.plugin.collection import options
from pytest_toolemu.plugin.collection.item_agents import agent_configs
from pytest_toolemu.plugin.execution.item_spec import spec_before_turn
from pytest_toolemu.plugin.execution.worlds import missing_worlds
from pytest_toolemu.plugin.output.terminal_text import terminal_width
from pytest_toolemu.plugin.session import RESOLVED_CASE, ToolemuSession
from pytest_toolemu.reporting.summary_table import estimate_lines


def show(session: ToolemuSession, components: Components, items: Sequence[pytest.Item]) -> None:
    """Print the estimate of all collected cases; nothing is sent and nothing is run. Raise pytest.UsageError."""
    try:
        _show(session, components, items)
    except UsageError as error:
        raise pytest.UsageError(f"toolemu: {error}") from None


def _show(session: ToolemuSession, components: Components, items: Sequence[pytest.Item]) -> None:
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
        result.include(estimate_requests("builder", model, missing, f"{counted(missing, 'world')} to build"))
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
