"""Checks files without running anything."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from pytest_toolemu.case import SUFFIX as CASE_SUFFIX
from pytest_toolemu.case import load_world
from pytest_toolemu.errors import DocumentError, UsageError
from pytest_toolemu.toolkit import SUFFIX as TOOLKIT_SUFFIX
from pytest_toolemu.toolkit import load_toolkit

_SKIPPED = {".git", ".venv", "venv", "node_modules", "__pycache__"}


@dataclass
class LintResult:
    """What was read; one text a file for what is wrong."""

    toolkits: int = 0
    tools: int = 0
    cases: int = 0
    problems: list[str] = field(default_factory=list)


def lint_paths(paths: Iterable[Path]) -> LintResult:
    """Read every toolkit and case below the paths; UsageError for a path that is not there."""
    result = LintResult()
    for path in _files(paths):
        try:
            if path.name.endswith(TOOLKIT_SUFFIX):
                result.toolkits += 1
                result.tools += len(load_toolkit(path).tools)
            else:
                result.cases += 1
                load_world(path)
        except DocumentError as error:
            result.problems.append(str(error))
    return result


def _files(paths: Iterable[Path]) -> list[Path]:
    found: set[Path] = set()
    for path in paths:
        if not path.exists():
            raise UsageError(f"{path}: no such file or folder")
        candidates = [path] if path.is_file() else path.rglob("*.yaml")
        found.update(
            candidate
            for candidate in candidates
            if candidate.name.endswith((TOOLKIT_SUFFIX, CASE_SUFFIX)) and not _SKIPPED & set(candidate.parts)
        )
    return sorted(found)
