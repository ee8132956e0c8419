"""What of a folder of recordings a session used, and what it did not."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pytest_toolemu.core.run import CassetteUse
from pytest_toolemu.core.run_file import MAX_RUN_BYTES
from pytest_toolemu.formats.regular_files import read_regular
from pytest_toolemu.models.cassettes.directory import CassetteDirectory


@dataclass(frozen=True)
class CassetteReport:
    """Exchanges of the items that were run, and files of the others.

    ``unused``: not asked for this time; ``stale``: made with a model, prompt or tools that nobody uses any more;
    ``gone``: files whose case is no longer where it was; ``not_run``: files of items that were not run.
    """

    folder: str
    played: int
    added: int
    unused: Mapping[str, list[int]]
    stale: Mapping[str, list[int]]
    gone: list[str]
    not_run: list[str]

    def as_json(self) -> dict[str, Any]:
        """For a file in the session's folder."""
        return asdict(self)


def report_on(library: CassetteDirectory, uses: Iterable[CassetteUse], rootdir: Path) -> CassetteReport:
    """The report; ``uses`` are those of every run, nodeids are relative to ``rootdir``."""
    known = {use.file: use for use in uses}
    others = [path for path in library.files() if path.name not in known]
    gone = [path.name for path in others if not _case_exists(path, rootdir)]
    return CassetteReport(
        folder=str(library.folder),
        played=sum(use.played for use in known.values()),
        added=sum(use.added for use in known.values()),
        unused={file: list(use.unused) for file, use in sorted(known.items()) if use.unused},
        stale={file: list(use.stale) for file, use in sorted(known.items()) if use.stale},
        gone=gone,
        not_run=[path.name for path in others if path.name not in gone],
    )


def _case_exists(path: Path, rootdir: Path) -> bool:
    """Whether the file that a recording's item is collected from exists; an unreadable recording is of none."""
    try:
        item = json.loads(read_regular(path, MAX_RUN_BYTES))["item"]
        return (rootdir / str(item).partition("::")[0]).exists()
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False
