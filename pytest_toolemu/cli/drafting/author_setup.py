"""What the commands that draft files with a model share: cassettes, estimates, and the lines about drafts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol, TypeVar

import typer

from pytest_toolemu.cli.common import err, out
from pytest_toolemu.formats.counted import counted

if TYPE_CHECKING:
    from pytest_toolemu.authoring.drafts.draft_store import Draft
    from pytest_toolemu.authoring.generation.author import Author
    from pytest_toolemu.models.endpoint import Endpoint
    from pytest_toolemu.settings import Settings

T = TypeVar("T")
S = TypeVar("S")
P = TypeVar("P")
Job = Callable[[], Awaitable[T]]

ModelOption = Annotated[str, typer.Option("--model", metavar="SPEC", help="The model that writes the drafts.")]
IntoOption = Annotated[Path, typer.Option("--into", help="Folder for the drafts.")]
CountOption = Annotated[int, typer.Option("--count", min=1, max=500, help="Number of drafts.")]
SeedOption = Annotated[
    int, typer.Option("--seed", help="Seed of the plan; another number plans a different mix and requests new drafts.")
]
EstimateOption = Annotated[
    bool, typer.Option("--estimate", help="Print what the missing drafts would cost, without sending anything.")
]
ConcurrencyOption = Annotated[int | None, typer.Option(min=1, help="Number of drafts written concurrently.")]


def with_author(
    settings: Settings, model: str, drafts: Path, work: Callable[[Author], Awaitable[T]]
) -> tuple[T, tuple[int, int]]:
    """Run ``work`` with the model as author: budget, rate limits, and cassettes are those of the settings.

    Return its result, and the numbers of input and output tokens.
    """
    from pytest_toolemu.authoring.generation.author import Author
    from pytest_toolemu.authoring.generation.stage_files import StageFiles
    from pytest_toolemu.cli.common import with_model
    from pytest_toolemu.errors import NotRunError, UsageError
    from pytest_toolemu.formats.visible_text import visible
    from pytest_toolemu.models.cassette_files import CassetteDirectory

    if drafts.exists() and not drafts.is_dir():
        raise UsageError(f"{drafts}: is not a folder, so it cannot hold drafts; name a folder with --into")
    recording = settings.recording
    cassettes = CassetteDirectory(Path(recording[1]), recording[0]) if recording else None

    async def main(endpoint: Endpoint) -> tuple[T, tuple[int, int]]:
        author = Author(endpoint, StageFiles(drafts), cassettes)
        try:
            result = await work(author)
        finally:
            for problem in author.problems:
                err.print(visible(problem))
        return result, (author.usage.input, author.usage.output)

    try:
        return with_model(settings, model, main)
    except NotRunError as error:
        raise NotRunError(
            f"{error}; finished stages are stored in {drafts}; run the same command again to continue"
        ) from None


def print_estimate(settings: Settings, model: str, requests: int, subject: str) -> None:
    """Print the estimate of this number of requests to a model, and send nothing."""
    from dataclasses import replace

    from pytest_toolemu.analysis.cost_estimate import estimate_requests
    from pytest_toolemu.cli.common import print_estimate
    from pytest_toolemu.models.model_pool import ModelPool

    identity = ModelPool(replace(settings, estimate=True)).model(model).identity
    estimate = estimate_requests("author", identity, requests, counted(requests, "request"))
    print_estimate(estimate, settings, subject)


class Generation(Protocol[S, P]):
    """The requested drafts. ``S`` identifies one of them, and ``P`` is what the first stage decides about it."""

    @property
    def missing(self) -> Collection[S]:
        """The drafts that do not exist."""
        ...

    @property
    def existing(self) -> Collection[S]:
        """The drafts that exist."""
        ...

    async def plan(self, author: Author) -> Mapping[S, P]:
        """Return what the first stage decides about each missing draft."""
        ...

    async def draft(self, author: Author, slot: S, planned: P) -> Draft:
        """Return a checked draft. Raise InconclusiveError if the model returns none."""
        ...

    def subject(self, slot: S, planned: P) -> str:
        """Return the name of a draft in messages."""
        ...

    def requests(self) -> int:
        """Return the number of requests for the missing drafts."""
        ...


def draft_and_print(
    settings: Settings,
    model: str,
    into: Path,
    generation: Generation[S, P],
    noun: str,
    *,
    estimate: bool,
    concurrency: int | None = None,
) -> None:
    """Write and print the missing drafts, or print what they would cost. Exit with 1 if any draft is not written."""
    if estimate:
        print_estimate(settings, model, generation.requests(), counted(len(generation.missing), noun))
        return
    limit = concurrency or settings.concurrency

    async def work(author: Author) -> list[Draft | str]:
        return await _draft_all(author, generation, limit) if generation.missing else []

    results, tokens = with_author(settings, model, into, work)
    print_results(results, len(generation.existing), tokens)


async def _draft_all(author: Author, generation: Generation[S, P], concurrency: int) -> list[Draft | str]:
    """Return the drafts of all slots that the first stage fills, or the reason why a slot has none."""
    from pytest_toolemu.cli.common import run_concurrently
    from pytest_toolemu.errors import InconclusiveError

    try:
        (planned,) = await run_concurrently([partial(generation.plan, author)], 1, "planning")
    except InconclusiveError as error:
        return [f"no draft was planned: {error}"]
    jobs = [
        partial(attempt, generation.subject(slot, proposal), partial(generation.draft, author, slot, proposal))
        for slot, proposal in planned.items()
    ]
    return await run_concurrently(jobs, concurrency, "drafting")


async def attempt(subject: str, job: Job[Draft]) -> Draft | str:
    """Return a draft, or the reason why there is none; a draft that cannot be written does not stop the others."""
    from pytest_toolemu.errors import InconclusiveError, ModelError

    try:
        return await job()
    except (InconclusiveError, ModelError) as error:
        return f"{subject} was not drafted: {error}"


def print_results(results: Sequence[Draft | str], existing: int, tokens: tuple[int, int]) -> None:
    """Print each draft with its findings, and why others were not written. Exit with 1 if there are any."""
    from pytest_toolemu.formats.visible_text import visible

    drafts = [result for result in results if not isinstance(result, str)]
    for draft in drafts:
        for line in _draft_lines(draft):
            out.print(visible(line))
    for problem in (result for result in results if isinstance(result, str)):
        err.print(visible(problem))
    used = f"{tokens[0]:,} input and {tokens[1]:,} output tokens"
    out.print(f"{counted(len(drafts), 'draft')} written, {existing} already existed; {used}")
    if len(drafts) < len(results):
        raise typer.Exit(1)


def _draft_lines(draft: Draft) -> Iterator[str]:
    errors = [finding for finding in draft.record.findings if finding.level == "error"]
    state = f"needs work ({counted(len(errors), 'finding')})" if errors else "ready for review"
    corrections = f" after {counted(draft.record.revisions, 'correction')}" if draft.record.revisions else ""
    yield f"{draft.path}: {state}{corrections}"
    yield from (f"  {finding}" for finding in errors)
