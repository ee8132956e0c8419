"""Reads the records of sessions. What was read is kept until a file of the session changes."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pytest_toolemu.errors import ToolemuError
from pytest_toolemu.reporting.report_data import garbage_collection_paused
from pytest_toolemu.sessions.live_session import is_running
from pytest_toolemu.sessions.reader import prices_of
from pytest_toolemu.ui.run_index import RunIndex, read_index, updated, write_index
from pytest_toolemu.ui.session_folder import FolderState, SessionFolder
from pytest_toolemu.ui.session_runs import SessionRuns, runs_of_index

_MANY: Final = 500
"""Records that are read while a browser waits."""

_SECONDS_TO_READ: Final = 0.5


@dataclass(frozen=True)
class ReadingProgress:
    """How many records of a session have been read, of all."""

    read: int
    total: int


class SessionReader:
    """Reads the runs of sessions, each once; for use by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[Path, threading.Lock] = {}
        self._progress: dict[Path, ReadingProgress] = {}
        self._indexes: dict[Path, RunIndex] = {}
        self._runs: dict[Path, tuple[FolderState, SessionRuns]] = {}

    def cached(self, folder: Path, state: FolderState) -> SessionRuns | None:
        """Return the runs that were read in this state of a folder; None if none were."""
        stored = self._runs.get(folder)
        return stored[1] if stored is not None and stored[0] == state else None

    def runs(self, session: SessionFolder) -> SessionRuns:
        """Return the runs of a session, and read those records that are new or changed."""
        with self._lock:
            lock = self._locks.setdefault(session.folder, threading.Lock())
        with lock:
            cached = self.cached(session.folder, _state(session.folder))
            if cached is not None:
                return cached
            try:
                with garbage_collection_paused():
                    runs = self._read(session)
            finally:
                self._progress.pop(session.folder, None)
            # Writing the index changes the folder.
            self._runs[session.folder] = (_state(session.folder), runs)
            return runs

    def runs_or_progress(self, session: SessionFolder) -> SessionRuns | ReadingProgress:
        """Return the runs of a session, or how many records have been read if there are many to read."""
        if session.runs is not None or session.records <= _MANY:
            return self.runs(session)
        thread = threading.Thread(target=self._read_quietly, args=[session], daemon=True)
        with self._lock:
            is_reading = session.folder in self._progress
            self._progress.setdefault(session.folder, ReadingProgress(0, session.records))
        if not is_reading:
            thread.start()
            thread.join(_SECONDS_TO_READ)
        with self._lock:
            progress = self._progress.get(session.folder)
        return self.runs(session) if progress is None else progress

    def _read_quietly(self, session: SessionFolder) -> None:
        """Read the runs of a session; what goes wrong is raised again when its runs are requested."""
        try:
            with contextlib.suppress(ToolemuError, OSError):
                self.runs(session)
        finally:
            self._progress.pop(session.folder, None)

    def _read(self, session: SessionFolder) -> SessionRuns:
        folder = session.folder
        prices = prices_of(folder)
        version = str(session.manifest.settings.get("prices"))
        before = self._indexes.get(folder) or read_index(folder, version)

        def report(read: int, total: int) -> None:
            self._progress[folder] = ReadingProgress(read, total)

        index, changed = updated(folder, before, prices, report)
        if changed:
            write_index(folder, index)
        self._indexes[folder] = index
        return runs_of_index(folder, session.manifest, index)


def _state(folder: Path) -> FolderState:
    return FolderState.of(folder, is_running=is_running(folder))
