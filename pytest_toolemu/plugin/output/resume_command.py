"""The command that resumes an unfinished session, as the last line in the terminal."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from pytest_toolemu.formats.visible_text import in_log, visible
from pytest_toolemu.plugin.session import ToolemuSession, relative_path
from pytest_toolemu.sessions.store import RUNS
from pytest_toolemu.settings import OPTIONS

_RESUME: Final = "--toolemu-resume"
# The exit statuses of a session that ran all of its items.
_COMPLETE: Final = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)


def show(session: ToolemuSession, exitstatus: int) -> None:
    """Print the command if resuming the session would run further cases."""
    reason = _reason(session, exitstatus)
    reporter = session.config.pluginmanager.getplugin("terminalreporter")
    if not reason or reporter is None or not any(session.folder.glob("*.json")):
        return
    if _stopped_at_collection(reporter) and not any(session.folder.glob(RUNS)):
        return
    reporter.ensure_newline()
    reporter.write_line(f"toolemu: {reason}; resume with:", yellow=True)
    reporter.write_line(in_log(visible(command(session))))


def command(session: ToolemuSession) -> str:
    """Return the command of this session with ``--toolemu-resume=FOLDER``, quoted for a POSIX shell.

    It begins with the environment variables that this session took settings from, as they may not be exported.
    """
    invocation = session.config.invocation_params
    arguments = list(repeated(invocation.args))
    position = arguments.index("--") if "--" in arguments else len(arguments)
    arguments.insert(position, f"{_RESUME}={relative_path(session.folder)}")
    return " ".join([*_variables(session), shlex.join([*_program(), *arguments])])


def _reason(session: ToolemuSession, exitstatus: int) -> str:
    """Return why cases have no verdict that are run again on resuming; empty if there are none."""
    if exitstatus not in (*_COMPLETE, pytest.ExitCode.USAGE_ERROR):
        return "the session was interrupted" if exitstatus != pytest.ExitCode.INTERNAL_ERROR else "the session crashed"
    if not session.run_summaries:
        return ""
    from pytest_toolemu.analysis.run_summary import NOT_RUN

    rerun_outcomes = {NOT_RUN} | set(session.settings.resume_again) - {"none"}
    outcomes: Counter[str | None] = Counter(run.outcome for run in session.run_summaries.values())
    count = sum(outcomes[outcome] for outcome in rerun_outcomes)
    kept = sum(outcomes[outcome] for outcome in ("broken", "inconclusive") if outcome not in rerun_outcomes)
    others = f", and resuming keeps {kept} more" if kept else ""
    return f"{count} {'case is' if count == 1 else 'cases are'} left without a verdict{others}" if count else ""


def _stopped_at_collection(reporter: pytest.TerminalReporter) -> bool:
    """Return whether a file could not be collected; pytest then runs no test."""
    return any(isinstance(report, pytest.CollectReport) for report in reporter.stats.get("error", ()))


def _program() -> list[str]:
    """Return how pytest was started: by its script, or as a module of an interpreter."""
    original = sys.orig_argv
    if original[1:3] == ["-m", "pytest"] or original[1:2] == ["-mpytest"]:
        return [original[0], "-m", "pytest"]
    script = sys.argv[0]
    if Path(script).name not in ("pytest", "py.test"):  # pytest.main() of another program
        return ["pytest"]
    installed = shutil.which("pytest")
    return ["pytest"] if installed and Path(installed).resolve() == Path(script).resolve() else [script]


def _variables(session: ToolemuSession) -> Iterator[str]:
    sources = {setting.source for setting in session.settings.chosen.values()}
    names = [
        "PYTEST_ADDOPTS",
        *(each.variable for each in OPTIONS if each.variable in sources and each.option != _RESUME),
    ]
    for name in names:
        if value := os.environ.get(name):
            yield f"{name}={shlex.quote(value)}"


def repeated(arguments: Sequence[str | os.PathLike[str]]) -> Iterator[str]:
    """Yield the arguments without an earlier ``--toolemu-resume`` and its value, which may be an argument, too."""
    may_be_value = False
    for argument in map(str, arguments):
        option, equals, _ = argument.partition("=")
        if option == _RESUME:
            may_be_value = not equals
        elif may_be_value and not argument.startswith("-"):
            may_be_value = False
        else:
            may_be_value = False
            yield argument
