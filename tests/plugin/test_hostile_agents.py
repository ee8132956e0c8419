"""Agents that change state of the whole process: they may break their own cases, and nothing else."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import Project

AGENT = """
import asyncio, builtins, json, locale, logging, os, sys, tempfile, threading, time, warnings

def replacement(*arguments, **options):
    raise RuntimeError("replaced by the agent")

def agent(task, toolbox):
    toolbox.call("Till_Look", {{"who": task.split()[1]}})
    {change}
    return "Shall I?"
"""
REPLACED = [
    "asyncio.get_running_loop",
    "asyncio.run_coroutine_threadsafe",
    "asyncio.wait",
    "builtins.open",
    "builtins.print",
    "json.loads",
    "os.fsync",
    "os.replace",
    "threading.Thread",
    "time.monotonic",
    "time.perf_counter",
    "time.sleep",
    "time.time",
    "warnings.warn",
]
CHANGES = {
    "recursion limit": "sys.setrecursionlimit(60)",
    "working directory": "folder = tempfile.mkdtemp(); os.chdir(folder); os.rmdir(folder)",
    "environment": "os.environ.clear()",
    "standard streams": "sys.stdout = sys.stderr = None",
    "switch interval": "sys.setswitchinterval(1)",
    "logging": "logging.disable()",
    "warnings": "warnings.simplefilter('error')",
    "hooks": "sys.excepthook = threading.excepthook = sys.unraisablehook = replacement",
    "locale": "locale.setlocale(locale.LC_ALL, 'C')",
    "umask": "os.umask(0o077)",
}


def run(project: Project, change: str) -> pytest.RunResult:
    project.write("actors.py", AGENT.format(change=change))
    # pytest-timeout uses the functions that these agents replace, and these tests are not about it.
    return project.run("-p", "no:rerunfailures", "-p", "no:timeout", "--toolemu-agent=actors:agent")


@pytest.mark.parametrize("name", REPLACED)
def test_a_library_function_that_an_agent_replaces_does_not_break_the_session(alone: Project, name: str) -> None:
    result = run(alone, f"{name} = replacement")
    result.assert_outcomes(passed=2)
    assert result.ret == 0, result.stdout.str() + result.stderr.str()
    assert [run.outcome for run in alone.runs()] == ["passed"] * 2


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_process_wide_settings_of_an_agent_do_not_break_the_session(alone: Project, change: str) -> None:
    result = run(alone, change)
    result.assert_outcomes(passed=2)
    assert result.ret == 0, result.stdout.str() + result.stderr.str()
    assert [run.outcome for run in alone.runs()] == ["passed"] * 2


@pytest.mark.parametrize("name", ["json.dumps", "hashlib.sha256"])
def test_a_function_that_cases_need_breaks_them_with_the_agents_line(project: Project, name: str) -> None:
    result = run(project, f"import hashlib; {name} = replacement")
    output = result.stdout.str()
    assert "INTERNALERROR" not in output
    assert set(result.parseoutcomes()) <= {"passed", "error", "errors"}
    assert result.ret == 1
    assert "RuntimeError: replaced by the agent" in output
    assert "actors.py" in output
