"""Hooks that distinguish what agents leave behind from what the project's own tests and fixtures start."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

from pytest_toolemu.plugin.keys import RESOLVED_CASE

if TYPE_CHECKING:
    from pytest_toolemu.plugin.services import Services


class LeftoverHooks:
    """Exempts the threads and processes that no agent started."""

    def __init__(self, services: Services) -> None:
        self._services = services

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None, Any, Any]:
        """Exempt what the project's fixtures start; remember those that serve several items, for cases run ahead."""
        # The fixture that runs a case is one of this package's.
        is_projects = fixturedef.func.__module__ != "pytest_toolemu.plugin.fixtures"
        with self._services.exempt() if is_projects else contextlib.nullcontext():
            value = yield
        if self._services.session.has_cases and fixturedef.scope != "function":
            self._services.active_fixtures.add_fixture(request, fixturedef, value)
        return value

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Exempt what a test starts that is not a case."""
        with contextlib.nullcontext() if RESOLVED_CASE in item.stash else self._services.exempt():
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None, None, None]:
        """Exempt what the body of a test starts, as its agent has ended by then."""
        with self._services.exempt():
            return (yield)
