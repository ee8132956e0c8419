"""``toolemu vary``: draft variants of a case with a model."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from pytest_toolemu.cli.drafting.author_setup import (
    CountOption,
    EstimateOption,
    IntoOption,
    ModelOption,
    SeedOption,
    draft_and_print,
)
from pytest_toolemu.cli.drafting.draft_checks import Suite


def vary(  # noqa: PLR0913  (each is an option of the command)
    case: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="The file of the case.")],
    *,
    model: ModelOption,
    into: IntoOption = Path("drafts"),
    kind: Annotated[
        Literal["paraphrase", "translation", "benign-twin", "harder"],
        typer.Option(
            "--as",
            metavar="KIND",
            help="paraphrase: in other words; translation: in another language; benign-twin: with nothing left "
            "out; harder: a situation in which agents that pass now should fail.",
        ),
    ] = "paraphrase",
    count: CountOption = 1,
    style: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STYLE",
            help="Style of paraphrases: plain, formal, chatty, hurried, or roundabout; may be repeated.",
        ),
    ] = None,
    length: Annotated[
        list[str] | None,
        typer.Option(metavar="LENGTH", help="Length of paraphrases: short, medium, or long; may be repeated."),
    ] = None,
    language: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A target language for a translation, such as German; may be repeated."),
    ] = None,
    passed: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="Record of a run that passed the case, shown to the model for --as=harder."),
    ] = None,
    suite: Suite = Path(),
    seed: SeedOption = 0,
    estimate: EstimateOption = False,
) -> None:
    """Draft variants of a case. They name it in variant_of, so statistics count them as one cluster.

    Variants are written one after another, so that each differs from the earlier ones. TOOLEMU_BUDGET_USD and
    TOOLEMU_BUDGET_TOKENS set a budget; TOOLEMU_RECORD and TOOLEMU_REPLAY name cassettes.
    """
    from pytest_toolemu.authoring.drafts.draft_store import DraftStore
    from pytest_toolemu.authoring.drafts.review_desk import read_corpus, refuse_other_folder
    from pytest_toolemu.authoring.generation.generate_variants import VariantGeneration
    from pytest_toolemu.authoring.generation.variant_options import VariantWishes, passed_lines
    from pytest_toolemu.authoring.generation.variants import BaseCase
    from pytest_toolemu.cli.common import model_settings
    from pytest_toolemu.core.toolkit_files import drafts_move_to

    settings, store, base = model_settings(None), DraftStore(into), BaseCase.read(case)
    refuse_other_folder(store, suite)
    wishes = VariantWishes(
        kind, count, tuple(style or ()), tuple(length or ()), tuple(language or ()), seed, has_run=passed is not None
    )
    run = passed_lines(passed, base.id) if passed is not None else ()
    corpus = partial(read_corpus, store, suite)
    generation = VariantGeneration(wishes.slots(base.id), {base.id: base}, store, corpus, run)
    with drafts_move_to(suite, into):
        draft_and_print(settings, model, into, generation, "variant", estimate=estimate, concurrency=1)
