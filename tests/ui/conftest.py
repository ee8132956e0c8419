"""A run directory and a client of the application, for tests without a browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tests.ui.applications import client_of, run_directory


@pytest.fixture(scope="package")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run directory that tests only read."""
    return run_directory(tmp_path_factory.mktemp("ui"))


@pytest.fixture(scope="package")
def client(directory: Path) -> TestClient:
    """Return a client that may read and change."""
    return client_of(directory)
