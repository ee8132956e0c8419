"""A running session, or one whose process died, as its live files show it."""

from __future__ import annotations

import contextlib
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path
from time import time
from typing import Final, Literal

from pydantic import Field, ValidationError

from pytest_toolemu.formats.file_access import make_subfolder, read_regular, write_atomically
from pytest_toolemu.formats.text import compact_json
from pytest_toolemu.formats.yaml_document import Record
from pytest_toolemu.sessions.manifest_records import Count, Number

LIVE: Final = "live"
"""Folder in a session's folder. It exists while the session runs, and after a crash."""

LifeSign = Literal["running", "silent", "died"]
"""The process runs; it has written nothing for a while; it has ended without removing its file."""

_MAX_BYTES: Final = 4 * 1024 * 1024
_MAX_FILES: Final = 1000
# Seconds without a sign of life after which a process may be hanging, or may have died on another computer.
_SILENT: Final = 30.0
_CLOCK: Final = 60.0


CaseStage = Literal["starting", "acting", "talking", "judging"]


class CaseInFlight(Record):
    """A case that a process is running."""

    item: str = Field(description="Node ID of the test item")
    case: str = Field(description="ID of the case")
    agent: str = Field(default="", description="Name of the agent")
    trial: Count = Field(default=1, description="Number of the trial, from 1")
    stage: CaseStage = Field(default="starting", description="What happens in the case")
    calls: Count = Field(default=0, description="Number of answered tool calls")
    tool: str = Field(default="", description="Tool whose call is being answered; empty if none is")
    seconds: Number = Field(default=0, description="Running time without pauses, in seconds")
    paused: bool = Field(default=False, description="Whether the case waits to send a request")


@dataclass(frozen=True)
class LiveCase:
    """A case in flight with the process that runs it, and whether that process is alive."""

    case: CaseInFlight
    process: str
    life: LifeSign


class RequestLimit(Record):
    """The limit of concurrent requests to one endpoint."""

    name: str = Field(description="Provider, model, and host")
    limit: Count = Field(description="Number of requests that may be in flight now")
    in_flight: Count = Field(description="Number of requests in flight")
    queued: Count = Field(description="Number of requests that wait for a permit")
    refused: Count = Field(description="Number of requests that the endpoint has refused for load")


class ExpectedEnd(Record):
    """An extrapolation of the remaining time, and its basis."""

    seconds: Count = Field(description="Estimated remaining time in seconds")
    elapsed: Number = Field(description="Seconds since the first case began")
    cases: Count = Field(description="Number of cases that were run in that time, without resumed ones")
    cases_left: Count = Field(description="Number of cases that still have to run")


class SessionProgress(Record):
    """What the process that leads a session knows of the whole session."""

    total: Count = Field(default=0, description="Number of cases")
    completed: Count = Field(default=0, description="Number of cases with a result")
    resumed: Count = Field(default=0, description="Number of those whose run is of an earlier session")
    running: Count = Field(default=0, description="Number of cases in flight, with those being written")
    stalled: Count = Field(default=0, description="Number of running cases that a provider makes wait")
    outcomes: dict[str, Count] = Field(default={}, description="Number of reported cases by outcome")
    tokens: Count = Field(default=0, description="Input and output tokens so far")
    cost: str = Field(default="", description="Cost so far in words; empty if no request was sent")
    budget: str = Field(default="", description="Limits of cost, tokens, and time in words; empty without any")
    expected_end: ExpectedEnd | None = Field(default=None, description="Estimate of the remaining time")
    request_limits: tuple[RequestLimit, ...] = Field(default=(), description="Limits of concurrent requests")
    problems: tuple[str, ...] = Field(default=(), description="Why requests to some provider are no longer sent")
    resume: str = Field(default="", description="Command that resumes the session")
    directory: str = Field(default="", description="Folder in which that command works")


class LiveProcess(Record):
    """A process of a running session. It replaces its file about once a second, and removes it when it ends."""

    process: str = Field(description="`main`, or the name of an xdist worker")
    pid: Count = Field(description="Process ID")
    started: Number = Field(description="Start of the process in seconds since the epoch")
    host: str = Field(description="Name of the computer")
    updated: Number = Field(description="When this was written, in seconds since the epoch")
    cases: tuple[CaseInFlight, ...] = Field(default=(), description="Cases in flight, the oldest first")
    progress: SessionProgress | None = Field(default=None, description="The session, if the process leads it")


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
    write_atomically(path, compact_json(content) + "\n", durable=False)


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
    read = []
    with contextlib.suppress(OSError):
        for path in sorted(path for path in (folder / LIVE).iterdir() if path.suffix == ".json")[:_MAX_FILES]:
            with contextlib.suppress(OSError, ValidationError):
                read.append(LiveProcess.model_validate_json(read_regular(path, _MAX_BYTES)))
    if not read:
        return None
    processes = tuple(read)
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
        progress=max(leading, key=lambda one: one.updated).progress or SessionProgress(),
        dead_workers=dead if life != "died" else (),
    )


def is_running(folder: Path) -> bool:
    """Return whether a session has neither ended nor died, as far as its live files show."""
    live = read_live(folder)
    return live is not None and live.life != "died"


def process_start(pid: int) -> float:
    """Return when a process started, in seconds since the epoch; 0 if there is none.

    With its start, a process differs from a later one with the same ID. A process that has ended and whose parent does
    not know it yet counts as ended.
    """
    from psutil import STATUS_ZOMBIE, Error, Process

    try:
        process = Process(pid)
        return 0 if process.status() == STATUS_ZOMBIE else process.create_time()
    except Error:
        return 0


def _life(process: LiveProcess, here: str, now: float) -> LifeSign:
    # The clock may have been set since, which moves the start of all processes a little.
    if process.host == here and abs(process_start(process.pid) - process.started) > _CLOCK:
        return "died"
    return "silent" if now - process.updated > _SILENT else "running"
