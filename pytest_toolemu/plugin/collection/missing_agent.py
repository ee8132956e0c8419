"""Cases that have no agent: say that they were not tested, and refuse where somebody expects a verdict."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NoReturn

import pytest

from pytest_toolemu.plugin.collection import environment_variables
from pytest_toolemu.plugin.collection.variants import is_own
from pytest_toolemu.plugin.session import ITEM, ToolemuSession

NO_AGENT = "no agent configured"
"""How the reason of a skipped case without an agent begins."""

_REMEDY = "name the agent with --toolemu-agent=NAME, TOOLEMU_AGENT, or toolemu_agent in the ini file"
_LEAVE_OUT = "or leave the cases out, for example with --ignore-glob='*.toolemu.yaml'"

# Settings that ask for a verdict wherever they are given; others do so on the command line of this very session.
_VERDICT = ("evaluator", "gate", "estimate")


def skip() -> NoReturn:
    """Skip a case because nothing in this session names or makes its agent."""
    pytest.skip(f"{NO_AGENT}: pass --toolemu-agent=NAME, or set toolemu_agent in the ini file")


def refuse(session: ToolemuSession, items: Iterable[pytest.Item]) -> None:
    """Raise pytest.UsageError if a verdict is expected and no collected case can have an agent."""
    cases = [item for item in items if ITEM in item.stash and "toolemu_agent" in getattr(item, "fixturenames", ())]
    if cases and not any(_may_have_agent(session, case) for case in cases) and (reason := expected(session)):
        raise pytest.UsageError(f"toolemu: {_message(len(cases), reason)}")


def expected(session: ToolemuSession) -> str:
    """Return why this session is expected to test an agent; empty if it may as well be a run of other tests."""
    settings = session.settings
    if "TOOLEMU_AGENT" in environment_variables.empty(session.config):
        return "TOOLEMU_AGENT is set, but empty"
    for name, setting in settings.chosen.items():
        if name in _VERDICT or setting.source in _command_line(session):
            return f"{setting.source} is given"
    return "CI is set in the environment" if in_ci() else ""


def in_ci() -> bool:
    """Return whether this is a job of continuous integration, by the variable that all services set."""
    return os.environ.get("CI", "").strip().casefold() not in ("", "0", "false", "no", "off")


def note_report(session: ToolemuSession, report: pytest.TestReport) -> None:
    """Remember a case that was skipped because it has no agent."""
    if report.skipped and isinstance(report.longrepr, tuple) and f"Skipped: {NO_AGENT}" in report.longrepr[2]:
        session.untested.add(report.nodeid)


def status(session: ToolemuSession, exitstatus: int) -> int:
    """Return the exit status of the session: a usage error if it was to test an agent, and had none."""
    nothing = session.untested and not session.rows and expected(session)
    return pytest.ExitCode.USAGE_ERROR if nothing and exitstatus == pytest.ExitCode.OK else exitstatus


def lines(session: ToolemuSession) -> list[tuple[str, bool]]:
    """Return what the terminal says about cases without an agent, and whether it is an error."""
    count = len(session.untested)
    if not count:
        return []
    if session.rows:
        shown = ", ".join(sorted(session.untested)[:3]) + (", ..." if count > 3 else "")
        return [(f"not tested, because no agent is configured for {_cases(count)}: {shown}; {_REMEDY}", False)]
    reason = expected(session)
    return [(_message(count, reason), bool(reason))]


def _message(count: int, reason: str) -> str:
    were = "was" if count == 1 else "were"
    head = f"nothing was tested: {_cases(count)} {were} collected, but no agent is configured"
    return f"{head}, although {reason}; {_REMEDY}, {_LEAVE_OUT}" if reason else f"{head}; {_REMEDY}"


def _cases(count: int) -> str:
    return f"{count} case" if count == 1 else f"{count} cases"


def _may_have_agent(session: ToolemuSession, item: pytest.Item) -> bool:
    """Whether the agent is named, or may be made by a fixture or a hook of the project."""
    hooked = session.config.hook.pytest_toolemu_make_agent.get_hookimpls()
    return bool(session.settings.agent or hooked) or not is_own(item, "toolemu_agent")


def _command_line(session: ToolemuSession) -> set[str]:
    """The options of this very command; those in ``addopts`` hold for runs of other tests too."""
    return {str(argument).partition("=")[0] for argument in session.config.invocation_params.args}
