"""The output of agents is shown with their own case, whenever it runs, and without secrets."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import processes
from tests.plugin.conftest import Project

NAMES = [f"p{number}" for number in range(10)]
MODES = {
    "alone": ["-p", "no:xdist"],
    "never ahead": ["-p", "no:xdist", "-otoolemu_run_ahead=never"],
    "workers": ["-n2"],
}

PRINTS = """
import asyncio, os, sys, warnings

def inner(name):
    print("thread of", name)

async def agent(task, toolbox):
    name = task.split()[1]
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        stream.write(f"text of {name} {os.environ['CANARY_TOKEN']}\\n")
        await asyncio.sleep(0)
    await asyncio.to_thread(inner, name)
    await toolbox.call("Till_Pay", {"who": name, "amount": 900})
    return "Shall I?"
"""
SECRET = "canary-0123456789"


@pytest.fixture
def crowd(alone: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Return a project with ten cases, which all fail, and an agent that prints."""
    alone.runner = ()
    alone.replace_cases(NAMES)
    alone.write("actors.py", PRINTS)
    monkeypatch.setenv("CANARY_TOKEN", SECRET)
    return alone


def run(project: Project, *args: str) -> pytest.RunResult:
    return project.run("--toolemu-agent=actors:agent", *args)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("capture", ["fd", "sys"])
def test_output_is_shown_with_its_own_case_and_nowhere_else(crowd: Project, mode: str, capture: str) -> None:
    result = run(crowd, f"--capture={capture}", *MODES[mode])
    output = result.stdout.str()
    for name in NAMES:
        own = output.partition(f"_ {name}[actors:agent] _")[2].partition("_ p")[0]
        assert own.count(f" of {name.title()} [CANARY_TOKEN redacted]") == 4, own
        assert own.count(f"thread of {name.title()}") == 1
        assert [own.count(f"Captured {stream} setup") for stream in ("stdout", "stderr")] == [1, 1]
    assert len(re.findall(" of P", output)) == 5 * len(NAMES)
    assert " of P" not in result.stderr.str()
    assert SECRET not in output


def test_without_capturing_whole_lines_are_shown_at_once_without_secrets(crowd: Project) -> None:
    result = run(crowd, "-s", "-p", "no:xdist")
    lines = [*result.outlines, *result.errlines]
    assert len([line for line in lines if re.search(r"text of P\d \[CANARY_TOKEN redacted\]$", line)]) == 4 * len(NAMES)
    assert not [line for line in lines if "Captured std" in line or SECRET in line]


def test_output_in_workers_is_collected_even_without_capturing(crowd: Project) -> None:
    """xdist does not show what its workers print."""
    result = run(crowd, "-s", "-n2")
    assert result.stdout.str().count("[CANARY_TOKEN redacted]") == 4 * len(NAMES)
    assert " of P" not in result.stderr.str()


def test_with_tee_capturing_output_is_shown_at_once_and_with_its_case(crowd: Project) -> None:
    output = run(crowd, "--capture=tee-sys", "-p", "no:xdist").stdout.str()
    for name in NAMES:
        assert output.count(f"thread of {name.title()}\n") == 2
        assert output.partition(f"_ {name}[actors:agent] _")[2].partition("_ p")[0].count("thread of") == 1
    assert SECRET not in output


def test_text_without_a_line_end_is_shown_when_it_is_flushed(crowd: Project) -> None:
    crowd.write(
        "actors.py",
        "import sys\nasync def agent(task, toolbox):\n"
        "    print('name? ', end='', flush=True)\n"
        "    sys.__stderr__.write('flushed first\\n')\n"
        "    print('no end', end='')\n"
        "    return 'Shall I?'\n",
    )
    crowd.run("--toolemu-agent=actors:agent", "-s", "-k", "p0").stdout.fnmatch_lines(["*name? no end*"])


@pytest.mark.parametrize("mode", MODES)
def test_output_of_a_broken_case_is_shown(crowd: Project, mode: str) -> None:
    crowd.write(
        "actors.py",
        "def agent(task, toolbox):\n    print('before the error of', task.split()[1])\n    raise ValueError(task)\n",
    )
    output = run(crowd, *MODES[mode]).stdout.str()
    for name in NAMES:
        own = output.partition(f"_ ERROR at setup of {name}[actors:agent] _")[2].partition("_ ERROR")[0]
        assert f"before the error of {name.title()}" in own, output


def test_output_of_an_agent_that_never_ends_is_shown_with_its_timeout(crowd: Project) -> None:
    crowd.write(
        "actors.py",
        "import asyncio\nasync def agent(task, toolbox):\n    print('waits')\n    await asyncio.Event().wait()\n",
    )
    output = run(crowd, "-k", "p0", "--toolemu-timeout=0.1").stdout.str()
    assert "waits" in output.partition("Captured stdout setup")[2]


def test_a_flood_of_output_is_cut_at_its_beginning(crowd: Project) -> None:
    crowd.write(
        "actors.py",
        "async def agent(task, toolbox):\n"
        "    print('the beginning')\n"
        "    for _ in range(300):\n        print('x' * 10_000)\n"
        "    print('the end')\n"
        "    return 'Shall I?'\n",
    )
    output = run(crowd, "-k", "p0").stdout.str()
    assert "[the beginning was dropped; the last 100,000 characters follow]" in output
    assert "the end" in output
    assert output.count("x" * 10_000) == 9


@pytest.mark.skipif(sys.platform == "win32", reason="signals are those of POSIX")
@pytest.mark.parametrize("mode", ["alone", "workers"])
def test_output_of_interrupted_cases_is_in_a_file_that_the_summary_names(crowd: Project, mode: str) -> None:
    crowd.write(
        "actors.py",
        "import asyncio, os\nasync def agent(task, toolbox):\n"
        "    print('in flight', task.split()[1], os.environ['CANARY_TOKEN'])\n"
        "    if 'P0' in task:\n        open('arrived', 'w').write('here')\n"
        "        await asyncio.Event().wait()\n"
        "    return 'Shall I?'\n",
    )
    fifo = crowd.path / "arrived"
    os.mkfifo(fifo)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--toolemu-agent=actors:agent", *MODES[mode]]
    process = processes.start(command, cwd=crowd.path, start_new_session=True)
    assert fifo.read_text() == "here"
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=240)
    assert process.returncode == pytest.ExitCode.INTERRUPTED, output
    named = re.search(r"of cases after their end:\s+(\S+)", output)
    assert named, output
    saved = (crowd.path / Path(named[1])).read_text()
    assert "p0[actors:agent]: stdout\nin flight P0 [CANARY_TOKEN redacted]\n" in saved
    assert "in flight P0" not in output  # another worker may have finished a case


def test_the_output_of_other_tests_is_shown_with_those_tests(crowd: Project) -> None:
    crowd.write(
        "test_own.py",
        "import sys\ndef test_own():\n    print('own text')\n    assert sys.stdout.write('') == 0, 1\n    raise KeyError\n",
    )
    output = run(crowd, "-p", "no:xdist").stdout.str()
    assert "own text" in output.partition("test_own _")[2].partition("Captured stdout call")[2].partition("_ p")[0]


def test_a_debugger_in_an_agent_can_be_used(crowd: Project) -> None:
    crowd.write(
        "actors.py", "def agent(task, toolbox):\n    answer = 'Shall I?'\n    breakpoint()\n    return answer\n"
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "--toolemu-agent=actors:agent",
    ]
    debugger_commands = "p answer.upper()\nc\n"
    process = subprocess.run(
        [*command, "-k", "p0"],
        check=False,
        cwd=crowd.path,
        input=debugger_commands,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "'SHALL I?'" in process.stdout
