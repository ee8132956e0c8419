"""``toolemu worlds``: build the worlds of cases with a model, before an agent uses them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pytest_toolemu.cli.common import err, out
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.text import counted, visible

if TYPE_CHECKING:
    from pytest_toolemu.emulators.world_builder import PlannedWorld, WorldBuild
    from pytest_toolemu.models.retrying import HarnessModel
    from pytest_toolemu.settings.option_table import Settings


def worlds(
    paths: Annotated[list[Path], typer.Argument(help="Case files, or folders of cases.")],
    *,
    model: Annotated[str, typer.Option(metavar="SPEC", help="The model that builds the worlds.")],
    to: Annotated[
        Path, typer.Option(help="Folder for the worlds; worlds that it already contains are not built again.")
    ],
    worlds_per_case: Annotated[int, typer.Option("--worlds", min=1, max=99, help="Number of worlds per case.")] = 1,
    estimate: Annotated[
        bool, typer.Option("--estimate", help="Print what the missing worlds would cost, without sending anything.")
    ] = False,
) -> None:
    """Build and prove a world for each case whose toolkits declare entities.

    Sessions use the worlds with --toolemu-world=built. The variables TOOLEMU_BUDGET_USD and
    TOOLEMU_BUDGET_TOKENS set a budget.
    """
    from pytest_toolemu.authoring.find_files import find
    from pytest_toolemu.cli.common import command_settings, run_concurrently, with_components
    from pytest_toolemu.core.case_loading import load_case
    from pytest_toolemu.emulators.world_builder import PlannedWorld, WorldStage, by_case, plans_of

    settings = command_settings({})
    cases = [load_case(path) for path in find(paths).cases]
    buildable = [case for case in cases if plans_of(case.toolkits)]
    if not buildable:
        raise UsageError("no case has a toolkit that declares entities, so there is nothing to build")
    worlds_of_cases = [PlannedWorld(case, number, to) for case in buildable for number in range(1, worlds_per_case + 1)]
    missing = [planned for planned in worlds_of_cases if not planned.path.is_file()]

    if estimate and not missing:
        out.print(f"no world is missing in {to}, so nothing was sent")
        return
    if estimate:
        _print_estimate(settings, model, missing)
        return
    try:
        to.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{to}: worlds cannot be written there: {error.strerror}; name another folder with --to"
        ) from None

    builds: list[WorldBuild] = []

    async def work(endpoint: HarnessModel) -> None:
        stage = WorldStage(endpoint, settings.timeout, builds=builds)
        jobs = [partial(stage.build_case, of_case) for of_case in by_case(missing)]
        await run_concurrently(jobs, settings.concurrency, "building")

    try:
        with_components(settings, lambda components: components.models.harness_model(model), work)
    finally:
        _store_failures(builds)
    _print_builds(builds, f"{len(worlds_of_cases) - len(missing)} already in {to}")
    if skipped := len(cases) - len(buildable):
        out.print(f"{counted(skipped, 'case')} skipped: no toolkit declares entities")
    if sum(build.world is not None for build in builds) < len(missing):
        raise typer.Exit(1)


def _store_failures(builds: Sequence[WorldBuild]) -> None:
    """Write requests, replies, and problem of each failed attempt next to the worlds; remove those that succeeded."""
    from pytest_toolemu.formats.file_access import write_for_user
    from pytest_toolemu.sessions.manifest_records import StoredWorldBuild

    for build in builds:
        path = build.planned.failure_path
        if build.problem:
            record = StoredWorldBuild.of(build)
            write_for_user(path, record.model_dump_json(indent=2) + "\n", "name another folder with --to")
        else:
            path.unlink(missing_ok=True)


def _print_builds(builds: Sequence[WorldBuild], present: str) -> None:
    """Print what could not be built, a line of counts, and the fallbacks; ``present`` says what was there already."""
    from pytest_toolemu.core.messages import Usage
    from pytest_toolemu.core.run_notes import note_lines, notes_of

    for build in builds:
        if build.problem:
            err.print(_problem_line(build))
    built = [build.world for build in builds if build.world is not None]
    repaired = sum(bool(world.repairs) for world in built)
    calls_of_built = [build.ledger.model_calls for build in builds if build.world is not None]
    by_fallback = sum(any(call.instead_of for call in calls) for calls in calls_of_built)
    fallback = f", {by_fallback} by a fallback model" if by_fallback else ""
    failed = f", {len(builds) - len(built)} not built" if len(builds) > len(built) else ""
    usage = sum((build.ledger.usage("builder") for build in builds), Usage())
    out.print(
        f"{counted(len(built), 'world')} built ({repaired} after corrections{fallback}){failed}, {present}; "
        f"{usage.input:,} input and {usage.output:,} output tokens"
    )
    notes = ((build.planned.resolved_case.case.id, notes_of(build.ledger.model_calls)) for build in builds)
    for line in note_lines(notes):
        out.print(line)


def _print_estimate(settings: Settings, name: str, missing: Sequence[PlannedWorld]) -> None:

    from pytest_toolemu.analysis.cost_estimate import estimate_requests
    from pytest_toolemu.cli.common import print_estimate
    from pytest_toolemu.models.model_pool import ModelPool

    model = ModelPool(replace(settings, estimate=True)).harness_model(name).identity
    worlds = counted(len(missing), "world")
    print_estimate(estimate_requests("builder", model, len(missing), f"{worlds} to build"), settings, worlds)


def _problem_line(build: WorldBuild) -> str:

    names_option = "--toolemu-" in build.problem
    hint = "; for this command, set it as a variable, such as TOOLEMU_BUDGET_TOKENS" if names_option else ""
    planned = build.planned
    text = f"{planned.resolved_case.path}: world {planned.variant} was not built: {build.problem}{hint}"
    return visible(f"{text}; its requests and replies are in {planned.failure_path}")
