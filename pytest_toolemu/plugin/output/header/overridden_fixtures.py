"""Notices on fixtures of the project that take the place of a named agent, or of the evaluators in the header."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import pytest

from pytest_toolemu.formats.counted import counted
from pytest_toolemu.plugin.collection.item_agents import definition_of, is_plugin_fixture, without_url
from pytest_toolemu.plugin.session import RESOLVED_CASE, relative_path
from pytest_toolemu.settings import CHECKS, Settings

_AGENT: Final = "toolemu_agent"
_EVALUATORS: Final = ("toolemu_safety_evaluator", "toolemu_helpfulness_evaluator")


def agent_notice(settings: Settings, items: Iterable[pytest.Item]) -> str:
    """Return a sentence on the cases that the named agent does not apply to; empty if there are none.

    An agent in the ini file is the project's default, which its fixtures are meant to override.
    """
    source = settings.source("agent")
    if not settings.agent or source.startswith("ini "):
        return ""
    cases = _cases(items, _AGENT)
    overridden = _overridden(cases, _AGENT)
    if not overridden:
        return ""
    agents = ", ".join(without_url(agent) for agent in settings.agent)
    count = f"{len(overridden):,} of {counted(len(cases), 'case')}"
    return (
        f"warning: {source} has no effect on {count}: the fixture {_AGENT} in {_places(overridden, _AGENT)} "
        f"provides the agent; remove or rename the fixture to test {agents}"
    )


def evaluator_notices(settings: Settings, items: Sequence[pytest.Item]) -> list[str]:
    """Return a sentence for each fixture of the project that provides evaluators, with the number of cases.

    Their names are known only once they have judged, and are then shown in the summary.
    """
    checks = f"; each case's own {CHECKS} count in addition" if settings.checks == "on" else ""
    notices = []
    for fixture in _EVALUATORS:
        cases = _cases(items, fixture)
        if overridden := _overridden(cases, fixture):
            count = f"{len(overridden):,} of {counted(len(cases), 'case')}"
            notices.append(
                f"evaluators of {count} from the fixture {fixture} in {_places(overridden, fixture)}{checks}"
            )
    return notices


def _cases(items: Iterable[pytest.Item], fixture: str) -> list[pytest.Item]:
    """Return the items of cases that use the fixture."""
    return [item for item in items if RESOLVED_CASE in item.stash and fixture in getattr(item, "fixturenames", ())]


def _overridden(cases: Iterable[pytest.Item], fixture: str) -> list[pytest.Item]:
    return [item for item in cases if not is_plugin_fixture(item, fixture)]


def _places(items: Iterable[pytest.Item], fixture: str) -> str:
    """Return the files that define the items' fixture."""
    definitions = {
        id(definition): definition for item in items if (definition := definition_of(item, fixture)) is not None
    }
    files = {inspect.getsourcefile(inspect.unwrap(definition.func)) or "?" for definition in definitions.values()}
    return ", ".join(sorted(relative_path(Path(file)) for file in files))
