"""Case IDs are unique within a session: records, gates, and comparisons identify cases only by ID."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_toolemu.plugin.output.relative_path import relative_path

_FILES: pytest.StashKey[dict[str, Path]] = pytest.StashKey()


def conflict(config: pytest.Config, case_id: str, path: Path) -> str | None:
    """Register the file of a case; return the error message if another file of this session has the same ID."""
    first = config.stash.setdefault(_FILES, {}).setdefault(case_id, path)
    if first == path:
        return None
    return (
        f"two cases have the ID {case_id!r}: {relative_path(first)} and {relative_path(path)}; results are identified "
        "only by ID, so rename one of the files or run them in separate sessions"
    )
