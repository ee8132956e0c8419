"""Whether a process that has written a file is still running."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def process_start(pid: int) -> int:
    """Return when a process started, in clock ticks after boot; 0 if there is none, or the system does not say.

    With its start, a process differs from a later one with the same ID. A process that has ended and whose parent does
    not know it yet counts as ended.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return 0
    return int(fields[19]) if len(fields) > 19 and fields[0] not in (b"Z", b"X") else 0


def has_ended(pid: int, started: int) -> bool | None:
    """Return whether a process of this computer has ended; None if that cannot be known.

    ``started`` is what ``process_start`` returned in that process.
    """
    if started:
        return process_start(pid) != started
    if sys.platform == "win32":  # there, signal 0 is Ctrl-C
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return None
    return None  # running, or another process with the same ID
