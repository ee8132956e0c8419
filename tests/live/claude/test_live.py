"""The Claude Agent SDK in an environment of its own, because it contains Claude Code.

The first run installs it into ``.live/claude`` (450 MB), where it is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.framework_environment import check_adapter, check_example, interpreter_with


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield the interpreter of an environment with the SDK and this package. Claude Code gets a home of its own."""
    interpreter = interpreter_with("claude", "claude-agent-sdk>=0.2.187,<0.3")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        patch.delenv("ANTHROPIC_API_KEY", raising=False)
        yield interpreter


@pytest.mark.timeout(900)
def test_the_adapter(python: Path) -> None:
    check_adapter(python, "claude", 15)


@pytest.mark.timeout(900)
def test_the_example(python: Path, tmp_path: Path) -> None:
    check_example(python, "claude", tmp_path)
