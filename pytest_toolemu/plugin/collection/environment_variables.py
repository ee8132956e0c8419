"""``TOOLEMU_*`` variables, in the environment and in the ``.env`` file, that do not have the intended effect."""

from __future__ import annotations

import os
from collections.abc import Mapping

import pytest

from pytest_toolemu.settings import PREFIX, unknown_variables
from pytest_toolemu.settings.environment import toolemu_variables


def check(config: pytest.Config) -> None:
    """Raise UsageError for a variable that is a misspelled setting."""
    _unknown(config)


def empty(config: pytest.Config) -> list[str]:
    """Return the variables that are set but empty, such as an undefined secret of a CI job. They have no effect."""
    return [name for name, value in sorted(_given(config).items()) if name.startswith(PREFIX) and not value.strip()]


def header(config: pytest.Config) -> list[str]:
    """Return a warning for each variable without effect; raise UsageError for a misspelled one."""
    return [
        *(f"toolemu: warning: {name} is set but empty, and has no effect" for name in empty(config)),
        *(f"toolemu: warning: {variable} is not a known setting and has no effect" for variable in _unknown(config)),
    ]


def _unknown(config: pytest.Config) -> list[str]:
    return unknown_variables(os.environ, _in_file(config))


def _given(config: pytest.Config) -> Mapping[str, str]:
    return _in_file(config) | os.environ


def _in_file(config: pytest.Config) -> dict[str, str]:
    return toolemu_variables(config.rootpath / ".env")
