"""``toolemu worlds``: build the worlds of cases with a model, before any agent meets them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pytest_toolemu.cli.consoles import err, out
from pytest_toolemu.formats.counted import counted

if TYPE_CHECKING:
    from pytest_toolemu.core.case import ResolvedCase
    from pytest_toolemu.core.messages import Model
    from pytest_toolemu.core.world.built_world import BuiltWorld

worlds = typer.Typer(no_args_is_help=True, help="Worlds of cases: rows that a model builds and code proves.")


@worlds.command()
def build(
    paths: Annotated[list[Path], typer.Argument(help="Case files, or folders of cases.")],
    *,
    model: Annotated[str, typer.Option(metavar="SPEC", help="The model that builds the worlds.")],
    to: Annotated[Path, typer.Option(help="Folder for the worlds; those that it already has are not built again.")],
    worlds_per_case: Annotated[int, typer.Option("--worlds", min=1, max=99, help="Number of worlds of each case.")] = 1,
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
    from pytest_toolemu.errors import UsageError

    settings = model_settings(concurrency)
    cases = [load_case(path) for path in find(paths).cases]
    buildable = [case for case in cases if declared_plans(case)]
    if not buildable:
        raise UsageError("no case has a toolkit that declares entities, so there is nothing to build")
    to.mkdir(parents=True, exist_ok=True)

    async def work(endpoint: Model) -> list[_Built]:
        jobs = [partial(_build_all, case, endpoint, to, worlds_per_case) for case in buildable]
        return await run_concurrently(jobs, settings.concurrency, "building")

    results = with_model(settings, model, work)
    for result in results:
        for problem in result.problems:
            err.print(problem, markup=False)
    built = [world for result in results for world in result.built]
    present = sum(result.present for result in results)
    tokens = [sum(getattr(world, f"{kind}_tokens") for world in built) for kind in ("input", "output")]
    repaired = sum(bool(world.repairs) for world in built)
    skipped = len(cases) - len(buildable)
    out.print(
        f"{counted(len(built), 'world')} built ({repaired} after corrections), {present} already in {to}; "
        f"{tokens[0]:,} input and {tokens[1]:,} output tokens",
        markup=False,
    )
    if skipped:
        out.print(f"{counted(skipped, 'case')} skipped: no toolkit declares entities", markup=False)
    if any(result.problems for result in results):
        raise typer.Exit(1)


class _Built:
    """The worlds of one case: those that were built, how many were there, and why others could not be built."""

    def __init__(self) -> None:
        self.built: list[BuiltWorld] = []
        self.present = 0
        self.problems: list[str] = []


async def _build_all(resolved_case: ResolvedCase, model: Any, folder: Path, count: int) -> _Built:
    from pytest_toolemu.core.world.built_world import read_world, world_path, write_world
    from pytest_toolemu.emulators.world_builder import build_world, builder_key
    from pytest_toolemu.errors import InconclusiveError, ModelError
    from pytest_toolemu.formats.redaction import plain

    result, earlier = _Built(), []
    for variant in range(1, count + 1):
        key = builder_key(resolved_case, variant)
        path = world_path(folder, resolved_case.case.id, key, variant)
        try:
            if path.is_file():
                earlier.append(read_world(path, key))
                result.present += 1
                continue
            world = await build_world(resolved_case, model, variant=variant, earlier=earlier, seed=variant - 1)
        except (InconclusiveError, ModelError) as error:
            result.problems.append(plain(f"{resolved_case.path}: world {variant} was not built: {error}"))
            continue
        write_world(folder, world)
        earlier.append(world)
        result.built.append(world)
    return result
