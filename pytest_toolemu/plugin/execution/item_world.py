"""The case of an item in its world, which may have been built since the item was collected."""

from __future__ import annotations

import threading
from json import dumps
from typing import TYPE_CHECKING, Final

import pytest

from pytest_toolemu.core.world.built_world import in_built_world
from pytest_toolemu.errors import NotRunError
from pytest_toolemu.plugin.output.run_property import PROPERTY, properties
from pytest_toolemu.plugin.services import Services
from pytest_toolemu.plugin.session import PLANNED_WORLD, RESOLVED_CASE, CaseError

if TYPE_CHECKING:
    from pytest_toolemu.core.case import ResolvedCase


# An item may be prepared in its turn, on the main thread, while a thread prepares it before its turn.
_LOCK: Final = threading.Lock()


def case_in_world(item: pytest.Item, services: Services) -> ResolvedCase:
    """Return the item's case in its world. Raise NotRunError if the world was not built.

    An estimate builds nothing, so its cases have their own rows in place of those that would be built.
    """
    with _LOCK:
        return _case_in_world(item, services)


def _case_in_world(item: pytest.Item, services: Services) -> ResolvedCase:
    planned = item.stash.get(PLANNED_WORLD, None)
    if planned is None:
        return item.stash[RESOLVED_CASE]
    if services.session.settings.estimate:
        own_rows = planned.resolved_case.case.world
        declared = [kit.name for kit in planned.resolved_case.toolkits if kit.entities]
        return in_built_world(planned.resolved_case, {name: own_rows.get(name, {}) for name in declared})
    if not planned.path.is_file():
        builds = services.files.world_builds()
        reason = builds.problems.get(planned.path.name, "") if builds else ""
        raise NotRunError(f"{planned.name} was not built: {reason or 'the session ended before'}")
    from pytest_toolemu.plugin.collection.case_worlds import set_world

    set_world(item, planned)
    del item.stash[PLANNED_WORLD]
    return item.stash[RESOLVED_CASE]


def not_run(item: pytest.Item, error: NotRunError, trial: int) -> CaseError:
    """Return the error of an item without a world, and attach a run summary that says so to its reports."""
    from pytest_toolemu.analysis.run_summary import NOT_RUN

    summary = {**(properties(item.user_properties) or {}), "trial": trial, "outcome": NOT_RUN, "reason": str(error)}
    summary.setdefault("case", item.stash[RESOLVED_CASE].case.id)
    summary.setdefault("agent", "custom agent")
    item.user_properties[:] = [pair for pair in item.user_properties if pair[0] != PROPERTY]
    item.user_properties.append((PROPERTY, dumps(summary)))
    return CaseError(f"{NOT_RUN}: {error}")
