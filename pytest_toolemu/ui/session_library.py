"""The sessions below a run directory. Everything read is kept until its file changes."""

from __future__ import annotations

from pathlib import Path

from pytest_toolemu.core.run import Run
from pytest_toolemu.core.run_file import load_run
from pytest_toolemu.errors import ToolemuError
from pytest_toolemu.sessions.live_session import read_live
from pytest_toolemu.sessions.manifest_records import Manifest
from pytest_toolemu.sessions.reader import manifest_of
from pytest_toolemu.sessions.store import MANIFEST
from pytest_toolemu.ui.playground.play_records import FOLDER as PLAYGROUND
from pytest_toolemu.ui.resumed_sessions import ResumedSessions
from pytest_toolemu.ui.run_index import record_files, record_names
from pytest_toolemu.ui.session_folder import FolderState, SessionFolder, modified, session_folders, start_of
from pytest_toolemu.ui.session_reader import SessionReader


class SessionLibrary:
    """Finds sessions, and keeps what it read; for use by several threads. ``reader`` reads their runs."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.resolve()
        self.reader = SessionReader()
        self._resumed = ResumedSessions()
        self._manifests: dict[Path, tuple[int, Manifest, str]] = {}
        self._counts: dict[Path, tuple[FolderState, int]] = {}

    def sessions(self) -> list[SessionFolder]:
        """Return all sessions but those of the playground, the newest first; see ``_listed``."""
        return [session for session in self._listed() if session.is_measurement]

    def playground_sessions(self) -> list[SessionFolder]:
        """Return the sessions of the playground, the newest first; they are in no list and no figure."""
        return [session for session in self._listed() if not session.is_measurement]

    def newest_running(self) -> SessionFolder | None:
        """Return the session that began last of those that run now; None if none runs."""
        return next((session for session in self.sessions() if session.is_running), None)

    def session(self, session_id: str) -> SessionFolder | None:
        """Return the session with this ID; None if there is none."""
        folders = list(session_folders(self.directory))
        folder = next((folder for folder in folders if self.id_of(folder) == session_id), None)
        return None if folder is None else self._session(folder, folders)

    def id_of(self, folder: Path) -> str:
        """Return the part of URLs that names a session: its path below the run directory, on one level."""
        if folder == self.directory:
            return folder.name or "session"
        parts = folder.relative_to(self.directory).parts
        return "~.".join(part.replace("~", "~~") for part in parts)

    def load(self, session: SessionFolder, name: str) -> Run | None:
        """Return the run of a record, named by its file without the suffix; None if there is none."""
        names = {file.path.stem: file.path for file in record_files(session.folder)}
        return load_run(names[name]) if name in names else None

    def _listed(self) -> list[SessionFolder]:
        """Return all sessions, the newest first; their runs only if they were read before and are unchanged."""
        folders = list(session_folders(self.directory))
        sessions = [self._session(folder, folders, is_listed=True) for folder in folders]
        return sorted(sessions, key=lambda session: (session.started, session.id), reverse=True)

    def _session(self, folder: Path, folders: list[Path], *, is_listed: bool = False) -> SessionFolder:
        live = read_live(folder)
        has_died = live is not None and live.life == "died"
        state = FolderState.of(folder, is_running=live is not None and not has_died)
        runs = self.reader.cached(folder, state)
        # Manifests of the playground are small, and decide in which list the session is.
        is_cheap = runs is not None or folder.parent.name == PLAYGROUND
        manifest, problem = self._manifest(folder) if is_cheap or not is_listed else (Manifest(), "")
        resumed_by = self._resumed.resumed_by(folder, folders) if has_died else None
        return SessionFolder(
            id=self.id_of(folder),
            folder=folder,
            manifest=manifest,
            started=start_of(folder),
            records=self._count(folder, state),
            runs=runs,
            problem=problem,
            live=live,
            resumed_by=self.id_of(resumed_by) if resumed_by is not None else "",
        )

    def _count(self, folder: Path, state: FolderState) -> int:
        cached = self._counts.get(folder)
        if cached is None or cached[0] != state:
            cached = state, sum(1 for _ in record_names(folder))
            self._counts[folder] = cached
        return cached[1]

    def _manifest(self, folder: Path) -> tuple[Manifest, str]:
        changed = modified(folder / MANIFEST)
        cached = self._manifests.get(folder)
        if cached is None or cached[0] != changed:
            try:
                cached = (changed, manifest_of(folder), "")
            except ToolemuError as error:
                cached = (changed, Manifest(), str(error))
            self._manifests[folder] = cached
        return cached[1], cached[2]
