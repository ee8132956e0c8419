"""``toolemu check``: the automatic checks on drafts."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pytest_toolemu.cli.common import out
from pytest_toolemu.formats.counted import counted
from pytest_toolemu.formats.visible_text import visible

if TYPE_CHECKING:
    from pytest_toolemu.authoring.drafts.check_models import CheckModels
    from pytest_toolemu.authoring.drafts.draft_card import DraftCard
    from pytest_toolemu.authoring.drafts.draft_corpus import DraftCorpus
    from pytest_toolemu.authoring.drafts.draft_store import Draft, DraftStore
    from pytest_toolemu.components import Components
    from pytest_toolemu.settings import Settings

DraftsFolder = Annotated[Path, typer.Argument(metavar="[DRAFTS]", help="Folder of the drafts.")]
Suite = Annotated[
    Path, typer.Option(help="Folder with the cases/ and toolkits/ of the suite; default: the current folder.")
]


def check(
    folder: DraftsFolder = Path("drafts"),
    *,
    suite: Suite = Path(),
    judge: Annotated[
        str | None, typer.Option(metavar="SPEC", help="A model that judges the references, independent of the drafter.")
    ] = None,
    agent: Annotated[
        str | None, typer.Option(metavar="SPEC", help="A cheap agent that tries each case, as with --toolemu-agent.")
    ] = None,
    trials: Annotated[int, typer.Option(min=1, help="Number of runs of --agent for each case.")] = 3,
    estimate: Annotated[
        bool, typer.Option("--estimate", help="Print what --judge and --agent would cost, without sending anything.")
    ] = False,
) -> None:
    """Check each undecided draft, and print its card. Exit with 1 if any draft needs work.

    Without --judge and --agent, no model is used. Findings are stored in the record next to each draft, and the same
    models are not asked again about an unchanged draft. TOOLEMU_BUDGET_USD and TOOLEMU_BUDGET_TOKENS set a budget;
    TOOLEMU_RECORD and TOOLEMU_REPLAY name cassettes.
    """
    from pytest_toolemu.authoring.drafts.check_models import CheckModels
    from pytest_toolemu.authoring.drafts.review_desk import open_drafts, read_corpus
    from pytest_toolemu.cli.common import draft_settings, run_concurrently, with_components
    from pytest_toolemu.core.toolkit_files import drafts_move_to

    store, drafts = open_drafts(folder)
    if not drafts:
        out.print(visible(f"{folder}: no draft is waiting for a decision"))
        return
    settings = draft_settings(_model(judge))
    if estimate:
        with drafts_move_to(suite, folder):
            _print_estimate(settings, drafts, judge, agent, trials)
        return
    corpus = read_corpus(store, suite)

    async def check_all(models: CheckModels, concurrency: int) -> list[DraftCard]:
        jobs = [partial(_check_and_print, store, draft, corpus, models) for draft in drafts]
        with drafts_move_to(suite, folder):
            return await run_concurrently(jobs, concurrency, "checking")

    if judge is None and agent is None:
        cards = asyncio.run(check_all(CheckModels(), 1))
    else:
        cards = with_components(
            settings,
            lambda components: _models(components, settings, judge, agent, trials),
            lambda models: check_all(models, settings.concurrency),
        )
    ready = sum(card.status == "ready" for card in cards)
    out.print(f"{counted(len(cards), 'draft')}: {ready} ready for review, {len(cards) - ready} not ready")
    if ready < len(cards):
        raise typer.Exit(1)
    out.print(visible(f"next: toolemu review {folder} --reviewer NAME"))


async def _check_and_print(store: DraftStore, draft: Draft, corpus: DraftCorpus, models: CheckModels) -> DraftCard:
    """Check a draft; its results are stored and printed at once, so an interruption loses none."""
    from pytest_toolemu.authoring.drafts.check_draft import check_stored
    from pytest_toolemu.cli.drafting.draft_text import card_lines

    updated, card = await check_stored(store, draft, corpus, models)
    for line in card_lines(updated, card):
        out.print(visible(line))
    return card


def _model(judge: str | None) -> str | None:
    from pytest_toolemu.errors import UsageError
    from pytest_toolemu.settings import is_model

    if judge is not None and not is_model(judge):
        raise UsageError(f"--judge {judge}: not the name of a model; name one, such as --judge=claude-sonnet-5-5")
    return judge


def _models(
    components: Components, settings: Settings, judge: str | None, agent: str | None, trials: int
) -> CheckModels:
    """Return the judges and the agent; the checks of each case count in addition to the judges."""
    from pytest_toolemu.authoring.drafts.card_results import METRICS
    from pytest_toolemu.authoring.drafts.check_models import CheckModels, TrialAgent
    from pytest_toolemu.core.run_spec import Limits
    from pytest_toolemu.evaluators.checks import with_checks
    from pytest_toolemu.models.cassette_files import CassetteDirectory
    from pytest_toolemu.settings import AgentConfig

    by_metric = {metric: components.evaluators(None, metric) for metric in METRICS} if judge else {}
    judges = tuple(evaluator for evaluators in by_metric.values() for evaluator in evaluators)
    recording = settings.recording
    cassettes = CassetteDirectory(Path(recording[1]), recording[0]) if recording else None
    if agent is None:
        return CheckModels(judges, None, cassettes)
    config = AgentConfig(agent)
    evaluators = tuple(each for metric in METRICS for each in with_checks(by_metric.get(metric, ()), metric))
    trial_agent = TrialAgent(
        name=agent,
        agent=components.agent(config),
        emulator=components.emulator(config),
        evaluators=evaluators,
        trials=trials,
        limits=Limits(settings.max_steps, settings.max_tokens, settings.timeout),
    )
    return CheckModels(judges, trial_agent, cassettes)


def _print_estimate(
    settings: Settings, drafts: tuple[Draft, ...], judge: str | None, agent: str | None, trials: int
) -> None:
    """Print what the models would cost for the cases that can be loaded. Raise UsageError if no model is named."""
    from dataclasses import replace

    from pytest_toolemu.analysis.cost_estimate import estimate_runs
    from pytest_toolemu.cli.common import print_estimate
    from pytest_toolemu.components import Components
    from pytest_toolemu.core.case_loading import load_case
    from pytest_toolemu.errors import DocumentError, UsageError

    if judge is None and agent is None:
        raise UsageError("--estimate needs a model to estimate; name one with --judge or --agent")
    models = _models(Components(replace(settings, estimate=True)), settings, judge, agent, trials)
    specs = []
    for draft in drafts:
        with contextlib.suppress(DocumentError):  # no model is asked about a case that is not valid
            specs += [] if draft.record.is_toolkit else models.specs(load_case(draft.path))
    print_estimate(estimate_runs(specs), settings, counted(len(specs), "run"))
