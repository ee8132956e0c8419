"""How a draft is recognized: its record is next to it. What nobody has accepted is not part of a suite."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pytest_toolemu.core.case import SUFFIXES as CASE_SUFFIXES
from pytest_toolemu.core.toolkit import SUFFIX as TOOLKIT_SUFFIX

DRAFT_SUFFIX: Final = ".draft.json"
"""The end of the name of a draft's record; it takes the place of the suffix of the case or toolkit."""


def is_draft(path: Path) -> bool:
    """Return whether a case or toolkit is a draft of a model that nobody has accepted."""
    suffix = next((suffix for suffix in (*CASE_SUFFIXES, TOOLKIT_SUFFIX) if path.name.endswith(suffix)), None)
    return suffix is not None and path.with_name(path.name.removesuffix(suffix) + DRAFT_SUFFIX).is_file()


def case_files(root: Path) -> list[Path]:
    """Return the case files below a folder, sorted, without drafts; if ``root`` is a file, only that one."""
    if root.is_file():
        return [root]
    return sorted(path for path in root.rglob("*") if path.name.endswith(CASE_SUFFIXES) and not is_draft(path))
