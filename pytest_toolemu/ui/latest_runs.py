"""The runs of a session that were stored last, read without those before them: a running session stores many."""

from __future__ import annotations

import heapq
from functools import lru_cache
from pathlib import Path

from pytest_toolemu.core.run_file import load_run
from pytest_toolemu.errors import ToolemuError
from pytest_toolemu.sessions.reader import prices_of
from pytest_toolemu.ui.run_index import IndexedRun, RecordFile, indexed, record_files


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
