"""A running session, or one whose process died, as its live files show it."""

from __future__ import annotations

import contextlib
import shutil
import socket
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import time
from typing import Final, Literal

from pydantic import ValidationError

from pytest_toolemu.formats.compact_json import compact_json
from pytest_toolemu.formats.files.atomic_write import write_json_text
from pytest_toolemu.formats.files.private_folders import make_subfolder
from pytest_toolemu.formats.files.regular_files import read_regular
from pytest_toolemu.sessions.live_records import CaseInFlight, LiveProcess, SessionProgress
from pytest_toolemu.sessions.process_life import has_ended

LIVE: Final = "live"
"""Folder in a session's folder. It exists while the session runs, and after a crash."""

LifeSign = Literal["running", "silent", "died"]
"""The process runs; it has written nothing for a while; it has ended without removing its file."""

_MAX_BYTES: Final = 4 * 1024 * 1024
_MAX_FILES: Final = 1000
# Seconds without a sign of life after which a process may be hanging, or may have died on another computer.
_SILENT: Final = 30.0


@dataclass(frozen=True)
class LiveCase:
    """A case in flight with the process that runs it, and whether that process is alive."""

    case: CaseInFlight
    process: str
    life: LifeSign


@dataclass(frozen=True)
class LiveSession:
    """The processes of a session. ``life`` is that of the process that leads it."""

    processes: tuple[LiveProcess, ...]
    life: LifeSign
    updated: float
    cases: tuple[LiveCase, ...]
    progress: SessionProgress
    dead_workers: tuple[str, ...]
    """Names of the workers that died while the session continues."""


def write_live(folder: Path, process: LiveProcess) -> None:
    """Replace the live file of a process in the folder of its session. Raise OSError if the disk refuses.

    Only processes that lead a session create the folder: one that ends later must not create it again.
    """
    parent = folder / LIVE if process.progress is None else make_subfolder(folder, LIVE)
    path = parent / f"{process.process}.json"
    content = process.model_dump(mode="json", exclude_defaults=True)
    write_json_text(path, compact_json(content) + "\n", durable=False)


def remove_live(folder: Path, process: str = "") -> None:
    """Remove the live file of a process; without a name, those of all processes. Never raise OSError."""
    if process:
        with contextlib.suppress(OSError):
            (folder / LIVE / f"{process}.json").unlink()
            (folder / LIVE).rmdir()  # unless it has the files of other processes
    else:
        shutil.rmtree(folder / LIVE, ignore_errors=True)


def read_live(folder: Path) -> LiveSession | None:
    """Return a session that runs, or whose process died; None for one that has ended, or has not begun.

    Files that cannot be read are left out.
    """
    processes = tuple(_processes(folder / LIVE))
    if not processes:
        return None
    here, now = socket.gethostname(), time()
    lives = {one.process: _life(one, here, now) for one in processes}
    leading = [one for one in processes if one.progress is not None] or list(processes)
    signs = {lives[one.process] for one in leading}
    life: LifeSign = "running" if "running" in signs else "silent" if "silent" in signs else "died"
    cases = [LiveCase(case, one.process, lives[one.process]) for one in processes for case in one.cases]
    dead = tuple(one.process for one in processes if one not in leading and lives[one.process] == "died")
    return LiveSession(
        processes=processes,
        life=life,
        updated=max(one.updated for one in leading),
        cases=tuple(sorted(cases, key=lambda live: -live.case.seconds)),
        progress=_combined([one.progress for one in leading if one.progress is not None]),
        dead_workers=dead if life != "died" else (),
    )


def is_running(folder: Path) -> bool:
    """Return whether a session has neither ended nor died, as far as its live files show."""
    live = read_live(folder)
    return live is not None and live.life != "died"


def _processes(folder: Path) -> Iterator[LiveProcess]:
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == ".json")[:_MAX_FILES]
    except OSError:
        return
    for path in paths:
        with contextlib.suppress(OSError, ValidationError):
            yield LiveProcess.model_validate_json(read_regular(path, _MAX_BYTES))


def _life(process: LiveProcess, here: str, now: float) -> LifeSign:
    if process.host == here and has_ended(process.pid, process.started):
        return "died"
    return "silent" if now - process.updated > _SILENT else "running"


def _combined(parts: Sequence[SessionProgress]) -> SessionProgress:
    """Return the progress of all processes that lead a part: with ``--dist=each``, each worker runs all cases."""
    if len(parts) == 1:
        return parts[0]
    outcomes: Counter[str] = Counter()
    for part in parts:
        outcomes.update(part.outcomes)
    ends = [part.expected_end for part in parts if part.expected_end is not None]
    names = ("total", "completed", "resumed", "running", "stalled", "tokens")
    sums = {name: sum(getattr(part, name) for part in parts) for name in names}
    return SessionProgress.model_validate(
        {
            **sums,
            "outcomes": dict(outcomes),
            "cost": " + ".join(part.cost for part in parts if part.cost),
            "expected_end": max(ends, key=lambda end: end.seconds) if ends else None,
            "request_limits": tuple(limit for part in parts for limit in part.request_limits),
            "problems": tuple(dict.fromkeys(problem for part in parts for problem in part.problems)),
            "resume": parts[0].resume if parts else "",
            "directory": parts[0].directory if parts else "",
        }
    )
