"""What all tests share: pytest's own fixtures, the loopback server, forked processes, and limits of time."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import hypothesis

# A session that runs in this process forgets the modules that it imported, and numpy cannot be imported twice.
import numpy  # noqa: F401
import pytest

from tests.processes import fork_commands

pytest_plugins = ["pytester", "tests.loopback.fixtures"]

# No test looks at a clock: on a busy machine an example takes as long as it takes.
hypothesis.settings.register_profile(
    "unhurried", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("unhurried")

# Thousands of processes are started here; without bytecode, each would compile all modules again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Workers have a width that is fixed, whatever a test asks for.
os.environ.pop("COLUMNS", None)

# A shell that starts this in the background has it ignore Ctrl-C, and so would all that it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def pytester(
    pytester: pytest.Pytester, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> pytest.Pytester:
    """Run pytest and other commands of Python in forks of a process that has done all imports, for speed.

    Tests that are about imports or about a process's own environment or children are marked ``new_interpreter``.
    """
    if request.node.get_closest_marker("new_interpreter") is None:
        fork_commands(pytester, monkeypatch)
    return pytester


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "new_interpreter: start new interpreters, where others fork a warm one")


# No test takes this long on any machine; one that hangs must not hang the others.
_SECONDS = 900


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Bound every test of this folder."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.timeout(_SECONDS))
