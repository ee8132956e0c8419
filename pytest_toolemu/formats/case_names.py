"""The names of case files, for sessions that load nothing else unless there is a case."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

CASE_SUFFIXES: Final = (".toolemu.yaml", ".toolemu.yml")
_MAX_BEGINNING: Final = 20_000


def misnamed_case(path: Path) -> str:
    """Return the problem of a YAML file with the content of a case and another name; empty for any other file."""
    if path.suffix not in (".yaml", ".yml") or path.name.endswith(CASE_SUFFIXES):
        return ""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            beginning = file.read(_MAX_BEGINNING)
    except OSError:
        return ""
    if not all(re.search(f"^{key}:", beginning, re.MULTILINE) for key in ("instruction", "toolkits")):
        return ""
    return f"'{path.name}' has the content of a case but not its suffix; rename it to '{path.stem}{CASE_SUFFIXES[0]}'"
