"""The folders of sessions below a run directory, and what is known of each."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pytest_toolemu.core.run_file import PARTS
from pytest_toolemu.sessions.live_session import LiveSession
from pytest_toolemu.sessions.manifest_records import Manifest
from pytest_toolemu.sessions.shard_assignment import SHARD_MANIFEST
from pytest_toolemu.sessions.store import MANIFEST
from pytest_toolemu.ui.session_runs import SessionRuns

_MARKS: Final = (MANIFEST, SHARD_MANIFEST)


@dataclass(frozen=True)
class SessionFolder:
    """A session in the list. ``id`` is its part of URLs; ``runs`` is None as long as its records were not read.

    In the list of sessions, the manifest of such a session is empty, because reading all manifests takes long.
    """

    id: str
    folder: Path
    manifest: Manifest
    started: datetime
    records: int
    runs: SessionRuns | None = None
    problem: str = ""
    """Why the manifest cannot be read."""
    live: LiveSession | None = None
    """What it does now, or did when its process died; None for a session that has ended."""
    resumed_by: str = ""
    """ID of the latest session that resumed this one after its process died; empty if there is none."""

    @property
    def agents(self) -> list[str]:
        """The names of the agents, as far as they are known."""
        if self.runs is not None:
            return self.runs.agents
        planned = self.manifest.planned.values()
        return sorted({item.agent for case in planned for item in case.items.values() if item.agent})

    @property
    def is_measurement(self) -> bool:
        """Whether figures may be made of the runs; not of those that a person played by hand."""
        return not self.manifest.playground

    @property
    def is_running(self) -> bool:
        """Whether the session has neither ended nor died."""
        return self.live is not None and self.live.life != "died"

    @property
    def kind(self) -> str:
        """How the session was made, if pytest did not run it."""
        manifest = self.manifest
        if manifest.judged_from:
            return "judged again"
        if manifest.merged_from:
            return "merged"
        if manifest.imported_from:
            return "imported"
        return "playground" if manifest.playground else ""


@dataclass(frozen=True)
class FolderState:
    """What changes when a record or the manifest is written, because files are replaced by renaming.

    Times are in nanoseconds since the epoch.
    """

    modified: int
    manifest_modified: int
    is_running: bool

    @classmethod
    def of(cls, folder: Path, *, is_running: bool) -> FolderState:
        """Return the state of a folder as it is now."""
        return cls(modified(folder), modified(folder / MANIFEST), is_running)


def session_folders(directory: Path) -> Iterator[Path]:
    """Yield the folders of sessions: this one, or those anywhere below it. Links are not followed."""
    try:
        entries = list(os.scandir(directory))
    except OSError:  # deleted, or not ours
        return
    if any(entry.name in _MARKS for entry in entries):
        yield directory
        return
    for entry in entries:
        if entry.name != PARTS and entry.is_dir(follow_symlinks=False):
            yield from session_folders(directory / entry.name)


def start_of(folder: Path) -> datetime:
    """Return the time in the name of a session; of a folder with another name, when it was written last."""
    try:
        return datetime.strptime(folder.name[:15], "%Y%m%d-%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return datetime.fromtimestamp(modified(folder / MANIFEST) / 1e9, UTC)


def modified(path: Path) -> int:
    """Return when a file or folder was changed, in nanoseconds since the epoch; 0 if it does not exist."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
