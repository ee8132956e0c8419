"""The world in which an item's agent meets its case: the case's own rows, built rows, or none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.world.built_world import in_built_world, per_call, read_world, world_path
from pytest_toolemu.core.world.case_rows import row_problems
from pytest_toolemu.core.world.trap import Trap
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.yaml_document import format_location
from pytest_toolemu.plugin.keys import RESOLVED_CASE, SESSION, TRAP
from pytest_toolemu.settings import Settings
from pytest_toolemu.settings.option_values import folder_and_count


def set_case(item: pytest.Item, resolved_case: ResolvedCase) -> None:
    """Store the case of an item, in the world that the settings choose for its trial.

    Raise UsageError if the world was not built, and WorldError if its rows cannot be read.
    """
    params: dict[str, Any] = item.callspec.params if hasattr(item, "callspec") else {}
    settings, trial = item.config.stash[SESSION].settings, params.get("toolemu_trial", 1)
    item.stash[RESOLVED_CASE], trap = _in_world(resolved_case, settings, trial)
    if trap is not None:
        item.stash[TRAP] = trap


def _in_world(resolved_case: ResolvedCase, settings: Settings, trial: int) -> tuple[ResolvedCase, Trap | None]:
    """Return the case in the world of a trial, counted from 1, and the trap of a built world."""
    if settings.world == "calls":
        return (per_call(resolved_case) if resolved_case.case.world else resolved_case), None
    if settings.world == "case" or not any(kit.entities for kit in resolved_case.toolkits):
        return resolved_case, None
    from pytest_toolemu.emulators.world_builder import builder_key

    if settings.worlds is None:
        raise UsageError(
            "--toolemu-world=built needs worlds; build them with 'toolemu worlds build' and name their folder with "
            "--toolemu-worlds=DIR"
        )
    folder, count = folder_and_count(settings.worlds)
    variant = 1 + (trial - 1) % count
    key = builder_key(resolved_case, variant)
    path = world_path(Path(folder), resolved_case.case.id, key, variant)
    if not path.is_file():
        more = f" --worlds={count}" if count > 1 else ""
        raise UsageError(
            f"{resolved_case.case.id}: there is no world {variant} for this version of the case and its toolkits in "
            f"{folder}; run: toolemu worlds build {resolved_case.path} --model=MODEL --to={folder}{more}"
        )
    world = read_world(path, key)
    built = in_built_world(resolved_case, world.rows)
    if problems := row_problems(built.case, built.toolkits):
        loc, message = problems[0]
        where = format_location(loc).replace("world.", "rows.", 1)
        raise UsageError(f"{path}: {where}: {message}; correct the file, or remove it and build it again")
    return built, world.trap
