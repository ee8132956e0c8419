"""Session arguments of commands: a folder, or ``latest``."""

from __future__ import annotations

import contextlib
import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import typer

from pytest_toolemu.cli.common import err
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.text import counted

# The files from which pytest may read the ini key toolemu_run_dir.
_INI_FILES: Final = ("pytest.toml", "pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
_RUN_DIR: Final = re.compile(r"^[ \t]*toolemu_run_dir[ \t]*=(.*)$", re.MULTILINE)


def session_folder(text: str) -> Path:
    """Return the session folder for an argument; for ``latest``, the newest session, or UsageError if there is none."""
    from pytest_toolemu.settings.option_table import LATEST

    if text != LATEST:
        return Path(text)
    folder = _latest()
    err.print(f"{LATEST}: {folder}")
    return folder


_SESSIONS: Final = typer.Argument(
    parser=session_folder,
    metavar="SESSION",
    help="Session folders, as printed after 'records:' at the end of a session; latest is the newest session.",
)
Sessions = Annotated[list[Path], _SESSIONS]
OptionalSessions = Annotated[list[Path] | None, _SESSIONS]
Session = Annotated[Path, typer.Argument(parser=session_folder, metavar="SESSION", help="Session folder, or latest.")]


def note_superseded(folders: list[Path]) -> None:
    """Print how many runs are in several of these sessions, or have several evaluations; each run counts once."""
    from pytest_toolemu.sessions.reader import newest_evaluations, run_files, superseded_files
    from pytest_toolemu.sessions.store import RUNS

    sessions_of = Counter(path.name for folder in set(folders) for path in folder.glob(RUNS))
    repeated = {name for name, sessions in sessions_of.items() if sessions > 1}
    if count := len(repeated | {path.name for path in superseded_files(folders)}):
        runs, verb = counted(count, "run"), "is" if count == 1 else "are"
        err.print(
            f"note: {runs} {verb} in several of these sessions; only the one in the session that resumed the others "
            "counts, or else the one in the last session"
        )
    files = run_files(folders)
    if count := len(files) - len(newest_evaluations(files)):
        err.print(
            f"note: {count:,} older evaluations of runs that were judged again are ignored; each run counts once, "
            "with its newest evaluation"
        )


def _latest() -> Path:
    """Return the newest session of the project.

    A session without runs counts too, because an older session must not be taken for the newest.
    """
    from pytest_toolemu.sessions.store import MANIFEST

    searched = list(_run_directories())
    for directory in searched:
        # Names of sessions begin with their time; folders with other names were created by the user.
        if folders := sorted(path.parent for path in directory.glob(f"2*-*/{MANIFEST}")):
            return Path(os.path.relpath(folders[-1]))
    start = os.path.relpath(searched[0])
    raise UsageError(
        f"latest: there is no session in {start} or in a folder above it; run pytest with --toolemu-agent first, name "
        "the folder of a session, or set TOOLEMU_RUN_DIR if sessions are kept elsewhere"
    )


def run_directory() -> Path:
    """Return the run directory of the project; UsageError if neither the current folder nor one above it has any."""

    searched = list(_run_directories())
    existing = next((directory for directory in searched if directory.is_dir()), None)
    if existing is None:
        raise UsageError(
            f"there is no run directory {os.path.relpath(searched[0])} here or in a folder above; run pytest with "
            "--toolemu-agent first, or name the folder of your sessions"
        )
    return Path(os.path.relpath(existing))


def _run_directories() -> Iterator[Path]:
    """Yield the run directory of the current folder, then of the folders above it, up to the root of the project."""
    from pytest_toolemu.settings.resolution import toolemu_variables

    current_folder = Path.cwd()
    for folder in (current_folder, *current_folder.parents):
        variables = toolemu_variables(folder / ".env") | os.environ
        yield folder / (variables.get("TOOLEMU_RUN_DIR") or _from_ini(folder) or ".toolemu")
        if any((folder / name).exists() for name in (".git", *_INI_FILES)):
            return


def _from_ini(folder: Path) -> str:
    """Return ``toolemu_run_dir`` from the folder's ini file; empty without a readable one."""
    for name in _INI_FILES:
        with contextlib.suppress(OSError, ValueError):
            if match := _RUN_DIR.search((folder / name).read_text(encoding="utf-8")):
                return match[1].strip().strip("\"'")
    return ""
