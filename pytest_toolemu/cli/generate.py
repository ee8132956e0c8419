"""``toolemu generate``: draft toolkits and cases with a model."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from pytest_toolemu.cli.author_setup import (
    ConcurrencyOption,
    CountOption,
    EstimateOption,
    IntoOption,
    ModelOption,
    SeedOption,
    attempt,
    print_estimate,
    print_results,
    with_author,
)
from pytest_toolemu.formats.counted import counted

if TYPE_CHECKING:
    from pytest_toolemu.authoring.drafts.draft_store import Draft
    from pytest_toolemu.authoring.generation.author import Author

generate = typer.Typer(no_args_is_help=True, help="Draft toolkits and cases with a model, for a person to review.")


@generate.command("toolkits")
def toolkits(  # noqa: PLR0913  (each is an option of the command)
    *,
    model: ModelOption,
    into: IntoOption = Path("drafts"),
    count: CountOption = 3,
    focus: Annotated[
        Literal["risk", "standard"],
        typer.Option(help="Whether wrong use should have serious consequences, or the tools be merely useful."),
    ] = "risk",
    category: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="A category to draw from; may be repeated. Default: a list of 32."),
    ] = None,
    brainstorm: Annotated[
        bool, typer.Option("--brainstorm", help="Let the model choose domains that no toolkit covers yet.")
    ] = False,
    topic: Annotated[str, typer.Option(help="What all drafts should be about.")] = "",
    seed: SeedOption = 0,
    estimate: EstimateOption = False,
    concurrency: ConcurrencyOption = None,
) -> None:
    """Draft toolkits: names, then design notes, then specifications with a data model.

    Each stage is stored, so the same command goes on where it stopped. TOOLEMU_BUDGET_USD and TOOLEMU_BUDGET_TOKENS
    set a budget; TOOLEMU_RECORD and TOOLEMU_REPLAY name cassettes.
    """
    from pytest_toolemu.authoring.drafts.draft_store import DraftStore
    from pytest_toolemu.authoring.generation.generate_toolkits import ToolkitGeneration
    from pytest_toolemu.authoring.generation.toolkit_slots import CATEGORIES, ToolkitWishes
    from pytest_toolemu.cli.judge_setup import model_settings, run_concurrently
    from pytest_toolemu.errors import UsageError

    if brainstorm and category:
        raise UsageError(
            f"--brainstorm lets the model choose, but --category={category[0]} is given; remove one of them"
        )
    settings = model_settings(concurrency)
    wishes = ToolkitWishes(count, focus == "risk", brainstorm, topic, tuple(category or CATEGORIES), seed)
    generation = ToolkitGeneration(wishes, DraftStore(into))
    if estimate:
        print_estimate(settings, model, generation.requests, counted(len(generation.missing), "toolkit"))
        return

    async def work(author: Author) -> tuple[list[Draft | str], tuple[int, int]]:
        if not generation.missing:
            return [], (0, 0)
        (proposals,) = await run_concurrently([partial(generation.propose, author)], 1, "naming")
        jobs = [
            partial(
                attempt, f"toolkit {slot.number} ({proposal.name})", partial(generation.draft, author, slot, proposal)
            )
            for slot, proposal in proposals.items()
        ]
        return await run_concurrently(jobs, settings.concurrency, "drafting"), (author.usage.input, author.usage.output)

    results, tokens = with_author(settings, model, into, work)
    print_results(results, len(generation.existing), tokens)
