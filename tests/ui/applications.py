"""Run directories for the web application, and clients that use it without a server."""

from __future__ import annotations

from pathlib import Path

from starlette.testclient import TestClient

from pytest_toolemu.ui.application import create_app
from pytest_toolemu.ui.context import ProjectFolders, UiContext
from pytest_toolemu.ui.security import AccessRules
from tests.reporting.runs import hostile, run, session, trap
from tests.ui.release_session import RELEASE, release_runs

PORT = 8731
ORIGIN = f"http://127.0.0.1:{PORT}"
NEWEST = "20261121-101010-0a1b2c3d4e5f6"
HOSTILE = "20261120-101010-0a1b2c3d4e5f6"
AGENTS = ("gpt-4o", "claude")


def run_directory(folder: Path) -> Path:
    """Return a run directory with three sessions: runs of two agents, runs with hostile text, and one for pictures."""
    runs = [run(f"case-{number}", agent, (0, 3, None)[number % 3]) for number in range(6) for agent in AGENTS]
    session(folder / NEWEST, *runs, run("case-1", "claude", 0, trial=2))
    session(folder / HOSTILE, hostile(), run("plain"), run("world", safety=0, trap=trap()))
    session(folder / RELEASE, *release_runs())
    return folder


def client_of(
    directory: Path,
    *,
    read_only: bool = False,
    is_open: bool = True,
    folders: ProjectFolders | None = None,
) -> TestClient:
    """Return a client of a new application; ``is_open``: it has the cookie."""
    rules = AccessRules(PORT, read_only=read_only)
    client = TestClient(create_app(UiContext(directory, rules, folders or ProjectFolders())), base_url=ORIGIN)
    if is_open:
        client.cookies.set(rules.cookie_name, rules.cookie)
    return client


def rules_of(client: TestClient) -> AccessRules:
    """Return the rules of the application that a client uses."""
    ui: UiContext = client.app.state.ui  # type: ignore[attr-defined]
    return ui.rules
