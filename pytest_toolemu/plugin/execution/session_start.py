"""What happens between the collection of items and the first case: checks, worlds, and in workers the scheduler."""

from __future__ import annotations

import gc

import pytest

from pytest_toolemu.plugin.execution.preflight import preflight
from pytest_toolemu.plugin.services import Services
from pytest_toolemu.plugin.session import RESOLVED_CASE


def lead_session(services: Services, items: list[pytest.Item]) -> None:
    """Check models and keys, and connect this process, which leads the session, with a new coordinator.

    Raise pytest.UsageError if the cases cannot be run as the settings require.
    """
    session = services.session
    if session.repetition and session.settings.agent:  # without it, only the cases that have an agent fail
        raise pytest.UsageError(f"toolemu: {session.repetition}")
    services.limit_exit()
    if session.settings.world == "built":
        from pytest_toolemu.plugin.execution.build_worlds import build_worlds, missing_worlds

        worlds = missing_worlds(items)
        preflight(services, builds_worlds=bool(worlds))
        _open_transport(services)
        build_worlds(services, worlds)
    else:
        preflight(services)
        _open_transport(services)


def _open_transport(services: Services) -> None:
    gc.freeze()  # as in workers
    services.open_transport()


def start_worker(services: Services, session: pytest.Session) -> None:
    """Start the cases of an xdist worker now, if all its items are cases."""
    services.limit_exit()
    # What collection has created lives as long as the process. Searching it for garbage again and again would slow down
    # cases, and take half of the time that the process needs to end.
    gc.freeze()
    # What Python tests patch (environment, clock, sockets) must not affect cases that are running.
    if all(RESOLVED_CASE in item.stash for item in session.items):
        from pytest_toolemu.plugin.execution.run_item import start_scheduler

        start_scheduler(session, services).offer_ready()
