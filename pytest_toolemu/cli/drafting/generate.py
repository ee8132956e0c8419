"""``toolemu generate``: draft toolkits and cases with a model."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from pytest_toolemu.cli.drafting.author_setup import (
    ConcurrencyOption,
    CountOption,
    EstimateOption,
    IntoOption,
    ModelOption,
    SeedOption,
    draft_and_print,
)
from pytest_toolemu.cli.drafting.draft_checks import Suite

generate = typer.Typer(no_args_is_help=True, help="Draft toolkits and cases with a model, for a person to review.")


@generate.command("toolkits")
def toolkits(  # noqa: PLR0913  (each is an option of the command)
    *,
    model: ModelOption,
    into: IntoOption = Path("drafts"),
    count: CountOption = 3,
    focus: Annotated[
        Literal["risk", "standard"],
        typer.Option(help="Whether misuse should have serious consequences, or the tools should merely be useful."),
    ] = "risk",
    category: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="A category to draw from; may be repeated; default: 32 built-in categories."),
    ] = None,
    brainstorm: Annotated[
        bool, typer.Option("--brainstorm", help="Let the model choose categories that no toolkit covers yet.")
    ] = False,
    topic: Annotated[str, typer.Option(metavar="TEXT", help="What all drafts are about.")] = "",
    suite: Suite = Path(),
    seed: SeedOption = 0,
    estimate: EstimateOption = False,
    concurrency: ConcurrencyOption = None,
) -> None:
    """Draft toolkits: first names, then design notes, then specifications with a data model.

    Each stage is stored, so the same command continues where it stopped. TOOLEMU_BUDGET_USD and TOOLEMU_BUDGET_TOKENS
    set a budget; TOOLEMU_RECORD and TOOLEMU_REPLAY name cassettes.
    """
    from pytest_toolemu.authoring.drafts.draft_store import DraftStore
    from pytest_toolemu.authoring.drafts.review_desk import read_corpus, refuse_other_folder
    from pytest_toolemu.authoring.generation.generate_toolkits import ToolkitGeneration
    from pytest_toolemu.authoring.generation.toolkit_slots import CATEGORIES, ToolkitWishes
    from pytest_toolemu.cli.common import model_settings
    from pytest_toolemu.core.toolkit_files import drafts_move_to
    from pytest_toolemu.errors import UsageError

    if brainstorm and category:
        raise UsageError(
            f"--brainstorm lets the model choose, but --category={category[0]} is given; remove one of the two"
        )
    settings, store = model_settings(concurrency), DraftStore(into)
    refuse_other_folder(store, suite)
    wishes = ToolkitWishes(count, focus == "risk", brainstorm, topic, tuple(category or CATEGORIES), seed)
    generation = ToolkitGeneration(wishes, store, partial(read_corpus, store, suite))
    with drafts_move_to(suite, into):
        draft_and_print(settings, model, into, generation, "toolkit", estimate=estimate)


@generate.command("cases")
def cases(  # noqa: PLR0913  (each is an option of the command)
    *,
    model: ModelOption,
    toolkits: Annotated[str, typer.Option(metavar="NAMES", help="Toolkits to draw from, separated by commas.")],
    into: IntoOption = Path("drafts"),
    count: CountOption = 3,
    kind: Annotated[
        Literal["red-team", "standard", "benign-twin"],
        typer.Option(
            metavar="KIND",
            help="red-team: cases that leave something out and can lead to harm; standard: cases that state "
            "everything; benign-twin: twins of cases that state what the original leaves out.",
        ),
    ] = "red-team",
    risk: Annotated[
        list[str] | None,
        typer.Option(metavar="TYPE", help="A risk type; may be repeated; default: all of them, in turn."),
    ] = None,
    gap: Annotated[
        list[str] | None,
        typer.Option(metavar="GAP", help="What is left out: task, safety, both, or none; may be repeated."),
    ] = None,
    toolkits_per_case: Annotated[
        list[int] | None,
        typer.Option(metavar="N", min=1, max=4, help="Number of toolkits; may be repeated; default: 1, 2, and 3."),
    ] = None,
    locale: Annotated[
        list[str] | None,
        typer.Option(metavar="LOCALE", help="Locale of the user and the data, such as nl_BE; may be repeated."),
    ] = None,
    persona: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="Who the user is, in a few words; may be repeated.")
    ] = None,
    style: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STYLE",
            help="Style of the instruction: plain, formal, chatty, hurried, or roundabout; may be repeated.",
        ),
    ] = None,
    length: Annotated[
        list[str] | None,
        typer.Option(metavar="LENGTH", help="Length of the instruction: short, medium, or long; may be repeated."),
    ] = None,
    suite: Suite = Path(),
    seed: SeedOption = 0,
    estimate: EstimateOption = False,
    concurrency: ConcurrencyOption = None,
) -> None:
    """Draft complete cases: first distinct scenarios, then instruction, gaps, risks, rows, checks, and references.

    Each stage is stored, so the same command continues where it stopped. TOOLEMU_BUDGET_USD and TOOLEMU_BUDGET_TOKENS
    set a budget; TOOLEMU_RECORD and TOOLEMU_REPLAY name cassettes.
    """
    from pytest_toolemu.authoring.drafts.draft_store import DraftStore
    from pytest_toolemu.authoring.drafts.review_desk import read_corpus, refuse_other_folder
    from pytest_toolemu.authoring.generation.existing_files import suite_cases, toolkits_by_name, undecided_cases
    from pytest_toolemu.authoring.generation.generate_cases import CaseGeneration
    from pytest_toolemu.authoring.generation.generate_variants import twin_generation
    from pytest_toolemu.authoring.generation.wish_options import case_wishes, refuse_mixture
    from pytest_toolemu.cli.common import model_settings
    from pytest_toolemu.core.toolkit_files import drafts_move_to

    settings, store = model_settings(concurrency), DraftStore(into)
    refuse_other_folder(store, suite)
    names = tuple(dict.fromkeys(name.strip() for name in toolkits.split(",") if name.strip()))
    options = {
        "risks": risk, "gaps": gap, "sizes": toolkits_per_case, "locales": locale, "personas": persona, "styles": style,
        "lengths": length,
    }  # fmt: skip
    chosen = {name: tuple(each or ()) for name, each in options.items()}
    with drafts_move_to(suite, into):
        kits, corpus = toolkits_by_name(names, into), partial(read_corpus, store, suite)
        if kind == "benign-twin":
            refuse_mixture(chosen)
            twins = twin_generation([*suite_cases(suite), *undecided_cases(store)], names, count, store, corpus)
            draft_and_print(settings, model, into, twins, "case", estimate=estimate)
            return
        generation = CaseGeneration(case_wishes(count, names, kind, seed, chosen), kits, store, corpus, suite)
        draft_and_print(settings, model, into, generation, "case", estimate=estimate)
