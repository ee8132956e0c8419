"""``toolemu judge``: another opinion of stored runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pytest_toolemu.cli.models import ChecksOption, Concurrency, Evaluators, Helpfulness, Judges
from pytest_toolemu.cli.sessions import Sessions
from pytest_toolemu.cli.terminal import out

if TYPE_CHECKING:
    from pytest_toolemu.case import Metric
    from pytest_toolemu.fallbacks import Fallback
    from pytest_toolemu.store import RunStore


def judge(
    sessions: Sessions,
    evaluator: Evaluators = None,
    to: Annotated[
        Path | None, typer.Option(help="Folder for the new records; what it has already is not judged again.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the verdicts of other evaluators beside the new.")] = False,
    checks: ChecksOption = None,
    helpfulness: Helpfulness = None,
    concurrency: Concurrency = None,
) -> None:
    """Judge stored runs again and decide their outcomes anew; neither agent nor emulator is asked."""
    from pytest_toolemu.cli.models import in_flight, new_store, settings_of, with_judges
    from pytest_toolemu.fallbacks import fallback_text, totals
    from pytest_toolemu.redaction import in_log
    from pytest_toolemu.results import run_files

    settings = settings_of(evaluator, helpfulness, concurrency, checks)
    paths = run_files(sessions)

    async def work(configured: Judges) -> tuple[RunStore, list[_Judged]]:
        judges = _with_checks(configured, settings.checked)
        store = new_store(settings, sessions, judges, to, keep)
        jobs = [partial(_judged, path, store, judges, keep, settings["timeout"]) for path in paths]
        return store, await in_flight(jobs, settings["concurrency"])

    store, judged = with_judges(settings, work)
    counts = sorted(Counter(one.outcome for one in judged).items())
    out.print(f"{len(paths)} runs: " + ", ".join(f"{count} {told}" for told, count in counts), markup=False)
    for fallback in totals(item for one in judged for item in one.fallbacks):
        out.print(in_log(fallback_text(fallback)), markup=False)
    out.print(f"{sum(one.tokens for one in judged):,} tokens; records: {store.folder}", markup=False)


def _with_checks(judges: Judges, checked: Iterable[Metric]) -> Judges:
    """Return the judges with the cases' checks beside them, for the metrics for which these count."""
    from pytest_toolemu.evaluators.checks import with_checks

    by_metric = {metric: tuple(judge for known, judge in judges if known == metric) for metric, _ in judges}
    by_metric |= {metric: with_checks(by_metric.get(metric, ()), metric) for metric in checked}
    return [(metric, judge) for metric, found in by_metric.items() for judge in found]


@dataclass(frozen=True)
class _Judged:
    """The outcome of one run in words, and what judging it took now."""

    outcome: str
    tokens: int = 0
    fallbacks: tuple[Fallback, ...] = ()


async def _judged(path: Path, store: RunStore, judges: Judges, keep: bool, timeout: float) -> _Judged:
    """Judge one run and store the new record."""
    from pytest_toolemu.fallbacks import fallbacks_of
    from pytest_toolemu.judging import FINISHED, judge_again, key_again
    from pytest_toolemu.rows import PASSING
    from pytest_toolemu.store import load_run

    run = load_run(path)
    evaluators = [evaluator for _, evaluator in judges]
    known = store.path(run.model_copy(update={"key": key_again(run, evaluators, keep)}), path.stem)
    if known.is_file() and (before := load_run(known)).outcome in ("passed", "failed"):
        return _Judged(f"{before.outcome} before")
    thresholds = {metric: PASSING for metric, _ in judges}
    again = await judge_again(run, evaluators, thresholds=thresholds, timeout=timeout, keep=keep, source=str(path))
    store.put(again, path.stem)
    told = again.outcome if run.stop in FINISHED else f"{again.outcome} without a finished trajectory"
    return _Judged(told, sum(usage.total for usage in again.usage.values()), fallbacks_of(again.exchanges))
