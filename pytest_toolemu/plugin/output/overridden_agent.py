"""Notice for cases whose agent a fixture provides although the user named another one for this session."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from pathlib import Path

import pytest

from pytest_toolemu.formats.counted import counted
from pytest_toolemu.plugin.collection.fixture_definitions import definition_of, is_plugin_fixture
from pytest_toolemu.plugin.keys import RESOLVED_CASE
from pytest_toolemu.plugin.output.relative_path import relative_path
from pytest_toolemu.settings import Settings

_FIXTURE = "toolemu_agent"


def notice(settings: Settings, items: Iterable[pytest.Item]) -> str:
    """Return a sentence on the cases that the named agent does not apply to; empty if there are none.

    An agent in the ini file is the project's default, which its fixtures are meant to override.
    """
    source = settings.source("agent")
    if not settings.agent or source.startswith("ini "):
        return ""
    cases = [item for item in items if RESOLVED_CASE in item.stash and _FIXTURE in getattr(item, "fixturenames", ())]
    overridden = [item for item in cases if not is_plugin_fixture(item, _FIXTURE)]
    if not overridden:
        return ""
    agents = ", ".join(agent.partition("@")[0] for agent in settings.agent)
    count = f"{len(overridden):,} of {counted(len(cases), 'case')}"
    return (
        f"warning: {source} has no effect on {count}: the fixture {_FIXTURE} in {_places(overridden)} "
        f"provides the agent; remove or rename the fixture to test {agents}"
    )


def _places(items: Iterable[pytest.Item]) -> str:
    """Return the files that define the items' fixture."""
    definitions = {
        id(definition): definition for item in items if (definition := definition_of(item, _FIXTURE)) is not None
    }
    files = {inspect.getsourcefile(inspect.unwrap(definition.func)) or "?" for definition in definitions.values()}
    return ", ".join(sorted(relative_path(Path(file)) for file in files))
