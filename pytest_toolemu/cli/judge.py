"""``toolemu judge``: another opinion of stored runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pytest_toolemu.cli.consoles import out
from pytest_toolemu.cli.judge_setup import ChecksOption, Concurrency, Evaluators, Helpfulness, Judges
from pytest_toolemu.cli.session_folders import Sessions

if TYPE_CHECKING:
    from pytest_toolemu.analysis.recheck import TodaysCases
    from pytest_toolemu.core.case import Metric
    from pytest_toolemu.core.structured_output_fallbacks import Fallback
    from pytest_toolemu.sessions.store import RunStore
    from pytest_toolemu.settings import Settings


def judge(
    sessions: Sessions,
    *,
    evaluator: Evaluators = None,
    to: Annotated[
        Path | None, typer.Option(help="Folder for the new records; what it has already is not judged again.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the verdicts of other evaluators beside the new.")] = False,
    cases: Annotated[
        Path | None,
        typer.Option(help="Case file, or folder of them, whose checks and thresholds replace those of the records."),
    ] = None,
    checks: ChecksOption = None,
    helpfulness: Helpfulness = None,
    concurrency: Concurrency = None,
) -> None:
    """Judge stored runs again and decide their outcomes anew; neither agent nor emulator is asked."""
    from pytest_toolemu.cli.judge_setup import judge_settings, new_store, run_concurrently, with_judges
    from pytest_toolemu.core.structured_output_fallbacks import fallback_text, totals
    from pytest_toolemu.formats.redaction import in_log
    from pytest_toolemu.sessions.reader import run_files

    settings = judge_settings(evaluator, helpfulness, concurrency, checks)
    paths = run_files(sessions)
    today = _today(cases, paths, settings) if cases is not None else None

    async def work(configured: Judges) -> tuple[RunStore, list[_Judged]]:
        judges = _with_checks(configured, settings.checked)
        store = new_store(settings, sessions, judges, to, keep, today)
        jobs = [partial(_judged, path, store, judges, keep, settings.timeout, today) for path in paths]
        return store, await run_concurrently(jobs, settings.concurrency)

    store, judged = with_judges(settings, work)
    counts = sorted(Counter(one.outcome for one in judged).items())
    out.print(f"{len(paths)} runs: " + ", ".join(f"{count} {told}" for told, count in counts), markup=False)
    if today is not None:
        out.print(_told(today, judged), markup=False)
    for fallback in totals(item for one in judged for item in one.fallbacks):
        out.print(in_log(fallback_text(fallback)), markup=False)
    out.print(f"{sum(one.tokens for one in judged):,} tokens; records: {store.folder}", markup=False)


def _with_checks(judges: Judges, checked: Iterable[Metric]) -> Judges:
    """Return the judges with the cases' checks beside them, for the metrics for which these count."""
    from pytest_toolemu.evaluators.checks import with_checks

    by_metric = {metric: tuple(judge for known, judge in judges if known == metric) for metric, _ in judges}
    by_metric |= {metric: with_checks(by_metric.get(metric, ()), metric) for metric in checked}
    return [(metric, judge) for metric, found in by_metric.items() for judge in found]


def _today(cases: Path, paths: list[Path], settings: Settings) -> TodaysCases:
    """Read the case files of these runs; UsageError if nobody would apply their checks."""
    from pytest_toolemu.analysis.recheck import TodaysCases
    from pytest_toolemu.authoring.find_files import find
    from pytest_toolemu.errors import UsageError

    if settings.checks == "off":
        raise UsageError(f"--cases={cases} names checks, and --checks=off leaves them out; remove one of them")
    return TodaysCases.read(cases, find([cases]).cases, [path.stem.rpartition("--")[0] for path in paths])


def _told(today: TodaysCases, judged: list[_Judged]) -> str:
    """Say whose checks counted, and in which cases they are others than at the time of the run."""
    changed = sorted({one.case_id for one in judged if one.differ})
    told = ", ".join(changed[:_SHOWN]) + (", ..." if len(changed) > _SHOWN else "")
    count = f"{len(changed)} of {len(today.cases)} cases"
    return f"{today.name}: other checks than at the time of the run in {count}" + (f": {told}" if changed else "")


_SHOWN: Final = 10


@dataclass(frozen=True)
class _Judged:
    """The outcome of one run in words, what judging it took now, and whether its case's checks have changed."""

    case_id: str
    differ: bool
    outcome: str
    tokens: int = 0
    fallbacks: tuple[Fallback, ...] = ()


async def _judged(
    path: Path, store: RunStore, judges: Judges, keep: bool, timeout: float, today: TodaysCases | None
) -> _Judged:
    """Judge one run and store the new record."""
    from pytest_toolemu.analysis.rejudge import FINISHED, key_again, rejudge
    from pytest_toolemu.analysis.run_row import PASSING
    from pytest_toolemu.core.run_file import load_run
    from pytest_toolemu.core.structured_output_fallbacks import fallbacks_of

    stored = load_run(path)
    run = today.apply(stored) if today else stored
    about = (run.case_id, bool(run.rechecked and run.rechecked.differ))
    evaluators = [evaluator for _, evaluator in judges]
    known = store.path(run.model_copy(update={"key": key_again(run, evaluators, keep)}), path.stem)
    if known.is_file() and (before := load_run(known)).outcome in ("passed", "failed"):
        return _Judged(*about, f"{before.outcome} before")
    thresholds = {metric: PASSING for metric, _ in judges}
    again = await rejudge(run, evaluators, thresholds=thresholds, timeout=timeout, keep=keep, source=str(path))
    store.put(again, path.stem)
    told = again.outcome if run.stop in FINISHED else f"{again.outcome} without a finished trajectory"
    return _Judged(*about, told, sum(usage.total for usage in again.usage.values()), fallbacks_of(again.exchanges))
