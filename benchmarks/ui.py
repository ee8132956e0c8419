"""``python -m benchmarks.ui``: how long pages of the web application take, without the network and the browser.

The run directory has many sessions and a large one. CPU time is printed, which hardly depends on other work. Pages are
requested for the first time, when nothing is known of their records, after a restart, and again.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

from starlette.testclient import TestClient

from benchmarks.report import write_session
from pytest_toolemu.ui.application import create_app
from pytest_toolemu.ui.context import UiContext
from pytest_toolemu.ui.security import AccessRules
from pytest_toolemu.ui.session_index import INDEX

MILLISECONDS: Final = 300
_PORT: Final = 8731


def main() -> None:
    """Print the times."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ui")
    parser.add_argument("--sessions", type=int, default=50, help="sessions of the run directory (%(default)s)")
    parser.add_argument("--count", type=int, default=200, help="runs of each session (%(default)s)")
    parser.add_argument("--large", type=int, default=10_000, help="runs of the large session (%(default)s)")
    parser.add_argument("--runs", type=int, default=3, help="measurements of each page (%(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        many, large = Path(name) / "many", Path(name) / "large"
        _write_sessions(many, options.sessions, options.count)
        _write_sessions(large, 1, options.large)
        print(f"{options.sessions} sessions of {options.count} runs, CPU time, median of {options.runs}:")
        first = _times(many, "/", options.runs)[0]
        print(f"  list of sessions       {first:8.0f} ms  target: under {MILLISECONDS} ms, {_met(first)}")
        print(f"a session of {options.large:,} runs:")
        for title, page in (("runs", "runs"), ("a filter of runs", "runs?outcome=failed&q=a"), ("results", "results")):
            read, restarted, again = _times(large, f"/sessions/session-0/{page}", options.runs)
            print(f"  {title:22} {read:8.0f} ms, after a restart {restarted:.0f} ms, again {again:.0f} ms")


def _met(milliseconds: float) -> str:
    return "met" if milliseconds < MILLISECONDS else "MISSED"


def _write_sessions(folder: Path, sessions: int, count: int) -> None:
    folder.mkdir()
    write_session(folder, folder / "session-0", count)
    (folder / "session-0" / "session.json").write_text("{}")
    for number in range(1, sessions):
        shutil.copytree(folder / "session-0", folder / f"session-{number}")


def _times(folder: Path, path: str, runs: int) -> list[float]:
    """Return the times of a page in milliseconds: with unread records, after a restart, and when requested again."""
    columns = []
    for _ in range(runs):
        for index in folder.glob(f"*/{INDEX}"):
            index.unlink()
        first, second = _client(folder), _client(folder)
        columns.append([_time(first, path), _time(second, path), _time(second, path)])
    return [statistics.median(column) for column in zip(*columns, strict=True)]


def _client(folder: Path) -> TestClient:
    rules = AccessRules(_PORT)
    client = TestClient(create_app(UiContext(folder, rules)), base_url=f"http://127.0.0.1:{_PORT}")
    client.cookies.set(rules.cookie_name, rules.cookie)
    client.get("/static/app.css")  # whatever is imported or compiled once
    return client


def _time(client: TestClient, path: str) -> float:
    begun = time.process_time()
    answer = client.get(path)
    while answer.status_code == 202:  # its records are being read
        answer = client.get(path)
    assert answer.status_code == 200, answer.text
    return 1000 * (time.process_time() - begun)


if __name__ == "__main__":
    main()
