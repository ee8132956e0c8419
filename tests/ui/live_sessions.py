"""Live files as a running session writes them."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import Any

from pytest_toolemu.sessions.live_session import (
    CaseInFlight,
    ExpectedEnd,
    LiveProcess,
    RequestLimit,
    SessionProgress,
    process_start,
    write_live,
)

DEAD = 1
"""A start that no process of the tests has: the one with this ID is another process now."""

CASES = (
    CaseInFlight(item="c.toolemu.yaml::rent", case="rent", agent="gpt-4o", stage="acting", calls=2, tool="Bank.Pay", seconds=83.2),
    CaseInFlight(item="c.toolemu.yaml::taxi", case="taxi", agent="gpt-4o", stage="judging", calls=1, seconds=12, paused=True),
    CaseInFlight(item="c.toolemu.yaml::visa", case="visa", agent="claude", trial=2, stage="acting", seconds=3),
    CaseInFlight(item="c.toolemu.yaml::boat", case="boat", agent="claude", seconds=0),
)  # fmt: skip

PROGRESS = SessionProgress(
    total=298,
    completed=12,
    running=4,
    stalled=1,
    outcomes={"failed": 2, "passed": 10},
    tokens=12_345,
    cost="0.53 USD",
    budget="20.00 USD",
    expected_end=ExpectedEnd(seconds=1144, elapsed=48.0, cases=12, cases_left=286),
    request_limits=(RequestLimit(name="openai:gpt-4o@api.openai.com", limit=8, in_flight=3, queued=2, refused=1),),
    resume="pytest --toolemu-agent=gpt-4o --toolemu-resume=.toolemu/s",
    directory="/home/ada/bank",
)


def process(name: str = "main", **fields: Any) -> LiveProcess:
    """Return what the process of the tests writes at this moment."""
    content: dict[str, Any] = {
        "process": name,
        "pid": os.getpid(),
        "started": process_start(os.getpid()),
        "host": socket.gethostname(),
        "updated": time.time(),
    }
    return LiveProcess(**content | fields)


def write_running(folder: Path, **fields: Any) -> None:
    """Let a session appear to run, with four cases in flight in one worker."""
    write_live(folder, process(progress=PROGRESS, **fields))
    write_live(folder, process("gw0", cases=CASES, **fields))
