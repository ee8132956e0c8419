"""What tables of runs show of each record of a session, kept in a file, because reading 10,000 records takes long."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import Field, ValidationError

from pytest_toolemu import __version__
from pytest_toolemu.analysis.run_summary import RunSummary
from pytest_toolemu.core.identity import ComponentName, component_name
from pytest_toolemu.core.run import Run
from pytest_toolemu.core.run_file import load_run
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.files.atomic_write import write_json_text
from pytest_toolemu.formats.files.regular_files import read_regular
from pytest_toolemu.formats.yaml_document import Record
from pytest_toolemu.models.pricing import Prices
from pytest_toolemu.sessions.reader import summarize_run

INDEX: Final = "ui-index.json"
"""File in the folder of a session. It can be deleted at any time."""

_VERSION: Final = f"{__version__} 2"
"""Version of the content. The number changes with the fields of ``IndexedRun``."""

_MAX_BYTES: Final = 256 * 1024 * 1024
_LONGEST: Final = 500


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
