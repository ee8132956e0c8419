"""The worlds in which agents meet their cases: planned at collection, and built where a folder lacks them."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.case_loading import load_case
from pytest_toolemu.core.world.built_world import in_built_world, per_call
from pytest_toolemu.errors import DocumentError, NotRunError, UsageError
from pytest_toolemu.formats.text import counted, visible
from pytest_toolemu.plugin.collection.item_agents import agent_configs, params_of
from pytest_toolemu.plugin.session import (
    PLANNED_WORLD,
    RESOLVED_CASE,
    SESSION,
    TRAP,
    ToolemuSession,
    relative_path,
    unwritable_records,
)
from pytest_toolemu.settings.option import folder_and_count
from pytest_toolemu.settings.option_table import Settings
from pytest_toolemu.settings.resolution import ComponentNames

if TYPE_CHECKING:
    from pytest_toolemu.components import Components
    from pytest_toolemu.emulators.world_builder import PlannedWorld, WorldBuild, WorldStage
    from pytest_toolemu.models.retrying import HarnessModel
    from pytest_toolemu.plugin.output.progress import Progress
    from pytest_toolemu.scheduling.event_loop import CaseLoop
    from pytest_toolemu.scheduling.transport import Transport
    from pytest_toolemu.sessions.manifest_records import WorldBuilds


def set_case(item: pytest.Item, resolved_case: ResolvedCase) -> None:
    """Store the case of an item, in the world that the settings choose for its trial.

    A world that must still be built is noted on the item. Raise UsageError if nothing builds it, and WorldError if its
    rows cannot be read.
    """
    settings = item.config.stash[SESSION].settings
    planned = _planned_world(resolved_case, settings, params_of(item).get("toolemu_trial", 1))
    if planned is None:
        is_per_call = settings.world == "calls" and resolved_case.case.world
        item.stash[RESOLVED_CASE] = per_call(resolved_case) if is_per_call else resolved_case
    elif planned.path.is_file():
        item.stash[RESOLVED_CASE], item.stash[TRAP] = planned.proved()
    elif ComponentNames(settings).builder(agent_configs(settings)):
        item.stash[RESOLVED_CASE], item.stash[PLANNED_WORLD] = resolved_case, planned
    else:
        raise _missing(planned, settings)


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


def _missing(planned: PlannedWorld, settings: Settings) -> UsageError:
    folder, count = folder_and_count(str(settings.worlds))
    more = f" --worlds={count}" if count > 1 else ""
    resolved_case = planned.resolved_case
    return UsageError(
        f"{resolved_case.case.id}: there is no world {planned.variant} for this version of the case and its toolkits "
        f"in {folder}; run: toolemu worlds {resolved_case.path} --model=MODEL --to={folder}{more}; or let the "
        "session build it with --toolemu-builder=MODEL"
    )


def case_in_world(item: pytest.Item, session: ToolemuSession) -> ResolvedCase:
    """Return the item's case in its world, which may have been built since. Raise NotRunError if it was not.

    An estimate builds nothing, so its cases have their own rows in place of those that would be built.
    """
    planned = item.stash.get(PLANNED_WORLD, None)
    if planned is None:
        return item.stash[RESOLVED_CASE]
    if session.settings.estimate:
        own_rows = planned.resolved_case.case.world
        declared = [kit.name for kit in planned.resolved_case.toolkits if kit.entities]
        return in_built_world(planned.resolved_case, {name: own_rows.get(name, {}) for name in declared})
    if not planned.path.is_file():
        builds = session.store.world_builds()
        reason = builds.problems.get(planned.path.name, "") if builds else ""
        raise NotRunError(f"{planned.name} was not built: {reason or 'the session ended before'}")
    item.stash[RESOLVED_CASE], item.stash[TRAP] = planned.proved()
    item.stash[PLANNED_WORLD] = None  # its turn, and its run before it, may both come here
    return item.stash[RESOLVED_CASE]


# ---- building, in the process that leads the session, before the first case


def missing_worlds(items: Iterable[pytest.Item]) -> list[PlannedWorld]:
    """Return the worlds that are still to be built for these items, each once."""
    from pytest_toolemu.emulators.world_builder import by_case

    planned = (world for item in items if (world := item.stash.get(PLANNED_WORLD, None)) is not None)
    return [one for of_case in by_case(planned) for one in of_case]


def announce_missing(session: ToolemuSession, items: Iterable[pytest.Item]) -> None:
    """In an xdist worker: tell the controller which worlds are missing, before it starts cases."""
    from pytest_toolemu.scheduling.coordinator_messages import WorldsMissing
    from pytest_toolemu.scheduling.transport import encode

    worlds = tuple((str(one.resolved_case.path.absolute()), one.variant) for one in missing_worlds(items))
    worker_input = session.worker_input
    if worlds and worker_input is not None and worker_input.channel is not None:
        worker_input.channel.send(encode(WorldsMissing(worlds)))


def announced_worlds(session: ToolemuSession, transport: Transport) -> list[PlannedWorld]:
    """In the xdist controller: return the worlds that workers have announced as missing."""
    from pytest_toolemu.emulators.world_builder import PlannedWorld

    worlds = transport.read(lambda coordinator: sorted(coordinator.missing_worlds))
    folder = Path(folder_and_count(str(session.settings.worlds))[0]).absolute()
    load = functools.cache(load_case)
    try:
        return [PlannedWorld(load(Path(path)), variant, folder) for path, variant in worlds]
    except DocumentError as error:  # changed since the workers read it
        raise pytest.UsageError(visible(f"toolemu: {error}")) from None


def build_worlds(
    session: ToolemuSession,
    worlds: Sequence[PlannedWorld],
    components: Components,
    loop: CaseLoop,
    progress: Progress | None,
) -> None:
    """Build the worlds. Those that cannot be built leave their cases without a run, and nothing else stops.

    Raise pytest.UsageError if worlds or records cannot be written at all.
    """
    from pytest_toolemu.emulators.world_builder import WorldStage
    from pytest_toolemu.models.retrying import model_names
    from pytest_toolemu.sessions.manifest_records import counts_text

    folder = relative_path(worlds[0].folder)
    write_line = functools.partial(_write_line, session.config.pluginmanager.getplugin("terminalreporter"))
    try:
        worlds[0].folder.mkdir(parents=True, exist_ok=True)
        model = components.builder(agent_configs(session.settings))
        cassette_item = functools.partial(_cassette_item, session.config.rootpath)
        stage = WorldStage(model, session.settings.timeout, session.cassettes, cassette_item)
        write_line(f"building {counted(len(worlds), 'world')} with {model_names(model)} in {folder}")
        _run(session, stage, worlds, loop, progress)
        write_line(counts_text(_stored(model, stage.builds).counts))
    except OSError as error:
        raise pytest.UsageError(f"toolemu: no world can be written to {folder}: {error.strerror or error}") from None
    except UsageError as error:
        raise pytest.UsageError(visible(f"toolemu: {error}")) from None


def _run(
    session: ToolemuSession,
    stage: WorldStage,
    worlds: Sequence[PlannedWorld],
    loop: CaseLoop,
    progress: Progress | None,
) -> None:
    """Run the stage under the limits and the budget of the session, and store what it did, also after Ctrl-C."""
    store = session.store  # raises before anything is paid if records cannot be written
    if progress is not None:
        progress.stage = lambda: f"{len(stage.builds)}/{len(worlds)} worlds built"
    try:
        loop.run(stage.build_all(worlds, session.settings.concurrency))
    finally:
        loop.run(stage.wait_for_end())
        session.has_built_worlds = True
        if progress is not None:
            progress.stage = None
            progress.clear()
        session.cassette_uses += [each.recorder.use for each in stage.builds if each.recorder and each.recorder.use]
        try:
            store.put_world_builds(_stored(stage.model, stage.builds))
        except OSError as error:
            raise unwritable_records(session.folder, error) from None


def _stored(model: HarnessModel, builds: Sequence[WorldBuild]) -> WorldBuilds:
    from pytest_toolemu.models.retrying import model_names
    from pytest_toolemu.sessions.manifest_records import StoredWorldBuild, WorldBuilds

    return WorldBuilds(builder=model_names(model), builds=tuple(map(StoredWorldBuild.of, builds)))


def _cassette_item(rootpath: Path, planned: PlannedWorld) -> str:
    """Return the name of a world's cassette, which begins with the case's path as the node IDs of items do."""
    path = planned.resolved_case.path.absolute()
    relative = path.relative_to(rootpath) if path.is_relative_to(rootpath) else path
    return f"{relative.as_posix()}::{planned.resolved_case.case.id}[world{planned.variant}]"


def _write_line(reporter: Any, text: str) -> None:
    """Write a line about the stage, unless pytest is quiet."""
    if reporter is not None and reporter.verbosity >= 0:
        reporter.ensure_newline()
        reporter.write_line(visible(f"toolemu: {text}"))
