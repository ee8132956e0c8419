"""Paths as they are shown to people."""

from __future__ import annotations

import os
from pathlib import Path


def relative_path(path: Path) -> str:
    """Return a path relative to the working directory, as a person would type it."""
    try:
        return os.path.relpath(path)
    except (ValueError, OSError):  # on another drive; or an agent has removed the working directory
        return str(path)
