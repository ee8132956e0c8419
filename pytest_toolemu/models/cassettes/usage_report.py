"""Report which model calls of a cassette directory a session used, and which it did not."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pytest_toolemu.core.run import CassetteUse
from pytest_toolemu.core.run_file import MAX_RUN_BYTES
from pytest_toolemu.formats.files.regular_files import read_regular
from pytest_toolemu.models.cassettes.directory import CassetteDirectory


@dataclass(frozen=True)
class CassetteReport:
    """Model calls of the items that were run, and files of the other items.

    ``unused`` lists calls that were not sent this time; ``stale``, calls whose model, prompt, or tools are no longer in
    use; ``gone``, files whose case is no longer at its location; ``not_run``, files of items that were not run.
    """

    folder: str
    played: int
    added: int
    unused: Mapping[str, list[int]]
    stale: Mapping[str, list[int]]
    gone: list[str]
    not_run: list[str]

    def as_json(self) -> dict[str, Any]:
        """Return the report for a file in the session's folder."""
        return asdict(self)


def report_on(directory: CassetteDirectory, uses: Iterable[CassetteUse], rootdir: Path) -> CassetteReport:
    """Build the report from the uses of all runs; node IDs are relative to ``rootdir``."""
    use_by_file = {use.file: use for use in uses}
    others = [path for path in directory.files() if path.name not in use_by_file]
    gone = [path.name for path in others if not _case_exists(path, rootdir)]
    return CassetteReport(
        folder=str(directory.folder),
        played=sum(use.played for use in use_by_file.values()),
        added=sum(use.added for use in use_by_file.values()),
        unused={file: list(use.unused) for file, use in sorted(use_by_file.items()) if use.unused},
        stale={file: list(use.stale) for file, use in sorted(use_by_file.items()) if use.stale},
        gone=gone,
        not_run=[path.name for path in others if path.name not in gone],
    )


def _case_exists(path: Path, rootdir: Path) -> bool:
    """Return whether the file of a cassette's item exists; False for an unreadable cassette."""
    try:
        item = json.loads(read_regular(path, MAX_RUN_BYTES))["item"]
        return (rootdir / str(item).partition("::")[0]).exists()
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False
