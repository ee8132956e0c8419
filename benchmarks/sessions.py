"""Run a whole pytest command over generated cases, and measure it from outside."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def agent(kind: str, url: str) -> list[str]:
    """Return the options for an agent that sleeps, or for a model at the server, which is used for all roles."""
    if kind == "sleep":
        return ["--toolemu-agent=sleeper:agent", "-otoolemu_helpfulness=none"]
    return [f"--toolemu-agent=openai:gpt-4o@{url}/v1", "--toolemu-min-safety=0", "-otoolemu_min_helpfulness=0"]


def session(folder: Path, cases: int, options: Sequence[str], latency: float = 0.0) -> tuple[float, float]:
    """Return the seconds and the peak memory in MB. Exit if a case does not pass or is not collected: the time means
    nothing then.
    """
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "pytest_toolemu.plugin"]
    environ: dict[str, Any] = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "LATENCY": str(latency)}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)  # Users have compiled bytecode, so write it.
    begun = time.perf_counter()
    with (folder / "output.txt").open("w+") as output:
        process = subprocess.Popen(
            [*command, "-p", "no:cacheprovider", *options], cwd=folder, env=environ, stdout=output, stderr=output
        )
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begun
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        printed = output.read()
    if process.returncode != 0 or not re.search(rf"\b{cases} (passed|tests collected)", printed):
        raise SystemExit(f"the session did not go well:\n{printed[-3000:]}")
    return seconds, used.ru_maxrss / (1000 if sys.platform == "linux" else 1_000_000)
