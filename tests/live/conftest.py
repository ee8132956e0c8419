"""Slow tests against real services: ``pytest tests/live --live=NAME`` runs ``tests/live/NAME``."""

from __future__ import annotations

from pathlib import Path

import pytest

# These need an environment with a framework. test_live.py makes it and names the file, which pytest then collects.
collect_ignore_glob = ["*/test_adapter.py", "*/test_graphs.py"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--live``. pytest only loads this file early enough if the command line names tests/live."""
    parser.addoption("--live", action="append", default=[], metavar="NAME", help="run tests/live/NAME; repeatable")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    here, chosen = Path(__file__).parent, config.getoption("--live", default=[])
    for item in items:
        lane = item.path.relative_to(here).parts[0] if item.path.is_relative_to(here) else None
        if lane is not None and lane not in chosen:
            item.add_marker(pytest.mark.skip(reason=f"live: pytest tests/live --live={lane}"))
