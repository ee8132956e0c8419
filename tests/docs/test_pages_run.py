"""The commands of the docs pages are run in a fresh folder, with the files that the pages show.

A comment in front of a code block says what it is: ``<!-- file: PATH -->`` is the content of a file, ``<!-- run -->`` are
commands with patterns of their output (``<!-- run: exit=1 -->`` if the last one fails), ``<!-- start: NAME -->`` begins with a
copy of an example, and ``<!-- continue: PAGE -->`` with the files of another page.
"""

from __future__ import annotations

import fnmatch
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import processes

ROOT = Path(__file__).parents[2]
MARK = re.compile(
    r"<!-- (?P<kind>file|run|start|continue)(?:: (?P<value>[^\n]+?))? -->\n+(?:```\w+\n(?P<block>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)
PAGES = [
    page
    for page in sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
    if "<!-- run" in page.read_text(encoding="utf-8")
]


def test_some_pages_have_commands_to_run() -> None:
    assert {"README.md", "first-case.md", "your-own-agent.md", "gate-a-release.md"} <= {page.name for page in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_commands_of_a_page_work(page: Path, tmp_path: Path) -> None:
    for kind, value, block in marks(page):
        if kind == "run":
            follow(block, int(value.removeprefix("exit=") or 0), tmp_path)
        else:
            prepare(kind, value, block, tmp_path)


def marks(page: Path) -> Iterator[tuple[str, str, str]]:
    for match in MARK.finditer(page.read_text(encoding="utf-8")):
        yield match["kind"], match["value"] or "", match["block"] or ""


def prepare(kind: str, value: str, block: str, folder: Path) -> None:
    """Create the files that a comment other than ``run`` describes."""
    if kind == "start":
        shutil.copytree(ROOT / "examples" / value, folder, dirs_exist_ok=True)
    elif kind == "continue":
        for earlier_kind, earlier_value, earlier_block in marks(ROOT / value):
            if earlier_kind != "run":
                prepare(earlier_kind, earlier_value, earlier_block, folder)
    else:
        path = folder / value
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block, encoding="utf-8")


def follow(block: str, status: int, folder: Path) -> None:
    """Run the commands of a block in a shell; the last one must exit with the status and print the expected output."""
    commands = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    for number, command in enumerate(commands, 1):
        line, *patterns = command.splitlines()
        result = run(line, folder)
        output = result.stdout + result.stderr
        assert result.returncode == (status if number == len(commands) else 0), output
        lines = iter(output.splitlines())
        for pattern in patterns:
            assert pattern == "..." or any(fnmatch.fnmatchcase(text, escaped(pattern)) for text in lines), (
                f"no line is like {pattern!r}:\n{output}"
            )


def run(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a line in a shell; a single Python command in a fork, which skips the shell and the imports."""
    program, *arguments = shlex.split(line)
    unquoted = re.sub(r"'[^']*'", "", line)
    if program in ("pytest", "toolemu") and not set(unquoted) & set("|&;<>$`*?"):
        command = [sys.executable, str(Path(sys.executable).parent / program), *arguments]
        return processes.run(command, cwd=folder, env=environment())
    return subprocess.run(
        line,
        shell=True,
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def environment() -> dict[str, str]:
    """Return the environment variables of a reader: none of this session, and this environment's commands on the PATH."""
    variables = {
        name: value
        for name, value in os.environ.items()
        if name in ("HOME", "LANG", "TMPDIR") or name.startswith("PYTHON")
    }
    return {**variables, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def escaped(pattern: str) -> str:
    """Return a pattern in which only ``*`` is special."""
    return pattern.replace("[", "[[]").replace("?", "[?]")
