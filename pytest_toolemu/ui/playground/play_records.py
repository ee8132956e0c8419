"""Stores the runs of plays in a session of their own, which is marked, and which no command takes for a measurement."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pytest_toolemu.core.run import Run
from pytest_toolemu.sessions.session_id import session_id
from pytest_toolemu.sessions.single_run import stored
from pytest_toolemu.sessions.store import RunStore
from pytest_toolemu.settings import Settings

FOLDER: Final = "playground"
"""The folder of all playground sessions in a run directory. Commands look for ``latest`` one level above."""


class PlayRecords:
    """The session of one start of the application. Its folder is created with the first record."""

    def __init__(self, directory: Path) -> None:
        self._parent = directory / FOLDER
        self._store: RunStore | None = None
        self._runs: list[Run] = []

    def put(self, run: Run, play_id: str, settings: Settings) -> tuple[Run, Path]:
        """Store the run of a play; return it and its file. Raise OSError if the disk refuses."""
        if self._store is None:
            is_private = settings.run_dir_mode == "private"
            self._store = RunStore.create(self._parent, session_id(), private=is_private)
        run, path = stored(self._store, [*self._runs, run], settings, f"play {play_id}", is_played=True)
        self._runs.append(run)
        return run, path
