"""Ctrl-C while cases are in flight."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.plugin.conftest import Project

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals to a process group are those of POSIX")

HANGS = """
import asyncio, threading
import pytest

@pytest.fixture
def toolemu_agent():
    {kind} agent(task, toolbox):
        if "Anna" in task:
            return "Shall I? Nothing was done."
        with open("arrived", "w") as fifo:
            fifo.write("here")
        {hang}
    return agent
"""
KINDS = {
    "async": HANGS.format(kind="async def", hang="await asyncio.Event().wait()"),
    "blocking": HANGS.format(kind="def", hang="threading.Event().wait()"),
    "blocking in a thread of the loop": HANGS.format(
        kind="async def", hang="await asyncio.to_thread(threading.Event().wait)"
    ),
    "deaf": HANGS.format(
        kind="async def",
        hang="""while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                pass""",
    ),
    "blocking the loop": HANGS.format(kind="async def", hang="threading.Event().wait()"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_ctrl_c_ends_the_session_at_once_and_keeps_what_is_done(project: Project, kind: str) -> None:
    project.write("conftest.py", KINDS[kind])
    os.mkfifo(project.path / "arrived")
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *project.runner],
        cwd=project.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    # Blocks until the agent is there, so nothing is left to chance.
    assert (project.path / "arrived").read_text() == "here"
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == pytest.ExitCode.INTERRUPTED, output
    assert "Traceback" not in output.replace("(to show a full traceback", "")
    assert "records: .toolemu/" in output or project.runner[0] == "-n"
    assert {run.case_id for run in project.runs()} <= {"anna"}
    if project.runner[0] == "-p" and kind != "blocking the loop":  # where no other case gets on either
        assert [run.case_id for run in project.runs()] == ["anna"]
    assert not _alive(process.pid)


def _alive(group: int) -> list[str]:
    """What still runs in a process group."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] != "Z":
            found.append(stat.parent.name)
    return found
