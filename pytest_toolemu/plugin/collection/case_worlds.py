"""The world in which an item's agent meets its case: the case's own rows, built rows, or none."""

from __future__ import annotations

from pathlib import Path

from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.world.built_world import in_built_world, per_call, read_world, world_path
from pytest_toolemu.core.world.case_rows import row_problems
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.yaml_document import format_location
from pytest_toolemu.settings import Settings
from pytest_toolemu.settings.option_values import folder_and_count


def in_world(resolved_case: ResolvedCase, settings: Settings, trial: int) -> ResolvedCase:
    """Return the case in the world that the settings choose for a trial, counted from 1.

    Raise UsageError if the world was not built.
    """
    if settings.world == "calls":
        return per_call(resolved_case) if resolved_case.case.world else resolved_case
    if settings.world == "case" or not any(kit.entities for kit in resolved_case.toolkits):
        return resolved_case
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
    built = in_built_world(resolved_case, read_world(path, key).rows)
    if problems := row_problems(built.case, built.toolkits):
        loc, message = problems[0]
        where = format_location(loc).replace("world.", "rows.", 1)
        raise UsageError(f"{path}: {where}: {message}; correct the file, or remove it and build it again")
    return built
