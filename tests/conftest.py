"""For all tests: helpers of pytest's own, the loopback server, and properties that may take their time."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import hypothesis
import pytest

pytest_plugins = ["pytester", "tests.loopback.fixtures"]

# No test looks at a clock: on a busy machine an example takes as long as it takes.
hypothesis.settings.register_profile(
    "unhurried", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("unhurried")

# A thousand processes are started here; each would compile all anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Workers have a width that is fixed, whatever a test asks for.
os.environ.pop("COLUMNS", None)

# A shell that starts this in the background has it ignore Ctrl-C, and so would all that it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No test takes this long on any machine; one that hangs must not hang the others.
_SECONDS = 900


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Bound every test of this folder."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.timeout(_SECONDS))
