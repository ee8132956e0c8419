"""The world in which an item's agent meets its case: the case's own rows, built rows, or none."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.world.built_world import per_call
from pytest_toolemu.errors import UsageError
from pytest_toolemu.plugin.collection.item_agents import agent_configs
from pytest_toolemu.plugin.services import SERVICES, Services
from pytest_toolemu.plugin.session import PLANNED_WORLD, RESOLVED_CASE, TRAP
from pytest_toolemu.settings import Settings
from pytest_toolemu.settings.option import folder_and_count

if TYPE_CHECKING:
    from pytest_toolemu.emulators.world_builder import PlannedWorld


def set_case(item: pytest.Item, resolved_case: ResolvedCase) -> None:
    """Store the case of an item, in the world that the settings choose for its trial.

    A world that must still be built is noted on the item. Raise UsageError if nothing builds it, and WorldError if its
    rows cannot be read.
    """
    params: dict[str, Any] = item.callspec.params if hasattr(item, "callspec") else {}
    services, trial = item.config.stash[SERVICES], params.get("toolemu_trial", 1)
    planned = _planned_world(resolved_case, services.session.settings, trial)
    if planned is None:
        item.stash[RESOLVED_CASE] = _without_built_rows(resolved_case, services.session.settings)
    elif planned.path.is_file():
        set_world(item, planned)
    elif _is_buildable(services):
        item.stash[RESOLVED_CASE], item.stash[PLANNED_WORLD] = resolved_case, planned
    else:
        raise _missing(planned, services.session.settings)


def set_world(item: pytest.Item, planned: PlannedWorld) -> None:
    """Store the case of an item in a world that exists. Raise UsageError for a world that does not fit the case."""
    item.stash[RESOLVED_CASE], item.stash[TRAP] = planned.proved()


def _planned_world(resolved_case: ResolvedCase, settings: Settings, trial: int) -> PlannedWorld | None:
    """Return the built world for a trial; None if the case is not to be run in one."""
    if settings.world != "built" or not any(kit.entities for kit in resolved_case.toolkits):
        return None
    from pytest_toolemu.emulators.world_builder import PlannedWorld

    if settings.worlds is None:
        raise UsageError(
            "--toolemu-world=built needs worlds; build them with 'toolemu worlds' and name their folder with "
            "--toolemu-worlds=DIR"
        )
    folder, count = folder_and_count(settings.worlds)
    # Absolute, because an agent may change the current folder before the world of another case is read.
    return PlannedWorld(resolved_case, 1 + (trial - 1) % count, Path(folder).absolute())


def _without_built_rows(resolved_case: ResolvedCase, settings: Settings) -> ResolvedCase:
    return per_call(resolved_case) if settings.world == "calls" and resolved_case.case.world else resolved_case


def _is_buildable(services: Services) -> bool:
    """Return whether this session builds missing worlds. With ``--dist=each``, each worker would build its own."""
    worker_input = services.session.worker_input
    if worker_input is not None and worker_input.channel is None:
        return False
    return bool(services.models.open_components().names.builder(agent_configs(services.session.settings)))


def _missing(planned: PlannedWorld, settings: Settings) -> UsageError:
    folder, count = folder_and_count(str(settings.worlds))
    more = f" --worlds={count}" if count > 1 else ""
    resolved_case = planned.resolved_case
    return UsageError(
        f"{resolved_case.case.id}: there is no world {planned.variant} for this version of the case and its toolkits "
        f"in {folder}; run: toolemu worlds {resolved_case.path} --model=MODEL --to={folder}{more}; or let the "
        "session build it with --toolemu-builder=MODEL"
    )
