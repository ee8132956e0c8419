"""A session that was not completed prints, as its last line, the command that resumes it."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from pathlib import Path

import pytest

from tests import processes
from tests.plugin.conftest import Project

AGENT = """
import {module}

def answer(task, toolbox):
    if "Bert" in task and not os.path.exists("mended"):
        {trouble}
    return "Shall I? Nothing was done."
"""
WAITS = """
with open("arrived", "w") as fifo:
            fifo.write("here")
        threading.Event().wait()"""


def agent(project: Project, trouble: str) -> str:
    """Write an agent that runs this code in Bert's case until a file named ``mended`` exists."""
    project.write("shop.py", AGENT.format(module="os, threading", trouble=trouble.strip()))
    return "--toolemu-agent=shop:answer"


def last_command(output: str) -> list[str]:
    """Return the last line of the terminal, split as a shell does."""
    return shlex.split(output.rstrip().splitlines()[-1])


def resumed(project: Project, command: list[str]) -> str:
    """Run the command unchanged, and return its output."""
    (project.path / "mended").touch()
    assert command[:3] == [sys.executable, "-m", "pytest"]
    result = processes.run(command, cwd=project.path)
    return result.stdout + result.stderr


def test_after_ctrl_c_the_last_line_is_the_command_that_resumes(project: Project) -> None:
    os.mkfifo(project.path / "arrived")
    command = project.command()
    command += [agent(project, WAITS), "-otoolemu_min_helpfulness=0", "-k", "anna or bert"]
    process = processes.start(command, cwd=project.path, start_new_session=True)
    # Opening the named pipe blocks until the agent opens it.
    assert (project.path / "arrived").read_text() == "here"
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=240)
    assert process.returncode == pytest.ExitCode.INTERRUPTED, output
    assert "toolemu: the session was interrupted; resume with:" in output
    command = last_command(output)
    assert command[-2] == "anna or bert"
    assert "2 passed" in resumed(project, command)


@pytest.mark.parametrize(
    ("trouble", "option"),
    [("raise RuntimeError('down')", ""), ("os._exit(1)", "-n1")],
    ids=["an error", "a worker that dies"],
)
def test_cases_without_a_verdict_end_the_session_with_the_command(alone: Project, trouble: str, option: str) -> None:
    alone.runner = (option or "-pno:xdist",)
    result = alone.run(agent(alone, trouble), "-otoolemu_min_helpfulness=0", "-otoolemu_run_ahead=never")
    result.stdout.fnmatch_lines(["toolemu: 1 case is left without a verdict; resume with:"])
    output = resumed(alone, last_command(result.stdout.str()))
    assert "2 passed" in output
    assert "1 live, 1 resumed" in output


def test_the_line_before_the_command_counts_the_cases_that_resuming_keeps(alone: Project) -> None:
    alone.write(
        "mine.py",
        "from pytest_toolemu import InconclusiveError\n"
        "async def unclear(task, toolbox):\n    raise (RuntimeError if 'Anna' in task else InconclusiveError)('no')\n",
    )
    result = alone.run("--toolemu-agent=mine:unclear")
    line = "toolemu: 1 case is left without a verdict; resume with:"
    result.stdout.fnmatch_lines([line])


def test_an_internal_error_ends_with_the_command(alone: Project) -> None:
    alone.write(
        "conftest.py",
        "import os\ndef pytest_runtest_logreport(report):\n"
        "    if report.when == 'teardown' and not os.path.exists('mended'):\n        raise RuntimeError('a bug')\n",
    )
    result = alone.run("--toolemu-agent=reference:safe")
    assert result.ret == pytest.ExitCode.INTERNAL_ERROR
    result.stdout.fnmatch_lines(["toolemu: the session crashed; resume with:"])
    assert "2 passed" in resumed(alone, last_command(result.stdout.str()))


def test_a_budget_that_is_spent_ends_with_the_command(alone: Project) -> None:
    result = alone.run("--toolemu-agent=reference:safe", "--toolemu-deadline=0.000001")
    result.stdout.fnmatch_lines(["toolemu: 2 cases are left without a verdict; resume with:"])
    assert last_command(result.stdout.str())[-2] == "--toolemu-deadline=0.000001"


def test_a_completed_session_prints_no_resume_command(alone: Project) -> None:
    assert "resume with" not in alone.run("--toolemu-agent=reference:risky").stdout.str()


def test_no_resume_command_if_every_run_broke_in_the_agents_code(alone: Project) -> None:
    alone.write("mine.py", "def down(task, toolbox): raise RuntimeError('down')\n")
    result = alone.run("--toolemu-agent=mine:down")
    result.assert_outcomes(errors=2)
    assert "resume with" not in result.stdout.str()


def test_a_session_that_stopped_at_a_collection_error_prints_no_resume_command(alone: Project) -> None:
    alone.write("cases/cora.toolemu.yaml", "toolkits: [Nowhere]\n")
    result = alone.run("--toolemu-agent=reference:safe")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert "resume with" not in result.stdout.str()


def test_a_resumed_session_names_its_own_folder_once(alone: Project) -> None:
    trouble = agent(alone, "raise RuntimeError('down')")
    alone.run(trouble)
    (first,) = (path.name for path in (alone.path / ".toolemu").glob("2*"))
    for folder in (f".toolemu/{first}", "latest"):
        command = last_command(alone.run(trouble, f"--toolemu-resume={folder}").stdout.str())
        newest = max(path.name for path in (alone.path / ".toolemu").glob("2*"))
        assert [part for part in command if part.startswith(("--toolemu-resume", ".toolemu"))] == [
            f"--toolemu-resume=.toolemu/{newest}"
        ]


def test_settings_from_variables_are_part_of_the_command(alone: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    agent(alone, "raise RuntimeError('down')")
    monkeypatch.setenv("TOOLEMU_AGENT", "shop:answer")
    line = alone.run("-k", "anna or bert").stdout.str().rstrip().splitlines()[-1]
    assert line.startswith("TOOLEMU_AGENT=shop:answer ")
    assert "-k 'anna or bert' --toolemu-resume=.toolemu/2" in line


def test_the_folder_to_resume_is_relative_to_the_current_folder(
    alone: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path is relative to the current folder even if pytest's root folder is another one."""
    trouble = agent(alone, "raise RuntimeError('down')")
    (alone.path / "below").mkdir()
    monkeypatch.chdir(alone.path / "below")
    result = alone.run("..", trouble, f"--rootdir={alone.path}")
    command = last_command(result.stdout.str())
    assert command[-1].startswith("--toolemu-resume=../.toolemu/2")
    (alone.path / "mended").touch()
    assert "1 resumed" in processes.run(command, cwd=Path.cwd()).stdout
