"""Builds the worlds that a session needs and its folder lacks, in the process that leads it, before the first case."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_toolemu.core.case_loading import load_case
from pytest_toolemu.emulators.world_builder import PlannedWorld, WorldBuild, WorldStage, by_case
from pytest_toolemu.errors import DocumentError, UsageError
from pytest_toolemu.formats.counted import counted
from pytest_toolemu.formats.visible_text import visible
from pytest_toolemu.models.wrappers import HarnessModel, model_names
from pytest_toolemu.plugin.collection.item_agents import agent_configs
from pytest_toolemu.plugin.services import Services
from pytest_toolemu.plugin.session import PLANNED_WORLD, relative_path
from pytest_toolemu.plugin.session_files import unwritable_records
from pytest_toolemu.scheduling.coordinator_messages import WorldsMissing
from pytest_toolemu.sessions.manifest_records import StoredWorldBuild, WorldBuilds, counts_text
from pytest_toolemu.settings.option import folder_and_count

if TYPE_CHECKING:
    pass


def missing_worlds(items: Iterable[pytest.Item]) -> list[PlannedWorld]:
    """Return the worlds that are still to be built for these items, each once."""
    planned = (item.stash[PLANNED_WORLD] for item in items if PLANNED_WORLD in item.stash)
    return [one for of_case in by_case(planned) for one in of_case]


def announce_missing(services: Services, items: Iterable[pytest.Item]) -> None:
    """In an xdist worker: tell the controller which worlds are missing, before it starts cases."""
    from pytest_toolemu.scheduling.transport import encode

    worlds = tuple((str(one.resolved_case.path.absolute()), one.variant) for one in missing_worlds(items))
    worker_input = services.session.worker_input
    if worlds and worker_input is not None and worker_input.channel is not None:
        worker_input.channel.send(encode(WorldsMissing(worlds)))


def announced_worlds(services: Services) -> list[PlannedWorld]:
    """In the xdist controller: return the worlds that workers have announced as missing."""
    if services.transport is None:
        return []
    worlds = services.transport.read(lambda coordinator: sorted(coordinator.missing_worlds))
    folder = Path(folder_and_count(str(services.session.settings.worlds))[0]).absolute()
    load = functools.cache(load_case)
    try:
        return [PlannedWorld(load(Path(path)), variant, folder) for path, variant in worlds]
    except DocumentError as error:  # changed since the workers read it
        raise pytest.UsageError(visible(f"toolemu: {error}")) from None


def build_worlds(services: Services, worlds: Sequence[PlannedWorld]) -> None:
    """Build the worlds. Those that cannot be built leave their cases without a run, and nothing else stops.

    Raise pytest.UsageError if worlds or records cannot be written at all.
    """
    if not worlds:
        return
    session = services.session
    folder = relative_path(worlds[0].folder)
    try:
        worlds[0].folder.mkdir(parents=True, exist_ok=True)
        model = services.models.open_components().builder(agent_configs(session.settings))
        stage = WorldStage(
            model,
            session.settings.timeout,
            services.files.cassettes,
            functools.partial(_cassette_item, session.config.rootpath),
        )
        display = _Display(session.config.pluginmanager.getplugin("terminalreporter"))
        display.write_line(f"building {counted(len(worlds), 'world')} with {model_names(model)} in {folder}")
        _run(services, stage, worlds)
        display.write_line(counts_text(_stored(model, stage.builds).counts))
    except OSError as error:
        raise pytest.UsageError(f"toolemu: no world can be written to {folder}: {error.strerror or error}") from None
    except UsageError as error:
        raise pytest.UsageError(visible(f"toolemu: {error}")) from None


def _run(services: Services, stage: WorldStage, worlds: Sequence[PlannedWorld]) -> None:
    """Run the stage under the limits and the budget of the session, and store what it did, also after Ctrl-C."""
    store = services.files.store  # raises before anything is paid if records cannot be written
    services.start_stage_scheduler()
    if services.progress is not None:
        services.progress.stage = lambda: f"{len(stage.builds)}/{len(worlds)} worlds built"
    try:
        services.case_loop.run(stage.build_all(worlds, services.session.settings.concurrency))
    finally:
        services.case_loop.run(stage.wait_for_end())
        services.session.has_built_worlds = True
        if services.progress is not None:
            services.progress.stage = None
            services.progress.clear()
        services.close_stage_scheduler()
        services.session.cassette_uses += [build.cassette_use for build in stage.builds if build.cassette_use]
        try:
            store.put_world_builds(_stored(stage.model, stage.builds))
        except OSError as error:
            raise unwritable_records(services.session.folder, error) from None


def _stored(model: HarnessModel, builds: Sequence[WorldBuild]) -> WorldBuilds:
    return WorldBuilds(
        builder=model_names(model),
        builds=tuple(
            StoredWorldBuild(
                case_id=build.planned.resolved_case.case.id,
                variant=build.planned.variant,
                file=build.planned.path.name,
                problem=build.problem,
                repairs=len(build.world.repairs) if build.world else 0,
                messages=tuple(build.ledger.messages),
                model_calls=tuple(build.ledger.model_calls),
            )
            for build in builds
        ),
    )


def _cassette_item(rootpath: Path, planned: PlannedWorld) -> str:
    """Return the name of a world's cassette, which begins with the case's path as the node IDs of items do."""
    path = planned.resolved_case.path.absolute()
    relative = path.relative_to(rootpath) if path.is_relative_to(rootpath) else path
    return f"{relative.as_posix()}::{planned.resolved_case.case.id}[world{planned.variant}]"


class _Display:
    """Writes lines about the stage, unless pytest is quiet."""

    def __init__(self, reporter: Any) -> None:
        self._reporter = reporter

    def write_line(self, text: str) -> None:
        """Write a line of its own."""
        if self._reporter is not None and self._reporter.verbosity >= 0:
            self._reporter.ensure_newline()
            self._reporter.write_line(visible(f"toolemu: {text}"))
