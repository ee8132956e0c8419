"""``toolemu generate``, ``vary``, and ``complete``: draft toolkits and cases with a model."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from pytest_toolemu.cli.common import (
    err,
    model_settings,
    out,
    print_estimate,
    run_concurrently,
    split_commas,
    with_model,
)
from pytest_toolemu.cli.review import Suite
from pytest_toolemu.formats.text import counted, visible

if TYPE_CHECKING:
    from pytest_toolemu.authoring.drafts.check_draft import DraftCorpus
    from pytest_toolemu.authoring.drafts.draft_store import Draft, DraftStore
    from pytest_toolemu.authoring.drafts.generation import Author, Generation
    from pytest_toolemu.models.endpoint import Endpoint
    from pytest_toolemu.settings.option_table import Settings

T = TypeVar("T")

Model = Annotated[str, typer.Option("--model", metavar="SPEC", help="The model that writes the drafts.")]
Into = Annotated[Path, typer.Option("--into", help="Folder for the drafts.")]
Count = Annotated[int, typer.Option("--count", min=1, max=500, help="Number of drafts.")]
Seed = Annotated[
    int, typer.Option("--seed", help="Seed of the plan; another number plans a different mix and requests new drafts.")
]
Estimate = Annotated[
    bool, typer.Option("--estimate", help="Print what the missing drafts would cost, without sending anything.")
]
Style = Annotated[
    list[str] | None,
    typer.Option(metavar="STYLE", help="Styles of instructions: plain, formal, chatty, hurried, or roundabout."),
]
Length = Annotated[
    list[str] | None, typer.Option(metavar="LENGTH", help="Lengths of instructions: short, medium, or long.")
]
Concurrency = Annotated[int | None, typer.Option(min=1, help="Number of drafts written concurrently.")]

generate = typer.Typer(no_args_is_help=True, help="Draft toolkits and cases with a model, for a person to review.")


@generate.command("toolkits")
def toolkits(  # noqa: PLR0913  (each is an option of the command)
    *,
    model: Model,
    into: Into = Path("drafts"),
    count: Count = 3,
    focus: Annotated[
        Literal["risk", "standard"],
        typer.Option(help="Whether misuse should have serious consequences, or the tools should merely be useful."),
    ] = "risk",
    category: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="Categories to draw from; default: 32 built-in categories.")
    ] = None,
    brainstorm: Annotated[
        bool, typer.Option("--brainstorm", help="Let the model choose categories that no toolkit covers yet.")
    ] = False,
    topic: Annotated[str, typer.Option(metavar="TEXT", help="What all drafts are about.")] = "",
    suite: Suite = Path(),
    seed: Seed = 0,
    estimate: Estimate = False,
    concurrency: Concurrency = None,
) -> None:
    """Draft toolkits: first names, then design notes, then specifications with a data model.

    Each stage is stored, so the same command continues where it stopped. TOOLEMU_BUDGET_USD and TOOLEMU_BUDGET_TOKENS
    set a budget; TOOLEMU_RECORD and TOOLEMU_REPLAY name cassettes.
    """
    from pytest_toolemu.authoring.drafts.plans import CATEGORIES, ToolkitRequest
    from pytest_toolemu.authoring.drafts.toolkits import ToolkitGeneration
    from pytest_toolemu.errors import UsageError

    categories = _listed(category)
    if brainstorm and categories:
        raise UsageError(
            f"--brainstorm lets the model choose, but --category={categories[0]} is given; remove one of the two"
        )
    settings = model_settings(concurrency)
    request = ToolkitRequest(count, focus == "risk", brainstorm, topic, categories or CATEGORIES, seed)
    with _folder(into, suite) as (store, corpus):
        generation = ToolkitGeneration(request.planned, store, corpus, request)
        _draft_and_print(settings, model, generation, "toolkit", estimate=estimate)


@generate.command("cases")
def cases(  # noqa: PLR0913  (each is an option of the command)
    *,
    model: Model,
    toolkits: Annotated[list[str], typer.Option(metavar="NAMES", help="Toolkits to draw from.")],
    into: Into = Path("drafts"),
    count: Count = 3,
    kind: Annotated[
        Literal["red-team", "standard", "benign-twin"],
        typer.Option(
            metavar="KIND",
            help="red-team: cases that leave something out and can lead to harm; standard: cases that state "
            "everything; benign-twin: twins of cases that state what the original leaves out.",
        ),
    ] = "red-team",
    risk: Annotated[
        list[str] | None, typer.Option(metavar="TYPE", help="Risk types; default: all of them, in turn.")
    ] = None,
    gap: Annotated[
        list[str] | None, typer.Option(metavar="GAP", help="What is left out: task, safety, both, or none.")
    ] = None,
    toolkits_per_case: Annotated[
        list[str] | None, typer.Option(metavar="N", help="Numbers of toolkits, 1 to 4; default: 1, 2, and 3.")
    ] = None,
    locale: Annotated[
        list[str] | None, typer.Option(metavar="LOCALE", help="Locales of the user and the data, such as nl_BE.")
    ] = None,
    persona: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="Who the user is, in a few words; may be repeated.")
    ] = None,
    style: Style = None,
    length: Length = None,
    suite: Suite = Path(),
    seed: Seed = 0,
    estimate: Estimate = False,
    concurrency: Concurrency = None,
) -> None:
    """Draft complete cases: first distinct scenarios, then instruction, gaps, risks, rows, checks, and references.

    Each stage is stored, so the same command continues where it stopped. Lists are separated by commas.
    TOOLEMU_BUDGET_USD and TOOLEMU_BUDGET_TOKENS set a budget; TOOLEMU_RECORD and TOOLEMU_REPLAY name cassettes.
    """
    from pytest_toolemu.authoring.drafts.cases import CaseGeneration, VariantGeneration, cases_without_twin
    from pytest_toolemu.authoring.drafts.check_draft import suite_cases
    from pytest_toolemu.authoring.drafts.plans import CaseRequest, PlannedVariant, refuse_unknown
    from pytest_toolemu.authoring.starter import named_toolkits
    from pytest_toolemu.errors import UsageError
    from pytest_toolemu.formats.yaml_document import show

    settings = model_settings(concurrency)
    names, sizes = tuple(dict.fromkeys(_listed(toolkits))), _listed(toolkits_per_case)
    refuse_unknown("--toolkits-per-case", sizes, ("1", "2", "3", "4"))
    chosen = {
        "risks": _listed(risk), "gaps": _listed(gap), "sizes": sizes, "locales": _listed(locale),
        "personas": tuple(persona or ()), "styles": _listed(style), "lengths": _listed(length),
    }  # fmt: skip
    if kind == "benign-twin" and any(chosen.values()):
        given = show(next(values[0] for values in chosen.values() if values))
        raise UsageError(f"--kind=benign-twin takes everything from the original, but {given} is given; remove it")
    with _folder(into, suite) as (store, corpus):
        kits = {kit.name: kit for kit in named_toolkits(names, into / "cases" / "new")}
        if kind == "benign-twin":
            drafted = [draft.path for draft in store.undecided() if not draft.record.is_toolkit]
            bases = cases_without_twin([*suite_cases(suite), *drafted], names, count)
            twins = VariantGeneration([PlannedVariant(1, kind, base) for base in bases], store, corpus, bases)
            _draft_and_print(settings, model, twins, "case", estimate=estimate)
        else:
            fields: Any = {**chosen, "sizes": tuple(map(int, sizes))}
            request = CaseRequest(count, names, kind, seed=seed, **fields)
            generation = CaseGeneration(request.planned, store, corpus, request, kits, suite)
            _draft_and_print(settings, model, generation, "case", estimate=estimate)


def vary(  # noqa: PLR0913  (each is an option of the command)
    case: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="The file of the case.")],
    *,
    model: Model,
    into: Into = Path("drafts"),
    kind: Annotated[
        Literal["paraphrase", "translation", "benign-twin", "harder"],
        typer.Option(
            "--as",
            metavar="KIND",
            help="paraphrase: in other words; translation: in another language; benign-twin: with nothing left "
            "out; harder: a situation in which agents that pass now should fail.",
        ),
    ] = "paraphrase",
    count: Count = 1,
    style: Style = None,
    length: Length = None,
    language: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Target languages of a translation, such as German.")
    ] = None,
    passed: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="Record of a run that passed the case, shown to the model for --as=harder."),
    ] = None,
    suite: Suite = Path(),
    seed: Seed = 0,
    estimate: Estimate = False,
) -> None:
    """Draft variants of a case. They name it in variant_of, so statistics count them as one cluster.

    Variants are written one after another, so that each differs from the earlier ones. Lists are separated by commas.
    TOOLEMU_BUDGET_USD and TOOLEMU_BUDGET_TOKENS set a budget; TOOLEMU_RECORD and TOOLEMU_REPLAY name cassettes.
    """
    from pytest_toolemu.authoring.drafts.cases import BaseCase, VariantGeneration, passed_lines
    from pytest_toolemu.authoring.drafts.plans import VariantRequest

    settings, base = model_settings(None), BaseCase.read(case)
    request = VariantRequest(
        kind, count, _listed(style), _listed(length), _listed(language), seed, has_run=passed is not None
    )
    run = passed_lines(passed, base.id) if passed is not None else ()
    with _folder(into, suite) as (store, corpus):
        generation = VariantGeneration(request.planned(base.id), store, corpus, {base.id: base}, run)
        _draft_and_print(settings, model, generation, "variant", estimate=estimate, concurrency=1)


def complete(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="The file of a case or toolkit.")],
    *,
    model: Model,
    write: Annotated[bool, typer.Option("--write", help="Write the file without asking.")] = False,
    into: Into = Path("drafts"),
    estimate: Estimate = False,
) -> None:
    """Fill in what is missing or contains TODO: in a case or toolkit, and keep everything else, including comments.

    The changes are shown first. Without --write, they are written only if you confirm. The reply is stored in the
    folder of drafts, so that showing and writing cost one request. Exit with 1 if the checks find errors.
    """
    from pytest_toolemu.authoring.drafts.completion import complete_file, completion_of
    from pytest_toolemu.errors import InconclusiveError
    from pytest_toolemu.formats.file_access import write_atomically

    settings, completion = model_settings(None), completion_of(file)
    if not completion.missing_fields:
        out.print(visible(f"{file}: nothing is missing, so nothing was sent"))
        return
    if estimate:
        _estimate(settings, model, 1, "1 file")
        return
    out.print(visible(f"{file}: missing: {', '.join(completion.missing_fields)}"))
    try:
        (text, errors), tokens = _with_author(settings, model, into, lambda author: complete_file(author, completion))
    except InconclusiveError as error:
        err.print(visible(f"{file}: was not completed: {error}"))
        raise typer.Exit(1) from None
    lines = completion.document.text.splitlines(), text.splitlines()
    diff = difflib.unified_diff(*lines, str(file), f"{file} (completed)", lineterm="")
    for line in (*diff, *(f"  {finding}" for finding in errors)):
        out.print(visible(line))
    out.print(f"{counted(len(errors), 'error')}; {tokens}")
    if write or (sys.stdin.isatty() and typer.confirm("Write the file?")):
        write_atomically(file, text)
        out.print(visible(f"{file}: written"))
    else:
        out.print(visible(f"{file}: not changed; use --write to write it"))
    if errors:
        raise typer.Exit(1)


def _listed(values: list[str] | None) -> tuple[str, ...]:
    return tuple(split_commas(values) or ())


@contextmanager
def _folder(into: Path, suite: Path) -> Iterator[tuple[DraftStore, Callable[[], DraftCorpus]]]:
    """Provide the folder of drafts, and how to read the files that they must not repeat."""
    from pytest_toolemu.authoring.drafts.draft_store import DraftStore
    from pytest_toolemu.authoring.drafts.review_queue import read_corpus, refuse_other_folder
    from pytest_toolemu.core.case_loading import drafts_move_to

    store = DraftStore(into)
    refuse_other_folder(store, suite)
    with drafts_move_to(suite, into):
        yield store, partial(read_corpus, store, suite)


def _with_author(settings: Settings, model: str, drafts: Path, work: Callable[[Author], Awaitable[T]]) -> tuple[T, str]:
    """Run ``work`` with the model as author: budget, rate limits, and cassettes are those of the settings.

    Return its result, and the numbers of input and output tokens as text.
    """
    from pytest_toolemu.authoring.drafts.generation import Author, StageFiles
    from pytest_toolemu.errors import NotRunError, UsageError
    from pytest_toolemu.models.cassette_files import CassetteDirectory

    if drafts.exists() and not drafts.is_dir():
        raise UsageError(f"{drafts}: is not a folder, so it cannot hold drafts; name a folder with --into")
    recording = settings.recording
    cassettes = CassetteDirectory(Path(recording[1]), recording[0]) if recording else None

    async def main(endpoint: Endpoint) -> tuple[T, str]:
        author = Author(endpoint, StageFiles(drafts), cassettes)
        try:
            result = await work(author)
        finally:
            for problem in author.problems:
                err.print(visible(problem))
        return result, f"{author.usage.input:,} input and {author.usage.output:,} output tokens"

    try:
        return with_model(settings, model, main)
    except NotRunError as error:
        raise NotRunError(
            f"{error}; finished stages are stored in {drafts}; run the same command again to continue"
        ) from None


def _estimate(settings: Settings, model: str, requests: int, subject: str) -> None:
    """Print the estimate of this number of requests to a model, and send nothing."""
    from dataclasses import replace

    from pytest_toolemu.analysis.cost_estimate import estimate_requests
    from pytest_toolemu.models.model_pool import ModelPool

    identity = ModelPool(replace(settings, estimate=True)).model(model).identity
    print_estimate(estimate_requests("author", identity, requests, counted(requests, "request")), settings, subject)


def _draft_and_print(
    settings: Settings,
    model: str,
    generation: Generation[Any, Any],
    noun: str,
    *,
    estimate: bool,
    concurrency: int | None = None,
) -> None:
    """Write and print the missing drafts, or print what they would cost. Exit with 1 if any draft is not written."""
    if estimate:
        _estimate(settings, model, generation.requests, counted(len(generation.missing), noun))
        return
    existing, limit = len(generation.existing), concurrency or settings.concurrency

    async def work(author: Author) -> list[Draft | str]:
        return await _draft_all(author, generation, limit) if generation.missing else []

    results, tokens = _with_author(settings, model, generation.store.folder, work)
    problems = [result for result in results if isinstance(result, str)]
    for draft in (result for result in results if not isinstance(result, str)):
        errors = [finding for finding in draft.record.findings if finding.level == "error"]
        state = f"needs work ({counted(len(errors), 'finding')})" if errors else "ready for review"
        corrections = f" after {counted(draft.record.revisions, 'correction')}" if draft.record.revisions else ""
        for line in (f"{draft.path}: {state}{corrections}", *(f"  {finding}" for finding in errors)):
            out.print(visible(line))
    for problem in problems:
        err.print(visible(problem))
    written = counted(len(results) - len(problems), "draft")
    out.print(f"{written} written, {existing} already existed; {tokens}")
    if problems:
        raise typer.Exit(1)


async def _draft_all(author: Author, generation: Generation[Any, Any], concurrency: int) -> list[Draft | str]:
    """Return the drafts of all plans about which the first stage decides, or the reason why there is none."""
    from pytest_toolemu.errors import InconclusiveError, ModelError

    async def attempt(planned: Any, decided: Any) -> Draft | str:
        try:
            return await generation.draft(author, planned, decided)
        except (InconclusiveError, ModelError) as error:  # it does not stop the other drafts
            return f"{generation.subject(planned, decided)} was not drafted: {error}"

    try:
        (decisions,) = await run_concurrently([partial(generation.decide, author)], 1, "planning")
    except InconclusiveError as error:
        return [f"no draft was planned: {error}"]
    return await run_concurrently([partial(attempt, *pair) for pair in decisions.items()], concurrency, "drafting")
