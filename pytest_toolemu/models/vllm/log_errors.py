"""What a server's log says went wrong: its beginning is noise, its end a wrapper, and the cause is in between."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from pytest_toolemu.formats.redaction import plain

_CAUSES: Final = 3
_LAST: Final = 5
_LONGEST: Final = 300
# What loggers and processes put before a line: ``(EngineCore pid=7) ERROR 11-21 18:00:00 [core.py:936] ``.
_PREFIX: Final = re.compile(
    r"^(?:\([^()]*pid=\d+\) )?(?:(?P<level>[A-Z]+) \d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? )?(?:\[[^\]]*:\d+\] )?"
)
_RAISED: Final = re.compile(r"^(?:[A-Za-z_][\w.]*)?(?:Error|Exception|Killed|Interrupt)\b.*: |^\S+: error: |^Fatal ")
_FRAME: Final = re.compile(r"\s|Traceback \(|File \"|During handling|The above exception|^$|\^+$")


def causes(path: Path) -> list[str]:
    """The first lines that tell an error, without traceback and prefixes; else the last lines. Safe for a terminal."""
    found: list[str] = []
    last: list[str] = []
    unfinished = False
    for line in _lines(path):
        prefix = _PREFIX.match(line)
        assert prefix is not None
        text = line[prefix.end() :]
        last = [*last, text][-_LAST:] if text.strip() else last
        tells = prefix["level"] in ("ERROR", "CRITICAL") or _RAISED.match(text)
        if unfinished or (tells and not _FRAME.match(text) and text not in found):
            found.append(text)
        unfinished = "validation error" in text  # pydantic's: what is wrong comes in the next line
    return [_short(line) for line in found[:_CAUSES] or last]


def last_line(path: Path) -> str:
    """The last line that is not empty, or the last of those written over each other. Safe for a terminal."""
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


def _tail(path: Path, size: int = 4096) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - size))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def _short(line: str) -> str:
    line = " ".join(plain(line).split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
