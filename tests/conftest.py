"""For all tests: helpers of pytest's own, the loopback server, and properties that may take their time."""

from __future__ import annotations

from pathlib import Path

import hypothesis
import pytest

pytest_plugins = ["pytester", "tests.loopback.fixtures"]

# No test looks at a clock: on a busy machine an example takes as long as it takes.
hypothesis.settings.register_profile(
    "unhurried", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("unhurried")

LIVE = Path(__file__).parent / "live"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--live", action="append", default=[], metavar="LANE", help="also run tests/live/LANE, with what is real there"
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Tests with real servers are only collected where they are asked for: they install what they need."""
    if collection_path.parent != LIVE or not collection_path.is_dir():
        return None
    return collection_path.name not in config.getoption("--live") or None
