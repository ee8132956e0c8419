"""Finds the datasets, toolkits, and cases below some paths."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pytest_toolemu.core.case import DATASET_FILE, DatasetFiles, is_draft
from pytest_toolemu.core.case import SUFFIXES as CASE_SUFFIXES
from pytest_toolemu.core.toolkit import SUFFIX as TOOLKIT_SUFFIX
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.case_names import misnamed_case

_SKIPPED: Final = {".git", ".venv", "venv", "node_modules", "__pycache__"}


@dataclass(frozen=True)
class FoundFiles:
    """Files by kind, each sorted by path. The toolkits of the datasets are included."""

    datasets: tuple[Path, ...]
    toolkits: tuple[Path, ...]
    cases: tuple[Path, ...]
    misnamed: tuple[tuple[Path, str], ...]
    """Cases under a name that nothing collects, each with the problem."""


def find(paths: Iterable[Path]) -> FoundFiles:
    """Return the files among the paths and below them. Raise UsageError for a path that does not exist.

    Drafts are left out, unless a path is that of a draft, or of a folder of drafts.
    """
    files: set[Path] = set()
    for path in paths:
        if not path.exists():
            raise UsageError(f"{path}: no such file or folder; check the path")
        # Without drafts if the folder is not itself one of drafts.
        parts = (path, path / "cases", path / "toolkits")
        has_drafts = any(is_draft(each) for part in parts for each in part.glob("*"))
        below = (each for each in path.rglob("*") if has_drafts or not is_draft(each))
        files.update(below if path.is_dir() else [path])
    files = {path for path in files if not _SKIPPED & set(path.parts)}
    datasets = sorted(path for path in files if path.name == DATASET_FILE)
    toolkits = {path.resolve(): path for path in files if path.name.endswith(TOOLKIT_SUFFIX)}
    for file in datasets:
        toolkits = {path: _short(path) for path in DatasetFiles(file).toolkits} | toolkits
    cases = sorted(path for path in files if path.name.endswith(CASE_SUFFIXES))
    misnamed = [(path, problem) for path in sorted(files) if path.is_file() and (problem := misnamed_case(path))]
    return FoundFiles(tuple(datasets), tuple(sorted(toolkits.values())), tuple(cases), tuple(misnamed))


def _short(path: Path) -> Path:
    """Return the path relative to the working directory, if possible."""
    try:
        return Path(os.path.relpath(path))
    except ValueError:  # another drive
        return path
