"""Threads and processes that the code of tested agents leaves behind.

Python does not record who started a thread or a process. Therefore, everything counts as an agent's unless it existed
before the cases, or appeared while the main thread ran a test or set up a fixture of the project.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

# Bound now: an agent may replace these functions in their modules.
from io import FileIO
from pathlib import Path
from time import monotonic, sleep
from types import FrameType
from typing import Final

from pytest_toolemu.formats.truncation import truncated
from pytest_toolemu.formats.visible_text import in_log, visible
from pytest_toolemu.scheduling.event_loop import project_location

MARKER: Final = "PYTEST_TOOLEMU_STARTED_BY"
"""The environment variable by which a process is recognized whose parent has ended. Linux only."""

# Helpers of multiprocessing, which end by themselves when this process does.
_HELPERS: Final = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
_COMMAND_LENGTH: Final = 120
_TERMINATION_SECONDS: Final = 1.0
_TICK: Final = 0.05


@dataclass(frozen=True)
class Process:
    """A running process: its number and its command line."""

    pid: int
    command: str


class Leftovers:
    """Distinguishes what agents started from what was there before and from what the project's own tests started."""

    def __init__(self) -> None:
        self._threads = set(threading.enumerate())
        self._processes = set(_children(os.getpid()))
        self._token = f"{os.getpid()}-{secrets.token_hex(8)}"
        os.environ[MARKER] = self._token

    def close(self) -> None:
        """Remove the marker from the environment."""
        os.environ.pop(MARKER, None)

    @contextlib.contextmanager
    def exempt(self) -> Iterator[None]:
        """Exempt the threads and processes that the main thread starts inside this block."""
        threads, processes = set(threading.enumerate()), _children_of_main_thread()
        marker = os.environ.pop(MARKER, None)
        try:
            yield
        finally:
            if marker is not None:
                os.environ[MARKER] = marker
            self._threads |= set(threading.enumerate()) - threads
            self._processes |= _children_of_main_thread() - processes

    def threads(self) -> list[threading.Thread]:
        """List the agents' threads that keep this process from ending."""
        return [thread for thread in _blocking_threads() if thread not in self._threads]

    def other_threads(self) -> list[threading.Thread]:
        """List the threads that keep this process from ending and that no agent started."""
        return [thread for thread in _blocking_threads() if thread in self._threads]

    def processes(self) -> list[Process]:
        """List the agents' processes: descendants of this process, and those that carry its marker. Linux only."""
        processes = {}
        statuses, own = _statuses(), os.getpid()
        # An older process than this one cannot have its environment; to read those of all processes would take long.
        oldest = statuses[own].start if own in statuses else 0
        for pid, status in statuses.items():
            line = list(_lineage(pid, statuses))
            if pid == own or self._processes.intersection(line):
                continue
            if own in line or (status.start >= oldest and self._is_marked(pid)):
                command = _command(pid)
                if command and not any(helper in command for helper in _HELPERS):
                    processes[pid] = Process(pid, command)
        return list(processes.values())

    def terminate(self) -> None:
        """End the agents' processes: with SIGTERM, a second later with SIGKILL, and again those they started then."""
        for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGKILL):
            if not (processes := self.processes()):  # each search reads all of /proc
                return
            for process in processes:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(process.pid, number)
            deadline = monotonic() + _TERMINATION_SECONDS
            while self.processes() and monotonic() < deadline:
                sleep(_TICK)

    def _is_marked(self, pid: int) -> bool:
        return f"{MARKER}={self._token}".encode() in _read(f"/proc/{pid}/environ").split(b"\0")


def described(threads: Iterable[threading.Thread], processes: Iterable[Process]) -> list[str]:
    """Name each thread with the place where it hangs, and each process with its command line."""
    frames = sys._current_frames()
    texts = [f"thread {thread.name!r} {place_of(frames.get(thread.ident or 0))}" for thread in threads]
    texts += [f"process {process.pid}: {_shortened(process.command)}" for process in processes]
    return [in_log(visible(" ".join(line.split()))) for line in texts]


def place_of(frame: FrameType | None) -> str:
    """Return where a thread is: in the project's own code if possible, else in its innermost function."""
    if frame is None:
        return "(no Python code)"
    inner = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} ({frame.f_code.co_name})"
    return f"at {project_location(frame) or inner}"


def _blocking_threads() -> list[threading.Thread]:
    frames = sys._current_frames()
    others = (thread for thread in threading.enumerate() if thread is not threading.main_thread())
    return [thread for thread in others if _blocks_exit(thread, frames.get(thread.ident or 0))]


def _blocks_exit(thread: threading.Thread, frame: FrameType | None) -> bool:
    """Return whether the interpreter waits for the thread when it ends, as it also does for busy threads of a pool."""
    outer = _pool_frame(frame)
    return frame is not outer if outer is not None else not thread.daemon


def _pool_frame(frame: FrameType | None) -> FrameType | None:
    """Find the frame of ``concurrent.futures`` that takes calls from the pool's queue; innermost while it is idle."""
    while frame is not None:
        code = frame.f_code
        if code.co_name == "_worker" and code.co_filename.endswith(str(Path("concurrent", "futures", "thread.py"))):
            return frame
        frame = frame.f_back
    return None


def _shortened(command: str) -> str:
    return truncated(command, _COMMAND_LENGTH)


# ---- /proc; without it, there are no processes to be found


def _read(path: str) -> bytes:
    try:
        with FileIO(path) as file:  # a third faster than a buffered file, for hundreds of files
            return file.readall()
    except OSError:
        return b""


def _children(pid: int) -> set[int]:
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return {int(child) for path in lists for child in _read(str(path)).split()}


def _children_of_main_thread() -> set[int]:
    return {int(child) for child in _read(f"/proc/{os.getpid()}/task/{os.getpid()}/children").split()}


@dataclass(frozen=True)
class _Status:
    """The parent of a process, and its start in clock ticks since the start of the machine."""

    parent: int
    start: int


def _statuses() -> dict[int, _Status]:
    """Return the status of each process, without zombies."""
    statuses = {}
    with contextlib.suppress(OSError):
        for folder in Path("/proc").iterdir():
            fields = _read(f"{folder}/stat").rpartition(b")")[2].split() if folder.name.isdecimal() else []
            if fields and fields[0] != b"Z":
                statuses[int(folder.name)] = _Status(int(fields[1]), int(fields[19]))
    return statuses


def _lineage(pid: int, statuses: dict[int, _Status]) -> Iterator[int]:
    """Yield the process, its parent, and so on."""
    visited = set()
    while pid and pid not in visited:
        visited.add(pid)
        yield pid
        pid = statuses[pid].parent if pid in statuses else 0


def _command(pid: int) -> str:
    return _read(f"/proc/{pid}/cmdline").replace(b"\0", b" ").decode("utf-8", "replace").strip()
