"""``toolemu calibrate``: measure how well judges agree with labels."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pytest_toolemu.cli.consoles import err, out
from pytest_toolemu.cli.judge_setup import Concurrency, Evaluators, Helpfulness, Judges
from pytest_toolemu.cli.session_folders import session_folder
from pytest_toolemu.formats.counted import counted

if TYPE_CHECKING:
    from pytest_toolemu.analysis.calibration.labeled_runs import LabeledRun
    from pytest_toolemu.sessions.store import RunStore

Labeled = Annotated[
    list[Path] | None,
    typer.Argument(
        parser=session_folder,
        metavar="SESSION",
        help="Folders of the sessions whose runs people labeled, or latest; requires --labels.",
    ),
]
LabelFiles = Annotated[
    list[Path] | None, typer.Option("--labels", help="Label files of people, .jsonl or .csv; may be repeated.")
]


def calibrate(  # noqa: PLR0913 - each is an option
    sessions: Labeled = None,
    *,
    evaluator: Evaluators = None,
    to: Annotated[Path, typer.Option(help="The calibration file; other judges in it are kept.")] = Path(
        "calibration.json"
    ),
    cases: Annotated[
        Path | None,
        typer.Option(help="Case file or folder with labeled references; default without --labels: the shipped cases."),
    ] = None,
    sample: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Use the references of this many random cases (seed: TOOLEMU_SEED), those with second opinions first.",
        ),
    ] = None,
    labels: LabelFiles = None,
    repeats: Annotated[int, typer.Option(min=1, help="Number of times that each judge scores each run.")] = 1,
    helpfulness: Helpfulness = None,
    concurrency: Concurrency = None,
) -> None:
    """Compare judges with labeled references and labels of people, and store the result in the calibration file."""
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
        read_calibrations([to])  # fail on an invalid file before any request is paid for
    labeled_by_people = _labeled_by_people(sessions or [], labels or [])
    paths = _case_files(cases, not labels)

    async def work(judges: Judges) -> tuple[list[LabeledRun], RunStore, list[Opinion]]:
        # Played now, as it takes seconds, and a missing key or package is known by now.
        subjects = [*labeled_by_people, *await _references(paths, sample, settings.seed)]
        if not subjects:
            raise UsageError(f"{cases}: no case here has references; add references, or name other cases with --cases")
        store = new_store(settings, sessions or [], judges)
        queries = judge_queries(subjects, judges, repeats)
        err.print(f"{len(subjects)} labeled runs, {len(queries)} judgments", markup=False)
        jobs = [partial(ask_judge, query, settings.timeout, store.put) for query in queries]
        return subjects, store, await run_concurrently(jobs, settings.concurrency)

    subjects, store, opinions = with_judges(settings, work)
    calibrations = calibrate_judges(subjects, opinions, datetime.now(UTC).isoformat(timespec="seconds"))
    for judge, calibration in calibrations.items():
        for line in calibration_lines(judge, calibration, [opinion for opinion in opinions if opinion.judge == judge]):
            out.print(in_log(line), markup=False)
    for fallback in totals(fallback for opinion in opinions for fallback in opinion.fallbacks):
        out.print(in_log(fallback_text(fallback)), markup=False)
    update_calibration_file(to, calibrations)
    out.print(f"{counted(sum(opinion.tokens for opinion in opinions), 'token')}; records: {store.folder}", markup=False)
    out.print(f"written to {to}; use it with --toolemu-calibration={to}", markup=False)


def _case_files(cases: Path | None, shipped: bool) -> list[Path]:
    """Return the file, or all case files below the folder; UsageError if there are none."""
    from pytest_toolemu.core.case import SUFFIX
    from pytest_toolemu.core.draft_marks import case_files
    from pytest_toolemu.core.toolkit import benchmark_folder
    from pytest_toolemu.errors import UsageError

    if cases is None and not shipped:
        return []
    root = cases or benchmark_folder() / "cases"
    paths = case_files(root)
    if not paths:
        raise UsageError(f"{root}: there is no {SUFFIX} file here; name a case file or folder with --cases")
    return paths


async def _references(paths: list[Path], sample: int | None, seed: int) -> list[LabeledRun]:
    """Play the references of the cases, or of a sample of them in which those with second opinions are first."""
    from pytest_toolemu.analysis.calibration.judge_queries import play_references
    from pytest_toolemu.analysis.calibration.second_opinions import second_opinions
    from pytest_toolemu.core.case_loading import load_case

    resolved_cases = [resolved_case for resolved_case in map(load_case, paths) if resolved_case.case.references]
    opinions = {folder: second_opinions(folder) for folder in {each.path.parent for each in resolved_cases}}
    if sample is not None:
        drawn = random.Random(seed).sample(resolved_cases, len(resolved_cases))
        resolved_cases = sorted(drawn, key=lambda each: not opinions[each.path.parent].include(each.case))[:sample]
    return [
        reference
        for resolved_case in resolved_cases
        for reference in await play_references(resolved_case, opinions[resolved_case.path.parent])
    ]


def _labeled_by_people(sessions: list[Path], labels: list[Path]) -> list[LabeledRun]:
    """Return the runs of these sessions that have labels."""
    if not (sessions or labels):
        return []
    from pytest_toolemu.cli.labels import labeled_runs

    return labeled_runs(sessions, labels)
