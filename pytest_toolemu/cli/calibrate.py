"""``toolemu calibrate``: how good is a judge?"""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pytest_toolemu.cli.consoles import err, out
from pytest_toolemu.cli.judge_setup import Concurrency, Evaluators, Helpfulness, Judges
from pytest_toolemu.cli.session_folders import session_folder

if TYPE_CHECKING:
    from pytest_toolemu.analysis.calibration.labeled_runs import LabeledRun
    from pytest_toolemu.sessions.store import RunStore

Labeled = Annotated[
    list[Path] | None,
    typer.Argument(
        parser=session_folder,
        metavar="SESSION",
        help="Folders of the sessions whose runs people labelled, or latest; with --labels.",
    ),
]
LabelFiles = Annotated[
    list[Path] | None, typer.Option("--labels", help="People's labels, .jsonl or .csv; may be repeated.")
]


def calibrate(  # noqa: PLR0913 - each is an option
    sessions: Labeled = None,
    *,
    evaluator: Evaluators = None,
    to: Annotated[Path, typer.Option(help="The file to write; other judges in it stay.")] = Path("calibration.json"),
    cases: Annotated[
        Path | None,
        typer.Option(help="A case, or a folder of them, with labelled references; the shipped ones without --labels."),
    ] = None,
    sample: Annotated[
        int | None, typer.Option(min=1, help="References of only so many cases, drawn by TOOLEMU_SEED.")
    ] = None,
    labels: LabelFiles = None,
    repeats: Annotated[int, typer.Option(min=1, help="How often a judge is asked about each run.")] = 1,
    helpfulness: Helpfulness = None,
    concurrency: Concurrency = None,
) -> None:
    """Hold judges against labelled references and people's labels, and keep how good they are."""
    from datetime import UTC, datetime

    from pytest_toolemu.analysis.calibration.calibration_file import read_calibrations, update_calibration_file
    from pytest_toolemu.analysis.calibration.calibration_text import calibration_lines
    from pytest_toolemu.analysis.calibration.judge_calibration import calibrate_judges
    from pytest_toolemu.analysis.calibration.judge_queries import Opinion, ask_judge, judge_queries
    from pytest_toolemu.cli.judge_setup import judge_settings, new_store, run_concurrently, with_judges
    from pytest_toolemu.core.structured_output_fallbacks import fallback_text, totals
    from pytest_toolemu.errors import UsageError
    from pytest_toolemu.formats.redaction import in_log

    settings = judge_settings(evaluator, helpfulness, concurrency)
    if to.exists():
        read_calibrations([to])  # what cannot be written to is told before it costs anything
    subjects = [
        *_by_people(sessions or [], labels or []),
        *_references(_case_files(cases, not labels), sample, settings.seed),
    ]

    if not subjects:
        raise UsageError(f"{cases}: no case here has references; write some, or name others with --cases")

    async def work(judges: Judges) -> tuple[RunStore, list[Opinion]]:
        store = new_store(settings, sessions or [], judges)
        asked = judge_queries(subjects, judges, repeats)
        err.print(f"{len(subjects)} labelled runs, {len(asked)} judgements", markup=False)
        jobs = [partial(ask_judge, question, settings.timeout, store.put) for question in asked]
        return store, await run_concurrently(jobs, settings.concurrency)

    store, opinions = with_judges(settings, work)
    found = calibrate_judges(subjects, opinions, datetime.now(UTC).isoformat(timespec="seconds"))
    for judge, calibration in found.items():
        for line in calibration_lines(judge, calibration, [one for one in opinions if one.judge == judge]):
            out.print(in_log(line), markup=False)
    for fallback in totals(item for one in opinions for item in one.fallbacks):
        out.print(in_log(fallback_text(fallback)), markup=False)
    update_calibration_file(to, found)
    out.print(f"{sum(one.tokens for one in opinions):,} tokens; records: {store.folder}", markup=False)
    out.print(f"written to {to}: name it with --toolemu-calibration={to}", markup=False)


def _case_files(cases: Path | None, shipped: bool) -> list[Path]:
    """The file, or all case files below the folder; UsageError where there is none."""
    from pytest_toolemu.core.case import SUFFIX, SUFFIXES
    from pytest_toolemu.core.toolkit import benchmark_folder
    from pytest_toolemu.errors import UsageError

    if cases is None and not shipped:
        return []
    root = cases or benchmark_folder() / "cases"
    paths = [root] if root.is_file() else sorted(path for path in root.rglob("*") if path.name.endswith(SUFFIXES))
    if not paths:
        raise UsageError(f"{root}: there is no {SUFFIX} file here; name some with --cases")
    return paths


def _references(paths: list[Path], sample: int | None, seed: int) -> list[LabeledRun]:
    """The references of the cases, or of a sample of them, played."""
    import asyncio

    from pytest_toolemu.analysis.calibration.judge_queries import play_references
    from pytest_toolemu.core.case_loading import load_case

    resolved_cases = [resolved_case for resolved_case in map(load_case, paths) if resolved_case.case.references]
    if sample is not None:
        resolved_cases = random.Random(seed).sample(resolved_cases, min(sample, len(resolved_cases)))

    async def all_played() -> list[LabeledRun]:
        return [reference for resolved_case in resolved_cases for reference in await play_references(resolved_case)]

    return asyncio.run(all_played())


def _by_people(sessions: list[Path], labels: list[Path]) -> list[LabeledRun]:
    """The runs of these sessions that have labels."""
    if not (sessions or labels):
        return []
    from pytest_toolemu.cli.labels import labelled_runs

    return labelled_runs(sessions, labels)
