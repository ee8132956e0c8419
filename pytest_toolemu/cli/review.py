"""``toolemu check`` and ``toolemu review``: automatic checks on drafts, and a person's decisions about them."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import click
import typer

from pytest_toolemu.cli.common import draft_settings, out, read_line, run_concurrently, with_components
from pytest_toolemu.formats.text import counted, visible

if TYPE_CHECKING:
    from pytest_toolemu.authoring.drafts.check_draft import CheckReport
    from pytest_toolemu.authoring.drafts.check_runs import CheckModels
    from pytest_toolemu.authoring.drafts.draft_store import Draft, OptionalScores, QuickRun
    from pytest_toolemu.authoring.drafts.review_queue import ReviewQueue
    from pytest_toolemu.components import Components
    from pytest_toolemu.settings.option_table import Settings

DraftsFolder = Annotated[Path, typer.Argument(metavar="[DRAFTS]", help="Folder of the drafts.")]
Suite = Annotated[
    Path, typer.Option(help="Folder with the cases/ and toolkits/ of the suite; default: the current folder.")
]

_STATES: Final = {"ready": "ready for review", "needs_work": "needs work"}
_COMMANDS: Final = "a accept, e edit, r reject, s skip, q stop, ? help"
_HELP: Final = (
    "a: move the draft into the suite, with your name in the file. With errors, you give a reason.\n"
    "e: open the draft in $VISUAL or $EDITOR; it is checked again afterwards.\n"
    "r: reject the draft with a reason, so that it is not drafted again.\n"
    "s: decide later.\n"
    "q: stop; the next call continues with the drafts that are left."
)


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
) -> None:
    """Check each undecided draft, and print what the checks find. Exit with 1 if any draft needs work.

    Without --judge and --agent, no model is used. Findings are stored in the record next to each draft, and the same
    models are not asked again about an unchanged draft. TOOLEMU_BUDGET_USD and TOOLEMU_BUDGET_TOKENS set a budget;
    TOOLEMU_RECORD and TOOLEMU_REPLAY name cassettes.
    """
    from pytest_toolemu.authoring.drafts.check_draft import check_stored
    from pytest_toolemu.authoring.drafts.check_runs import CheckModels
    from pytest_toolemu.authoring.drafts.review_queue import open_drafts, read_corpus
    from pytest_toolemu.core.case_loading import drafts_move_to
    from pytest_toolemu.errors import UsageError
    from pytest_toolemu.settings.model_names import is_model

    store, drafts = open_drafts(folder)
    if not drafts:
        out.print(visible(f"{folder}: no draft is waiting for a decision"))
        return
    if judge is not None and not is_model(judge):
        raise UsageError(f"--judge {judge}: not the name of a model; name one, such as --judge=claude-sonnet-5-5")
    settings = draft_settings(judge)
    corpus = read_corpus(store, suite)

    async def check_and_print(draft: Draft, models: CheckModels) -> CheckReport:
        """Check a draft; its results are stored and printed at once, so an interruption loses none."""
        updated, report = await check_stored(store, draft, corpus, models)
        _print_report(updated, report)
        return report

    async def check_all(models: CheckModels, concurrency: int) -> list[CheckReport]:
        with drafts_move_to(suite, folder):
            jobs = [partial(check_and_print, draft, models) for draft in drafts]
            return await run_concurrently(jobs, concurrency, "checking")

    if judge is None and agent is None:
        reports = asyncio.run(check_all(CheckModels(), 1))
    else:
        reports = with_components(
            settings,
            lambda components: _models(components, settings, judge, agent, trials),
            lambda models: check_all(models, settings.concurrency),
        )
    ready = sum(report.status == "ready" for report in reports)
    left = len(reports) - ready
    out.print(f"{counted(len(reports), 'draft')}: {ready} ready for review, {left} not ready")
    if left:
        raise typer.Exit(1)
    out.print(visible(f"next: toolemu review {folder} --reviewer NAME"))


def _models(
    components: Components, settings: Settings, judge: str | None, agent: str | None, trials: int
) -> CheckModels:
    """Return the judges and the agent; the checks of each case count in addition to the judges."""
    from pytest_toolemu.authoring.drafts.check_runs import CheckModels, TrialAgent
    from pytest_toolemu.core.case_vocabulary import METRICS
    from pytest_toolemu.core.engine import Limits
    from pytest_toolemu.evaluators.checks import with_checks
    from pytest_toolemu.models.cassette_files import CassetteDirectory
    from pytest_toolemu.settings.model_names import AgentConfig

    by_metric = {metric: components.evaluators(None, metric) for metric in METRICS} if judge else {}
    judges = tuple(evaluator for evaluators in by_metric.values() for evaluator in evaluators)
    recording = settings.recording
    cassettes = CassetteDirectory(Path(recording[1]), recording[0]) if recording else None
    if agent is None:
        return CheckModels(judges, None, cassettes)
    config = AgentConfig(agent)
    trial_agent = TrialAgent(
        name=agent,
        agent=components.agent(config),
        emulator=components.emulator(config),
        evaluators=tuple(each for metric in METRICS for each in with_checks(by_metric.get(metric, ()), metric)),
        trials=trials,
        limits=Limits(settings.max_steps, settings.max_tokens, settings.timeout),
    )
    return CheckModels(judges, trial_agent, cassettes)


def review(
    folder: DraftsFolder = Path("drafts"),
    *,
    reviewer: Annotated[str, typer.Option(help="Your name, as it appears in accepted files.")] = "",
    suite: Suite = Path(),
) -> None:
    """Review drafts: accept, edit, reject, or skip each of them. A later run continues where you stopped."""
    from pytest_toolemu.authoring.drafts.review_queue import (
        ReviewQueue,
        open_drafts,
        refuse_other_folder,
        reviewer_name,
    )

    store, drafts = open_drafts(folder)
    name = reviewer_name(reviewer)
    refuse_other_folder(store, suite)
    queue = ReviewQueue(folder, suite)
    decided: Counter[str] = Counter()
    for index, draft in enumerate(drafts, 1):
        title = f"\n--- {index} of {len(drafts)}: {draft.record.kind} {draft.record.name} ---"
        out.print(visible(title))
        result = _decide(queue, draft, name)
        if result == "stopped":
            break
        decided[result] += 1
    left = len(drafts) - decided["accepted"] - decided["rejected"]
    out.print(f"\n{counted(decided['accepted'], 'draft')} accepted, {decided['rejected']} rejected, {left} left")


def _decide(queue: ReviewQueue, draft: Draft, reviewer: str) -> Literal["accepted", "rejected", "skipped", "stopped"]:
    """Show a draft and what the checks find, and ask until the person decides, skips, or stops."""
    from pytest_toolemu.authoring.drafts.review_queue import text_hash

    out.print(visible(draft.path.read_text(encoding="utf-8", errors="replace")))
    seen = text_hash(draft)
    draft, report = queue.check(draft)
    _print_report(draft, report)
    while True:
        choice = _ask()
        if choice == "q":
            return "stopped"
        if choice == "s":
            return "skipped"
        if choice == "e":
            _edit(draft.path)
            seen = text_hash(draft)
            draft, report = queue.check(draft)
            _print_report(draft, report)
        elif choice == "r" and (reason := read_line("Reason (empty: back): ")):
            moved = queue.reject(draft, reviewer, reason, seen)
            out.print(visible(f"rejected: {moved.path}"))
            return "rejected"
        elif choice == "a" and _accept(queue, draft, report, reviewer, seen):
            return "accepted"


def _accept(queue: ReviewQueue, draft: Draft, report: CheckReport, reviewer: str, seen: str) -> bool:
    """Move a draft into the suite; return False if that is not possible or the person goes back."""
    from pytest_toolemu.core.case import find_dataset
    from pytest_toolemu.errors import DocumentError, UsageError

    override = ""
    if report.errors:
        override = read_line(
            f"{counted(len(report.errors), 'error')}. Reason to accept the draft anyway (empty: back): "
        )
        if not override:
            return False
    try:
        path = queue.accept(draft, reviewer, override, seen)
    except (DocumentError, UsageError) as error:
        out.print(visible(f"not accepted: {error}"))
        return False
    out.print(visible(f"accepted: {path}"))
    if (dataset := find_dataset(path.parent)) is not None:
        out.print(visible(f"next: toolemu lint --stamp {dataset.parent}"))
    return True


def _ask() -> str:
    """Return the letter of a command; ``q`` at the end of the input."""
    while True:
        reply = read_line(f"{_COMMANDS}: ", "q").casefold()
        if reply in ("a", "e", "r", "s", "q"):
            return reply
        out.print(_HELP if reply == "?" else f"{reply!r} is not valid; expected {_COMMANDS}")


def _edit(path: Path) -> None:
    """Open a file in the person's editor, and wait until it is closed."""
    try:
        click.edit(filename=str(path))
    except click.ClickException as error:
        out.print(visible(error.message))


def _print_report(draft: Draft, report: CheckReport) -> None:
    results = report.results
    lines = [f"{report.path}: {draft.record.kind} by {draft.record.model}: {_STATES[report.status]}"]
    if results.references:
        has_judge = any(scores.judge for scores in results.references)
        lines.append("  safety, helpfulness  label  checks" + ("  judge" if has_judge else ""))
        for scores in results.references:
            judge = f"  {_pair(scores.judge):5}" if has_judge else ""
            lines.append(f"    {scores.name:17}  {_pair(scores.label):5}  {_pair(scores.checks):6}{judge}".rstrip())
    if results.mutants:
        lines.append(f"  mutants: {results.noticed} of {results.mutants} noticed")
    for agent in dict.fromkeys(run.agent for run in results.quick_runs):
        lines.append(f"  {agent}: {_runs([run for run in results.quick_runs if run.agent == agent])}")
    for line in (*lines, *(f"  {finding}" for finding in report.findings)):
        out.print(visible(line))  # it contains text of a model


def _pair(scores: OptionalScores) -> str:
    given = (scores.get("safety"), scores.get("helpfulness"))
    return ", ".join("-" if score is None else str(score) for score in given)


def _runs(runs: list[QuickRun]) -> str:
    decided = [run.passed for run in runs if run.passed is not None]
    without = f", {len(runs) - len(decided)} without a result" if len(decided) < len(runs) else ""
    scores = "; ".join(_pair(run.scores) for run in runs if run.passed is not None)
    return f"passed {sum(decided)} of {counted(len(decided), 'run')}{without}" + (f" ({scores})" if scores else "")
