"""Google ADK in an environment of its own, because it brings 60 packages that no other test needs.

The first run installs it into ``.live/adk`` (350 MB), where it is kept.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.live.framework_environment import check_adapter, check_example, interpreter_with


@pytest.fixture(scope="module")
def python() -> Path:
    """Return the interpreter of an environment with ADK and this package."""
    return interpreter_with("adk", "google-adk[a2a]>=2.13,<3")


@pytest.mark.timeout(900)
def test_the_adapter(python: Path) -> None:
    check_adapter(python, "adk", 29)


@pytest.mark.timeout(900)
def test_the_example(python: Path, tmp_path: Path) -> None:
    check_example(python, "adk", tmp_path)
