"""Cases without an agent: report that they were not tested, and refuse to run if a verdict is expected."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NoReturn

import pytest

from pytest_toolemu.formats.counted import counted
from pytest_toolemu.plugin.collection import options
from pytest_toolemu.plugin.collection.item_agents import is_plugin_fixture
from pytest_toolemu.plugin.session import RESOLVED_CASE, ToolemuSession

NO_AGENT = "no agent configured"
"""The beginning of the reason for which a case without an agent is skipped."""

_REMEDY = "name the agent with --toolemu-agent=NAME, TOOLEMU_AGENT, or toolemu_agent in the ini file"
_EXCLUDE = "or exclude the cases, for example with --ignore-glob='*.toolemu.yaml'"

# These settings imply that a verdict is expected, wherever they are set; others only on this session's command line.
_IMPLY_VERDICT = ("evaluator", "gate", "estimate")


def skip() -> NoReturn:
    """Skip a case because nothing in this session names or creates its agent."""
    pytest.skip(f"{NO_AGENT}: pass --toolemu-agent=NAME, or set toolemu_agent in the ini file")


def refuse(session: ToolemuSession, items: Iterable[pytest.Item]) -> None:
    """Raise pytest.UsageError if a verdict is expected and no collected case can have an agent."""
    cases = [
        item for item in items if RESOLVED_CASE in item.stash and "toolemu_agent" in getattr(item, "fixturenames", ())
    ]
    if cases and not any(_may_have_agent(session, case) for case in cases) and (reason := expected(session)):
        raise pytest.UsageError(f"toolemu: {_message(len(cases), reason)}")


def expected(session: ToolemuSession) -> str:
    """Return why this session is expected to test an agent; empty if it may run only other tests."""
    settings = session.settings
    if "TOOLEMU_AGENT" in options.empty(session.config):
        return "TOOLEMU_AGENT is set but empty"
    for name, setting in settings.chosen.items():
        if name in _IMPLY_VERDICT or setting.source in _command_line(session):
            return f"{setting.source} is given"
    return "CI is set in the environment" if in_ci() else ""


def in_ci() -> bool:
    """Return whether this is a CI job, by the variable that all CI services set."""
    return os.environ.get("CI", "").strip().casefold() not in ("", "0", "false", "no", "off")


def note_report(session: ToolemuSession, report: pytest.TestReport) -> None:
    """Remember a case that was skipped because it has no agent."""
    if report.skipped and isinstance(report.longrepr, tuple) and f"Skipped: {NO_AGENT}" in report.longrepr[2]:
        session.untested.add(report.nodeid)


def exit_status(session: ToolemuSession, exitstatus: int) -> int:
    """Return the exit status of the session: a usage error if it should have tested an agent but had none."""
    tested_nothing = session.untested and not session.run_summaries and expected(session)
    return pytest.ExitCode.USAGE_ERROR if tested_nothing and exitstatus == pytest.ExitCode.OK else exitstatus


def lines(session: ToolemuSession) -> list[tuple[str, bool]]:
    """Return what the terminal says about cases without an agent, and whether it is an error."""
    count = len(session.untested)
    if not count:
        return []
    if session.run_summaries:
        listed = ", ".join(sorted(session.untested)[:3]) + (", ..." if count > 3 else "")
        return [
            (f"not tested, because no agent is configured for {counted(count, 'case')}: {listed}; {_REMEDY}", False)
        ]
    reason = expected(session)
    return [(_message(count, reason), bool(reason))]


def _message(count: int, reason: str) -> str:
    were = "was" if count == 1 else "were"
    head = f"nothing was tested: {counted(count, 'case')} {were} collected, but no agent is configured"
    return f"{head}, although {reason}; {_REMEDY}, {_EXCLUDE}" if reason else f"{head}; {_REMEDY}"


def _may_have_agent(session: ToolemuSession, item: pytest.Item) -> bool:
    """Return whether the agent is named, or may be created by a fixture or a hook of the project."""
    agent_hooks = session.config.hook.pytest_toolemu_make_agent.get_hookimpls()
    return bool(session.settings.agent or agent_hooks) or not is_plugin_fixture(item, "toolemu_agent")


def _command_line(session: ToolemuSession) -> set[str]:
    """Return the options of this command line; those in ``addopts`` also apply to runs of other tests."""
    return {str(argument).partition("=")[0] for argument in session.config.invocation_params.args}
