"""``toolemu calibrate``: measure how well judges agree with labels."""

from __future__ import annotations

import asyncio
import random
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pytest_toolemu.cli.consoles import err, out
from pytest_toolemu.cli.judging.batch_judging import BatchOption, EstimateOption, JudgingCommand, judged_sessions
from pytest_toolemu.cli.judging.judge_setup import Concurrency, Evaluators, Helpfulness, Judges
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
        help="Folders of sessions with runs that people labeled, or latest; requires --labels.",
    ),
]
LabelFiles = Annotated[
    list[Path] | None, typer.Option("--labels", help="Label files written by people, .jsonl or .csv; may be repeated.")
]


def calibrate(  # noqa: PLR0913 - each is an option
    sessions: Labeled = None,
    *,
    evaluator: Evaluators = None,
    to: Annotated[Path, typer.Option(help="The calibration file; entries of other judges are kept.")] = Path(
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
            help="Number of random cases whose references are used (seed: TOOLEMU_SEED); cases with second "
            "opinions come first.",
        ),
    ] = None,
    labels: LabelFiles = None,
    repeats: Annotated[int, typer.Option(min=1, help="Number of times that each judge scores each run.")] = 1,
    helpfulness: Helpfulness = None,
    concurrency: Concurrency = None,
    batch: BatchOption = False,
    estimate: EstimateOption = False,
) -> None:
    """Compare judges with labeled references and labels of people, and store the result in the calibration file."""
    from datetime import UTC, datetime

    from pytest_toolemu.analysis.calibration.calibration_file import read_calibrations, update_calibration_file
    from pytest_toolemu.analysis.calibration.calibration_text import calibration_lines
    from pytest_toolemu.analysis.calibration.judge_calibration import calibrate_judges
    from pytest_toolemu.analysis.calibration.judge_queries import Opinion, ask_judge, judge_queries
    from pytest_toolemu.cli.judging.judge_setup import judge_settings
    from pytest_toolemu.core.run_notes import note_lines
    from pytest_toolemu.errors import UsageError
    from pytest_toolemu.formats.redaction import in_log
    from pytest_toolemu.sessions.single_run import prices_of_settings

    settings = judge_settings(evaluator, helpfulness, concurrency)
    if to.exists():
        read_calibrations([to])  # fail on an invalid file before any request is paid for
    paths = _case_files(cases, not labels)
    content = (list(map(str, [*paths, *(labels or [])])), sample, settings.seed, repeats)
    command = JudgingCommand.create("calibrate", settings, judged_sessions(sessions or [], batch), batch, *content)
    prices = prices_of_settings(settings)
    labeled_by_people = _labeled_by_people(command.sessions, labels or [])

    async def labeled_runs() -> list[LabeledRun]:
        subjects = [*labeled_by_people, *await _references(paths, sample, settings.seed)]
        if not subjects:
            raise UsageError(f"{cases}: no case here has references; add references, or name other cases with --cases")
        return subjects

    if estimate:
        queries = judge_queries(asyncio.run(labeled_runs()), command.judges(), repeats)
        questions = [(query.evaluator, query.subject.run) for query in queries]
        command.print_estimate(questions, counted(len(queries), "judgment"))
        return

    async def work(judges: Judges) -> tuple[list[LabeledRun], RunStore, list[Opinion]]:
        # Played now, as it takes seconds, and a missing key or package is known by now.
        subjects = await labeled_runs()
        store = command.store(judges)
        queries = judge_queries(subjects, judges, repeats)
        err.print(f"{len(subjects)} labeled runs, {len(queries)} judgments", markup=False)
        ask = partial(ask_judge, timeout=settings.timeout, store_run=store.put, prices=prices)
        return subjects, store, await command.run([(query.name, partial(ask, query)) for query in queries])

    subjects, store, opinions = command.execute(work)
    calibrations = calibrate_judges(subjects, opinions, datetime.now(UTC).isoformat(timespec="seconds"))
    for judge, calibration in calibrations.items():
        for line in calibration_lines(judge, calibration, [opinion for opinion in opinions if opinion.judge == judge]):
            out.print(in_log(line), markup=False)
    for line in note_lines((opinion.case, opinion.notes) for opinion in opinions):
        out.print(in_log(line), markup=False)
    update_calibration_file(to, calibrations)
    out.print(f"{command.usage_text([opinion.cost for opinion in opinions])}; records: {store.folder}", markup=False)
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
    """Return the runs of these sessions that have labels, one for each trajectory."""
    if not (sessions or labels):
        return []
    from pytest_toolemu.analysis.calibration.labeled_runs import distinct_subjects
    from pytest_toolemu.cli.judging.labels import labeled_runs

    return distinct_subjects(labeled_runs(sessions, labels))
