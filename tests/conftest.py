"""Fixtures and settings of all tests: pytester, the loopback server, forked processes, and time limits."""

from __future__ import annotations

import functools
import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis

# A session that runs in this process forgets the modules that it imported, and numpy cannot be imported twice.
import numpy  # noqa: F401
import pytest
import typer.main
import typer.testing

from pytest_toolemu.formats import regular_expressions
from pytest_toolemu.formats.redaction import REGISTRY
from tests.processes import fork_commands, session_caches

pytest_plugins = ["pytester", "tests.loopback.fixtures"]

# Many tests read all cases of the benchmark. This must come before the modules that import ``load_case``.
session_caches.keep_cases()

# Hypothesis must not limit the time of an example, which is longer on a busy machine. Every run tries the same examples.
hypothesis.settings.register_profile(
    "repeatable", deadline=None, derandomize=True, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("repeatable")

# These tests start thousands of processes; without bytecode, each would compile all modules again. The test modules would
# be compiled again by each worker.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# xdist sets a fixed terminal width for its workers, which tests must not inherit.
os.environ.pop("COLUMNS", None)

# The collection creates millions of objects that stay, which would be searched for garbage again and again.
_THRESHOLD = 10_000
gc.set_threshold(_THRESHOLD)

# No test depends on what survives a loss of power.
os.fsync = lambda fd: None  # noqa: ARG005 - the parameter has this name

# Each use of the runner would build the commands again, which takes longer than most commands run.
typer.testing._get_command = functools.cache(typer.main.get_command)  # type: ignore[attr-defined]

# A shell that starts pytest in the background makes it ignore Ctrl-C, and nohup makes it ignore a closed terminal, which
# child processes would inherit.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)


@pytest.fixture
def pytester(
    pytester: pytest.Pytester, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> pytest.Pytester:
    """Run pytest and other commands of Python in forks of a process that has done all imports, for speed.

    Tests of imports, or of the environment or children of a process, are marked ``new_interpreter``.
    """
    if request.node.get_closest_marker("new_interpreter") is None:
        fork_commands(pytester, monkeypatch)
    return pytester


@pytest.fixture(autouse=True)
def forget_secrets() -> Iterator[None]:
    """Forget the secrets that a test registers: otherwise all texts of later tests would be searched for them."""
    forget = REGISTRY.begin()
    yield
    forget()


@pytest.fixture
def short_search_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let searches for regular expressions fail after 0.02 s, as tests of the failure would last a second each."""
    monkeypatch.setattr(regular_expressions, "LIMIT", 0.02)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "new_interpreter: start new interpreters, where others fork a warm one")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each worker of ``-n`` one part of the tests, and let it take tests of others when it has none left.

    By default, xdist sends many small parts. Each of them would build the fixtures of its modules again, and workers
    would wait for the one that has the last long tests.
    """
    if config.getoption("dist") != "load":
        return None
    from xdist.scheduler import WorkStealingScheduling  # type: ignore[import-untyped]

    return WorkStealingScheduling(config, log)


def pytest_collection_finish() -> None:
    _exempt_from_collection()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Clean up after each module, so that no collection searches what earlier modules left, such as parsed cases."""
    if nextitem is not None and nextitem.path != item.path:
        _exempt_from_collection()


def _exempt_from_collection() -> None:
    """Exempt what exists now from garbage collection: thousands of tests would be searched again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_THRESHOLD)


# No test takes this long on any machine; a test that hangs must not block the others.
_SECONDS = 900


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Set a time limit for every test in this folder."""
    here = str(Path(__file__).parent)
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.timeout(_SECONDS))
