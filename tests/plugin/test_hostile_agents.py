"""Agents that change state of the whole process: they may break their own cases, and nothing else."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import Project

AGENT = """
import locale, logging, os, sys, tempfile, warnings

def agent(task, toolbox):
    toolbox.call("Till_Look", {{"who": task.split()[1]}})
    {change}
    return "Shall I?"
"""
CHANGES = {
    "recursion limit": "sys.setrecursionlimit(60)",
    "working directory": "folder = tempfile.mkdtemp(); os.chdir(folder); os.rmdir(folder)",
    "environment": "os.environ.clear()",
    "standard streams": "sys.stdout = sys.stderr = None",
    "switch interval": "sys.setswitchinterval(1)",
    "logging": "logging.disable()",
    "warnings": "warnings.simplefilter('error')",
    "locale": "locale.setlocale(locale.LC_ALL, 'C')",
    "umask": "os.umask(0o077)",
}


def run(project: Project, change: str) -> pytest.RunResult:
    project.write("actors.py", AGENT.format(change=change))
    return project.run("--toolemu-agent=actors:agent")


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_process_wide_settings_of_an_agent_do_not_break_the_session(alone: Project, change: str) -> None:
    result = run(alone, change)
    result.assert_outcomes(passed=2)
    assert result.ret == 0, result.stdout.str() + result.stderr.str()
    assert [run.outcome for run in alone.runs()] == ["passed"] * 2
