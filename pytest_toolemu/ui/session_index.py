"""The folders of sessions below a run directory, and what is known of each."""

from __future__ import annotations

import contextlib
import heapq
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Final

from pydantic import Field, ValidationError

from pytest_toolemu import __version__
from pytest_toolemu.analysis.run_summary import DIMENSIONS, OUTCOMES, Dimension, RunSummary, slice_values
from pytest_toolemu.core.identity import ComponentName, component_name
from pytest_toolemu.core.run import Run
from pytest_toolemu.core.run_file import PARTS, load_run
from pytest_toolemu.errors import ToolemuError, UsageError
from pytest_toolemu.formats.files.atomic_write import write_json_text
from pytest_toolemu.formats.files.regular_files import read_regular
from pytest_toolemu.formats.yaml_document import Record
from pytest_toolemu.models.pricing import Prices
from pytest_toolemu.reporting.report_data import garbage_collection_paused
from pytest_toolemu.sessions.live_session import LiveSession, is_running, read_live
from pytest_toolemu.sessions.manifest_records import Manifest
from pytest_toolemu.sessions.reader import manifest_of, newest_evaluations, prices_of, summarize_run
from pytest_toolemu.sessions.shard_assignment import SHARD_MANIFEST
from pytest_toolemu.sessions.store import MANIFEST
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


INDEX: Final = "ui-index.json"
"""File in the folder of a session. It can be deleted at any time."""

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


@dataclass(frozen=True)
class RecordFile:
    """A record file with what changes when it is written again."""

    path: Path
    modified: int
    size: int


def record_files(folder: Path) -> Iterator[RecordFile]:
    """Yield the record files of a session, in no order. Links are left out: they may lead to other folders."""
    for entry in _entries(folder):
        with contextlib.suppress(FileNotFoundError):  # deleted after the folder was read
            status = entry.stat(follow_symlinks=False)
            yield RecordFile(folder / entry.name, status.st_mtime_ns, status.st_size)


def record_names(folder: Path) -> Iterator[str]:
    """Yield the names of the record files of a session, in no order."""
    return (entry.name for entry in _entries(folder))


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Yield the record files of a session; none if its folder was deleted, as may happen while a page is made."""
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if "--" in entry.name and entry.name.endswith(".json") and entry.is_file(follow_symlinks=False):
                yield entry


def read_index(folder: Path, prices: str) -> RunIndex:
    """Return the index of a session; an empty one if there is none that this version wrote with these prices."""
    empty = RunIndex(version=_VERSION, prices=prices)
    with contextlib.suppress(OSError, ValidationError):
        index = RunIndex.model_validate_json(read_regular(folder / INDEX, _MAX_BYTES))
        if (index.version, index.prices) == (empty.version, empty.prices):
            return index
    return empty


def write_index(folder: Path, index: RunIndex) -> None:
    """Write the index of a session. A folder that cannot be written has none: the records are read again."""
    with contextlib.suppress(OSError):
        write_json_text(folder / INDEX, index.model_dump_json(exclude_defaults=True))


def updated(folder: Path, index: RunIndex, prices: Prices, report: Callable[[int, int], None]) -> tuple[RunIndex, bool]:
    """Return the index with the records as they are now, and whether it differs.

    ``report`` is called with the number of records that were read, and with that of all.
    """
    files = sorted(record_files(folder), key=lambda file: file.path.name)
    entries = {}
    for number, file in enumerate(files):
        report(number, len(files))
        entries[file.path.name] = _current(index.entries, file, prices)
    changed = entries.keys() != index.entries.keys() or any(
        entry is not index.entries[name] for name, entry in entries.items()
    )
    return index.model_copy(update={"entries": entries}), changed


def _current(entries: Mapping[str, IndexEntry], file: RecordFile, prices: Prices) -> IndexEntry:
    stored = entries.get(file.path.name)
    if stored is not None and (stored.modified, stored.size) == (file.modified, file.size):
        return stored
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


@dataclass(frozen=True)
class _Origins:
    """The sessions that a session resumed: their folders, and the name that its option gave."""

    folders: frozenset[Path]
    named: str

    @classmethod
    def of(cls, folder: Path, manifest: Manifest) -> _Origins:
        paths = (os.path.normpath(folder.parent / name) for name in manifest.resumed_from)
        # A session that died before its first run is stored has nothing to reuse, so only the option names it.
        return cls(frozenset(map(Path, paths)), Path(manifest.text_setting("resume")).name)


@dataclass
class ResumedSessions:
    """Finds the session that resumed another one. Each manifest is read again only when it has changed."""

    _origins: dict[Path, tuple[int, _Origins]] = field(default_factory=dict)

    def resumed_by(self, folder: Path, others: Iterable[Path]) -> Path | None:
        """Return the latest of the other sessions that resumed the one in a folder; None if there is none."""
        started = start_of(folder)
        later = [other for other in others if other != folder and start_of(other) >= started]
        for other in sorted(later, key=lambda other: (start_of(other), other.name), reverse=True):
            origins = self._read(other)
            if folder in origins.folders or folder.name == origins.named:
                return other
        return None

    def _read(self, folder: Path) -> _Origins:
        changed = modified(folder / MANIFEST)
        cached = self._origins.get(folder)
        if cached is None or cached[0] != changed:
            try:
                origins = _Origins.of(folder, manifest_of(folder))
            except ToolemuError:  # its row says why it cannot be read
                origins = _Origins(frozenset(), "")
            cached = self._origins[folder] = changed, origins
        return cached[1]


def latest_runs(folder: Path, count: int) -> list[IndexedRun]:
    """Return the runs that were stored last, the newest first; records that cannot be read are left out."""
    newest = heapq.nlargest(count, record_files(folder), key=lambda file: (file.modified, file.path.name))
    return [run for file in newest if (run := _read(file)) is not None]


@lru_cache(512)
def _read(file: RecordFile) -> IndexedRun | None:
    try:
        return indexed(load_run(file.path), file.path, prices_of(file.path.parent))
    except (OSError, ToolemuError):  # removed, or damaged; the table of runs says why
        return None


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
