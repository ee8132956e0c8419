"""``toolemu worlds``: build the worlds of cases with a model, before any agent meets them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pytest_toolemu.cli.consoles import err, out
from pytest_toolemu.formats.counted import counted

if TYPE_CHECKING:
    from pytest_toolemu.core.messages import Model
    from pytest_toolemu.emulators.world_stage import PlannedWorld, WorldBuild
    from pytest_toolemu.settings import Settings

worlds = typer.Typer(no_args_is_help=True, help="Worlds of cases: rows that a model builds and code proves.")


@worlds.command()
def build(
    paths: Annotated[list[Path], typer.Argument(help="Case files, or folders of cases.")],
    *,
    model: Annotated[str, typer.Option(metavar="SPEC", help="The model that builds the worlds.")],
    to: Annotated[Path, typer.Option(help="Folder for the worlds; those that it already has are not built again.")],
    worlds_per_case: Annotated[int, typer.Option("--worlds", min=1, max=99, help="Number of worlds of each case.")] = 1,
    estimate: Annotated[
        bool, typer.Option("--estimate", help="Print what the missing worlds would cost, and send nothing.")
    ] = False,
    concurrency: Annotated[int | None, typer.Option(min=1, help="Number of cases built at the same time.")] = None,
) -> None:
    """Build and prove a world for each case whose toolkits declare entities.

    Sessions use the worlds with --toolemu-world=built. The variables TOOLEMU_BUDGET_USD and
    TOOLEMU_BUDGET_TOKENS set a budget.
    """
    from pytest_toolemu.authoring.find_files import find
    from pytest_toolemu.cli.judge_setup import model_settings, run_concurrently, with_model
    from pytest_toolemu.core.case_loading import load_case
    from pytest_toolemu.emulators.world_builder import declared_plans
    from pytest_toolemu.emulators.world_stage import PlannedWorld, WorldStage, by_case
    from pytest_toolemu.errors import UsageError

    settings = model_settings(concurrency)
    cases = [load_case(path) for path in find(paths).cases]
    buildable = [case for case in cases if declared_plans(case)]
    if not buildable:
        raise UsageError("no case has a toolkit that declares entities, so there is nothing to build")
    worlds_of_cases = [PlannedWorld(case, number, to) for case in buildable for number in range(1, worlds_per_case + 1)]
    missing = [planned for planned in worlds_of_cases if not planned.path.is_file()]

    if estimate and not missing:
        out.print(f"no world is missing in {to}; nothing was sent", markup=False)
        return
    if estimate:
        _print_estimate(settings, model, missing)
        return
    to.mkdir(parents=True, exist_ok=True)

    async def work(endpoint: Model) -> list[list[WorldBuild]]:
        stage = WorldStage(endpoint, settings.timeout)
        jobs = [partial(stage.build_case, of_case) for of_case in by_case(missing)]
        return await run_concurrently(jobs, settings.concurrency, "building")

    builds = [build for of_case in with_model(settings, model, work) for build in of_case]
    for build in builds:
        if build.problem:
            err.print(_problem_line(build), markup=False)
    built = [build.world for build in builds if build.world is not None]
    tokens = [sum(getattr(world, f"{kind}_tokens") for world in built) for kind in ("input", "output")]
    repaired = sum(bool(world.repairs) for world in built)
    skipped = len(cases) - len(buildable)
    out.print(
        f"{counted(len(built), 'world')} built ({repaired} after corrections), "
        f"{len(worlds_of_cases) - len(missing)} already in {to}; "
        f"{tokens[0]:,} input and {tokens[1]:,} output tokens",
        markup=False,
    )
    if skipped:
        out.print(f"{counted(skipped, 'case')} skipped: no toolkit declares entities", markup=False)
    if len(built) < len(missing):
        raise typer.Exit(1)


def _print_estimate(settings: Settings, name: str, missing: Sequence[PlannedWorld]) -> None:
    from dataclasses import replace

    from pytest_toolemu.analysis.cost_estimate.forecast import Forecast
    from pytest_toolemu.analysis.cost_estimate.world_forecast import world_forecast
    from pytest_toolemu.components import Components
    from pytest_toolemu.formats.redaction import plain
    from pytest_toolemu.models.pricing import Prices
    from pytest_toolemu.reporting.estimate_text import estimate_lines

    model = Components(replace(settings, estimate=True)).model(name)
    worlds = [(planned.resolved_case, planned.variant) for planned in missing]
    builder, line, sentence = world_forecast(worlds, model)
    result = Forecast({builder: line}, (sentence,))
    prices = Prices.read(Path(settings.prices) if settings.prices else None)
    for text in estimate_lines(result, prices, counted(len(missing), "world"), out.width if out.is_terminal else None):
        out.print(plain(text), markup=False, soft_wrap=True)


def _problem_line(build: WorldBuild) -> str:
    from pytest_toolemu.formats.redaction import plain

    names_option = "--toolemu-" in build.problem
    hint = "; for this command, set it as a variable, such as TOOLEMU_BUDGET_TOKENS" if names_option else ""
    planned = build.planned
    return plain(f"{planned.resolved_case.path}: world {planned.variant} was not built: {build.problem}{hint}")
