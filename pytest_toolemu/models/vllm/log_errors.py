"""Find the cause of a failure in a server's log.

The log begins with noise and ends with a generic error that wraps the real one, so the cause is in between.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from pytest_toolemu.formats.truncation import truncated
from pytest_toolemu.formats.visible_text import visible

_CAUSES: Final = 3
_LAST: Final = 5
_LONGEST: Final = 300
_TAIL_BYTES: Final = 4096
# The prefix that loggers and processes add to a line: ``(EngineCore pid=7) ERROR 11-21 18:00:00 [core.py:936] ``.
_PREFIX: Final = re.compile(
    r"^(?:\([^()]*pid=\d+\) )?(?:(?P<level>[A-Z]+) \d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? )?(?:\[[^\]]*:\d+\] )?"
)
_RAISED: Final = re.compile(r"^(?:[A-Za-z_][\w.]*)?(?:Error|Exception|Killed|Interrupt)\b.*: |^\S+: error: |^Fatal ")
_FRAME: Final = re.compile(r"\s|Traceback \(|File \"|During handling|The above exception|^$|\^+$")


def causes(path: Path) -> list[str]:
    """Return the first lines that report an error, without tracebacks and prefixes, or else the last lines.

    The lines are safe to print in a terminal.
    """
    errors: list[str] = []
    last: list[str] = []
    unfinished = False
    for line in _lines(path):
        prefix = _PREFIX.match(line)
        assert prefix is not None
        text = line[prefix.end() :]
        last = [*last, text][-_LAST:] if text.strip() else last
        is_error = prefix["level"] in ("ERROR", "CRITICAL") or _RAISED.match(text)
        if unfinished or (is_error and not _FRAME.match(text) and text not in errors):
            errors.append(text)
        unfinished = "validation error" in text  # Pydantic puts the actual problem on the next line
    return [_short(line) for line in errors[:_CAUSES] or last]


def last_line(path: Path) -> str:
    """Return the last line that is not empty; of a progress bar, its latest state. Safe to print in a terminal."""
    line = ""
    for line in reversed(_tail(path).replace("\r", "\n").splitlines()):
        if line.strip():
            break
    return _short(_PREFIX.sub("", line))


def _lines(path: Path) -> Iterable[str]:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            yield from (line.rstrip() for line in file)
    except OSError:
        return


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def _short(line: str) -> str:
    line = " ".join(visible(line).split())
    return truncated(line, _LONGEST)
