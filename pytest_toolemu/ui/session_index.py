"""The sessions below a run directory, and what tables show of their runs. Everything read is kept until it changes."""

from __future__ import annotations

import contextlib
import heapq
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from pydantic import Field, ValidationError

from pytest_toolemu import __version__
from pytest_toolemu.analysis.run_summary import DIMENSIONS, OUTCOMES, Dimension, RunSummary, slice_values
from pytest_toolemu.core.identity import ComponentName, component_name
from pytest_toolemu.core.run import Run
from pytest_toolemu.core.run_file import PARTS, load_run
from pytest_toolemu.errors import ToolemuError, UsageError
from pytest_toolemu.formats.file_access import read_regular, write_atomically
from pytest_toolemu.formats.yaml_document import Record
from pytest_toolemu.models.pricing import Prices
from pytest_toolemu.sessions.live_session import LiveSession, is_running, read_live
from pytest_toolemu.sessions.manifest_records import Manifest
from pytest_toolemu.sessions.shard_assignment import SHARD_MANIFEST
from pytest_toolemu.sessions.store import MANIFEST, manifest_of, newest_evaluations, prices_of, summarize_run
from pytest_toolemu.sessions.stored_decision import missing_runs
from pytest_toolemu.ui.playground import FOLDER as PLAYGROUND

_MARKS: Final = (MANIFEST, SHARD_MANIFEST)


class IndexedRun(Record):
    """A run in a table. ``name`` is its file without the suffix; empty for a run without a record."""

    name: str
    summary: RunSummary
    title: str = ""
    finding: str = ""
    """The outcome of the first finding of a judge."""
    started: float = 0.0
    """Start, in seconds since the epoch."""
    made_by: ComponentName | None = None
    """The agent with a hash of its configuration."""
    prompt: str = ""
    """The version of the agent's prompt; empty if it has none."""

    @property
    def outcome(self) -> str:
        """The outcome; a run without one is broken."""
        return self.summary.outcome or "broken"

    @property
    def reason(self) -> str:
        """The most specific reason why the run did not pass."""
        return self.finding or self.summary.reason


@dataclass(frozen=True)
class SessionRuns:
    """All runs of a session, the most important ones first, and why further records cannot be read."""

    runs: tuple[IndexedRun, ...]
    problems: tuple[str, ...] = ()

    @cached_property
    def agents(self) -> list[str]:
        """The names of all agents, sorted."""
        return sorted({run.summary.agent for run in self.runs})

    @cached_property
    def slices(self) -> dict[Dimension, list[str]]:
        """The values of each dimension that has several, the most frequent first."""
        values = {
            dimension: Counter(value for run in self.runs for value in slice_values(run.summary, dimension))
            for dimension in DIMENSIONS
        }
        return {dimension: list(dict(counts.most_common())) for dimension, counts in values.items() if len(counts) > 1}

    @cached_property
    def outcomes(self) -> dict[str, int]:
        """The number of runs of each outcome that occurs, the worst first."""
        counts = Counter(run.outcome for run in self.runs)
        return {name: counts[name] for name in OUTCOMES if counts[name]}


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


INDEX: Final = "ui-index.json"
"""File in the folder of a session with what was read of each record, because reading 10,000 takes long.

It can be deleted at any time.
"""

_VERSION: Final = f"{__version__} 2"
"""Version of the content. The number changes with the fields of ``IndexedRun``."""

_MAX_BYTES: Final = 256 * 1024 * 1024
_LONGEST: Final = 500


class IndexEntry(Record):
    """What was read of one record file: its run, or why it cannot be read."""

    modified: int
    size: int
    run: IndexedRun | None = None
    problem: str = ""


class RunIndex(Record):
    """The entries of a session by file name; those of another version or other prices are not used."""

    version: str
    prices: str
    entries: dict[str, IndexEntry] = Field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path, prices: str) -> RunIndex:
        """Return the index of a session; an empty one if there is none that this version wrote with these prices."""
        with contextlib.suppress(OSError, ValidationError):
            index = cls.model_validate_json(read_regular(folder / INDEX, _MAX_BYTES))
            if (index.version, index.prices) == (_VERSION, prices):
                return index
        return cls(version=_VERSION, prices=prices)

    def updated(self, folder: Path, prices: Prices, report: Callable[[int, int], None]) -> RunIndex:
        """Return the index with the records as they are now: itself if nothing has changed.

        ``report`` is called with the number of records that were read, and with that of all.
        """
        files = sorted(record_files(folder), key=lambda file: file.path.name)
        entries = {}
        for number, file in enumerate(files):
            report(number, len(files))
            stored = self.entries.get(file.path.name)
            is_current = stored is not None and (stored.modified, stored.size) == (file.modified, file.size)
            entries[file.path.name] = stored if stored is not None and is_current else _read_entry(file, prices)
        is_same = entries.keys() == self.entries.keys()
        is_same = is_same and all(entry is self.entries[name] for name, entry in entries.items())
        return self if is_same else self.model_copy(update={"entries": entries})


class RecordFile(NamedTuple):
    """A record file with what changes when it is written again."""

    path: Path
    modified: int
    size: int


def record_names(folder: Path) -> list[str]:
    """Return the names of the record files of a session, in no order.

    Links are left out: they may lead to other folders. A folder that was deleted while a page is made has none.
    """
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        return [
            entry.name
            for entry in entries
            if "--" in entry.name and entry.name.endswith(".json") and entry.is_file(follow_symlinks=False)
        ]
    return []


def record_files(folder: Path) -> Iterator[RecordFile]:
    """Yield the record files of a session, in no order."""
    for name in record_names(folder):
        with contextlib.suppress(FileNotFoundError):  # deleted after the folder was read
            status = (folder / name).lstat()
            yield RecordFile(folder / name, status.st_mtime_ns, status.st_size)


def latest_runs(folder: Path, count: int) -> list[IndexedRun]:
    """Return the runs that were stored last, the newest first; records that cannot be read are left out.

    Those before them are not read: a running session stores many.
    """
    newest = heapq.nlargest(count, record_files(folder), key=lambda file: (file.modified, file.path.name))
    return [run for file in newest if (run := _read_latest(file)) is not None]


@lru_cache(512)
def _read_latest(file: RecordFile) -> IndexedRun | None:
    try:
        return indexed(load_run(file.path), file.path, prices_of(file.path.parent))
    except (OSError, ToolemuError):  # removed, or damaged; the table of runs says why
        return None


def _read_entry(file: RecordFile, prices: Prices) -> IndexEntry:
    try:
        run = indexed(load_run(file.path), file.path, prices)
    except UsageError as error:
        return IndexEntry(modified=file.modified, size=file.size, problem=str(error))
    return IndexEntry(modified=file.modified, size=file.size, run=run)


def indexed(run: Run, path: Path, prices: Prices) -> IndexedRun:
    """Return what tables show of a run that is stored at ``path``."""
    prompt = run.identity.agent.get("prompt")
    findings = [finding.outcome for verdict in run.verdicts for finding in verdict.findings]
    return IndexedRun(
        name=path.stem,
        summary=summarize_run(run, str(path), prices),
        title=run.case.title[:_LONGEST],
        finding=findings[0][:_LONGEST] if findings else "",
        started=run.started,
        made_by=component_name(run.identity.agent),
        prompt=prompt if isinstance(prompt, str) else "",
    )


def runs_of_index(folder: Path, manifest: Manifest, index: RunIndex) -> SessionRuns:
    """Return the runs of a session whose records were read, with those that it planned and did not run."""
    runs = {folder / name: entry.run for name, entry in index.entries.items() if entry.run is not None}
    newest = [runs[path] for path in newest_evaluations(list(runs))]
    agents = {run.summary.agent for run in newest}
    manifests = [manifest] if manifest.is_plan_complete else []
    # Cases that a running session has not reached yet are not missing.
    unreached = () if is_running(folder) else missing_runs([folder], manifests, agents)
    missing = [IndexedRun(name="", summary=run) for run in unreached]
    problems = tuple(entry.problem for entry in index.entries.values() if entry.problem)
    return SessionRuns(tuple(sorted((*newest, *missing), key=lambda run: run.summary.urgency)), problems)


_MANY: Final = 500
"""Records that are read while a browser waits."""

_SECONDS_TO_READ: Final = 0.5

FolderState = tuple[int, int, bool]


class ReadingProgress(NamedTuple):
    """How many records of a session have been read, of all."""

    read: int
    total: int


class SessionIndex:
    """Finds the sessions below a run directory, and reads their runs, each once; for use by several threads."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.resolve()
        self._lock = threading.Lock()
        self._locks: dict[Path, threading.Lock] = {}
        self._threads: dict[Path, threading.Thread] = {}
        self._progress: dict[Path, ReadingProgress] = {}
        self._indexes: dict[Path, RunIndex] = {}
        self._runs: dict[Path, tuple[FolderState, SessionRuns]] = {}
        self._manifests: dict[Path, tuple[int, Manifest, str]] = {}
        self._counts: dict[Path, tuple[FolderState, int]] = {}

    def sessions(self, *, of_playground: bool = False) -> list[SessionFolder]:
        """Return all sessions, the newest first; their runs only if they were read before and are unchanged.

        Those of the playground are in a list of their own, and in no metric.
        """
        folders = list(session_folders(self.directory))
        sessions = [self._session(folder, folders, is_listed=True) for folder in folders]
        listed = [session for session in sessions if session.is_measurement != of_playground]
        return sorted(listed, key=lambda session: (session.started, session.id), reverse=True)

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
        file = f"{name}.json"
        return load_run(session.folder / file) if file in record_names(session.folder) else None

    def runs(self, session: SessionFolder) -> SessionRuns:
        """Return the runs of a session, and read those records that are new or changed."""
        folder = session.folder
        with self._lock:
            lock = self._locks.setdefault(folder, threading.Lock())
        with lock:
            if (cached := self._cached(folder, _state(folder, is_running(folder)))) is not None:
                return cached
            runs = self._read(session)
            # Writing the index changes the folder.
            self._runs[folder] = (_state(folder, is_running(folder)), runs)
            return runs

    def runs_or_progress(self, session: SessionFolder) -> SessionRuns | ReadingProgress:
        """Return the runs of a session, or how many records have been read if there are many to read."""
        folder = session.folder
        if session.runs is not None or session.records <= _MANY:
            return self.runs(session)
        with self._lock:
            if is_first := folder not in self._threads:
                self._progress[folder] = ReadingProgress(0, session.records)
                self._threads[folder] = threading.Thread(target=self._read_quietly, args=[session], daemon=True)
                self._threads[folder].start()
            thread = self._threads[folder]
        if is_first:
            thread.join(_SECONDS_TO_READ)
        if thread.is_alive():
            return self._progress[folder]
        self._threads.pop(folder, None)
        return self.runs(session)

    def _read_quietly(self, session: SessionFolder) -> None:
        """Read the runs of a session; what goes wrong is raised again when its runs are requested."""
        with contextlib.suppress(ToolemuError, OSError):
            self.runs(session)

    def _read(self, session: SessionFolder) -> SessionRuns:
        folder = session.folder

        def report(read: int, total: int) -> None:
            self._progress[folder] = ReadingProgress(read, total)

        before = self._indexes.get(folder) or RunIndex.read(folder, str(session.manifest.settings.get("prices")))
        index = before.updated(folder, prices_of(folder), report)
        if index is not before:
            with contextlib.suppress(OSError):  # a folder that cannot be written has none: the records are read again
                write_atomically(folder / INDEX, index.model_dump_json(exclude_defaults=True))
        self._indexes[folder] = index
        return runs_of_index(folder, session.manifest, index)

    def _cached(self, folder: Path, state: FolderState) -> SessionRuns | None:
        stored = self._runs.get(folder)
        return stored[1] if stored is not None and stored[0] == state else None

    def _session(self, folder: Path, folders: list[Path], *, is_listed: bool = False) -> SessionFolder:
        live = read_live(folder)
        has_died = live is not None and live.life == "died"
        state = _state(folder, live is not None and not has_died)
        runs = self._cached(folder, state)
        # Reading all manifests takes long. Those of the playground are small, and decide in which list the session is.
        is_cheap = runs is not None or folder.parent.name == PLAYGROUND
        manifest, problem = self._manifest(folder) if is_cheap or not is_listed else (Manifest(), "")
        if (count := self._counts.get(folder)) is None or count[0] != state:
            count = self._counts[folder] = (state, len(record_names(folder)))
        return SessionFolder(
            id=self.id_of(folder),
            folder=folder,
            manifest=manifest,
            started=start_of(folder),
            records=count[1],
            runs=runs,
            problem=problem,
            live=live,
            resumed_by=self._resumed_by(folder, folders) if has_died else "",
        )

    def _manifest(self, folder: Path) -> tuple[Manifest, str]:
        """Return the manifest of a session, and why it cannot be read."""
        changed = modified(folder / MANIFEST)
        cached = self._manifests.get(folder)
        if cached is None or cached[0] != changed:
            try:
                cached = (changed, manifest_of(folder), "")
            except ToolemuError as error:
                cached = (changed, Manifest(), str(error))
            self._manifests[folder] = cached
        return cached[1], cached[2]

    def _resumed_by(self, folder: Path, others: list[Path]) -> str:
        """Return the ID of the latest session that resumed the one in a folder; empty if there is none."""
        started = start_of(folder)
        later = [other for other in others if other != folder and start_of(other) >= started]
        for other in sorted(later, key=lambda other: (start_of(other), other.name), reverse=True):
            manifest, _ = self._manifest(other)
            origins = {os.path.normpath(other.parent / name) for name in manifest.resumed_from}
            # A session that died before its first run is stored has nothing to reuse, so only the option names it.
            if str(folder) in origins or folder.name == Path(manifest.text_setting("resume")).name:
                return self.id_of(other)
        return ""


def _state(folder: Path, running: bool) -> FolderState:
    """Return what changes when a record or the manifest is written, because files are replaced by renaming."""
    return modified(folder), modified(folder / MANIFEST), running
