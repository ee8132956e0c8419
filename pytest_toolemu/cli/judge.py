"""``toolemu judge``: judge stored runs again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pytest_toolemu.cli.common import out
from pytest_toolemu.cli.judging import (
    BatchOption,
    EstimateOption,
    Evaluators,
    Judges,
    JudgingCommand,
    Rejudging,
    judged_sessions,
)
from pytest_toolemu.cli.session_folders import Sessions
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.counted import counted
from pytest_toolemu.formats.visible_text import in_log

if TYPE_CHECKING:
    from pytest_toolemu.analysis.cascade_use import CascadeUse
    from pytest_toolemu.analysis.rejudge import CurrentCases
    from pytest_toolemu.core.case_vocabulary import Metric
    from pytest_toolemu.core.run_notes import RunNote
    from pytest_toolemu.models.pricing import Cost, Prices
    from pytest_toolemu.sessions.store import RunStore
    from pytest_toolemu.settings import Settings


def judge(
    sessions: Sessions,
    *,
    evaluator: Evaluators = None,
    to: Annotated[
        Path | None,
        typer.Option(help="Folder for the new records; runs that it already contains are not judged again."),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the verdicts of other evaluators in addition to the new ones.")
    ] = False,
    cases: Annotated[
        Path | None,
        typer.Option(help="Case file or folder whose checks and thresholds replace those of the records."),
    ] = None,
    batch: BatchOption = False,
    estimate: EstimateOption = False,
) -> None:
    """Judge stored runs again, and decide their outcomes again. Neither the agent nor the emulator runs."""
    from pytest_toolemu.cli.judging import judge_settings
    from pytest_toolemu.core.run_file import load_run
    from pytest_toolemu.sessions.reader import run_files
    from pytest_toolemu.sessions.single_run import prices_of_settings

    sources = judged_sessions(sessions, batch)
    settings = judge_settings(evaluator, sources)
    command = JudgingCommand.create("judge", settings, sources, batch)
    paths = run_files(command.sessions)
    current_cases = _current_cases(cases, paths, settings) if cases is not None else None
    if estimate:
        estimated = command.judges()
        questions = ((judge, load_run(path)) for path in paths for _, judge in estimated)
        command.print_estimate(questions, counted(len(paths), "run"))
        return
    rules = _Rules(keep, settings.timeout, prices_of_settings(settings), current_cases)

    async def work(configured: Judges) -> tuple[RunStore, list[_JudgedRun]]:
        judges = _with_checks(configured, settings.checked)
        store = command.store(judges, Rejudging(paths, to, keep, current_cases))
        jobs = [(f"{path.parent.name}/{path.name}", partial(_judge_run, path, store, judges, rules)) for path in paths]
        return store, await command.run(jobs)

    store, results = command.execute(work)
    _print_results(results, current_cases)
    out.print(f"{command.usage_text([run.cost for run in results])}; records: {store.folder}")


def _print_results(results: list[_JudgedRun], current_cases: CurrentCases | None) -> None:
    """Print the new outcomes, and what is notable about the judging."""
    from pytest_toolemu.analysis.cascade_use import cascade_totals
    from pytest_toolemu.core.run_notes import note_lines

    counts = sorted(Counter(run.outcome for run in results).items())
    out.print(f"{counted(len(results), 'run')}: " + ", ".join(f"{count} {outcome}" for outcome, count in counts))
    if current_cases is not None:
        out.print(_recheck_line(current_cases, results))
    for cascade in cascade_totals(use for run in results for use in run.cascades):
        out.print(in_log(cascade.line))
    for line in note_lines((run.case_id, run.notes) for run in results):
        out.print(in_log(line))


def _with_checks(judges: Judges, checked: Iterable[Metric]) -> Judges:
    """Return the judges, with the checks of cases for the metrics for which they count."""
    from pytest_toolemu.evaluators.checks import with_checks

    by_metric = {
        metric: tuple(judge for metric_of_judge, judge in judges if metric_of_judge == metric) for metric, _ in judges
    }
    by_metric |= {metric: with_checks(by_metric.get(metric, ()), metric) for metric in checked}
    return [(metric, judge) for metric, evaluators in by_metric.items() for judge in evaluators]


def _current_cases(cases: Path, paths: list[Path], settings: Settings) -> CurrentCases:
    """Read the current case files of these runs; UsageError if their checks would not be applied."""
    from pytest_toolemu.analysis.rejudge import CurrentCases
    from pytest_toolemu.authoring.find_files import find

    if settings.checks == "off":
        raise UsageError(f"--cases={cases} replaces checks, but TOOLEMU_CHECKS=off ignores them; remove one of them")
    return CurrentCases.read(cases, find([cases]).cases, [path.stem.rpartition("--")[0] for path in paths])


def _recheck_line(current_cases: CurrentCases, results: list[_JudgedRun]) -> str:
    """Return which checks were applied, and the cases whose checks have changed since the run."""
    changed = sorted({run.case_id for run in results if run.checks_changed})
    listed = ", ".join(changed[:_NAMES_LISTED]) + (", ..." if len(changed) > _NAMES_LISTED else "")
    count = f"{len(changed)} of {counted(len(current_cases.cases), 'case')}"
    names = f": {listed}" if changed else ""
    return f"{current_cases.name}: the checks have changed since the run in {count}{names}"


_NAMES_LISTED: Final = 10


@dataclass(frozen=True)
class _Rules:
    """How runs are judged again."""

    keep: bool
    timeout: float
    prices: Prices
    current_cases: CurrentCases | None


@dataclass(frozen=True)
class _JudgedRun:
    """The outcome of a run that was judged again, as text, and the cost of this call."""

    case_id: str
    checks_changed: bool
    outcome: str
    cost: Cost
    notes: tuple[RunNote, ...] = ()
    cascades: tuple[CascadeUse, ...] = ()


async def _judge_run(path: Path, store: RunStore, judges: Judges, rules: _Rules) -> _JudgedRun:
    """Judge one run and store the new record."""
    from pytest_toolemu.analysis.cascade_use import cascade_uses
    from pytest_toolemu.analysis.rejudge import FINISHED, fingerprint, key_again, rejudge, required_scores
    from pytest_toolemu.core.run_file import load_run
    from pytest_toolemu.core.run_notes import notes_of
    from pytest_toolemu.core.verdict import PASSING
    from pytest_toolemu.models.pricing import Cost, costs_of

    keep, stored = rules.keep, load_run(path)
    run = rules.current_cases.apply(stored) if rules.current_cases else stored
    identity = (run.case_id, bool(run.rechecked and run.rechecked.differ))
    evaluators = [evaluator for _, evaluator in judges]
    record = store.path(run.model_copy(update={"key": key_again(run, evaluators, keep)}), path.stem)
    thresholds = {metric: PASSING for metric, _ in judges}
    if record.is_file():
        before = load_run(record)
        # A later session may have repeated the run: the key is the same, but the trajectory or the thresholds differ.
        required = required_scores(run, thresholds, keep)
        is_same = fingerprint(before) == fingerprint(run) and before.thresholds == required
        if is_same and before.outcome in ("passed", "failed"):
            return _JudgedRun(*identity, f"{before.outcome} before", Cost())
    new_run = await rejudge(run, evaluators, thresholds=thresholds, timeout=rules.timeout, keep=keep, source=str(path))
    store.put(new_run, path.stem)
    outcome = new_run.outcome if run.stop in FINISHED else f"{new_run.outcome} without a complete trajectory"
    cost = sum(costs_of(new_run.model_calls, rules.prices).values(), Cost())
    cascades = cascade_uses(new_run, lambda: rules.prices)
    return _JudgedRun(*identity, outcome, cost, notes_of(new_run.model_calls), cascades)
