"""``toolemu judge``: another opinion of stored runs."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pytest_toolemu.cli.models import Concurrency, Evaluators, Helpfulness, Judges
from pytest_toolemu.cli.terminal import out

if TYPE_CHECKING:
    from pytest_toolemu.store import RunStore


def judge(
    sessions: Annotated[list[Path], typer.Argument(help="Folders of sessions, or of imported trajectories.")],
    evaluator: Evaluators = None,
    to: Annotated[
        Path | None, typer.Option(help="Folder for the new records; what it has already is not judged again.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the verdicts of other evaluators beside the new.")] = False,
    helpfulness: Helpfulness = None,
    concurrency: Concurrency = None,
) -> None:
    """Judge stored runs again and decide their outcomes anew; neither agent nor emulator is asked."""
    from pytest_toolemu.cli.models import in_flight, new_store, settings_of, with_judges
    from pytest_toolemu.results import run_files

    settings = settings_of(evaluator, helpfulness, concurrency)
    paths = run_files(sessions)

    async def work(judges: Judges) -> tuple[RunStore, list[tuple[str, int]]]:
        store = new_store(settings, sessions, judges, to, keep)
        jobs = [partial(_judged, path, store, judges, keep, settings["timeout"]) for path in paths]
        return store, await in_flight(jobs, settings["concurrency"])

    store, judged = with_judges(settings, work)
    counts = sorted(Counter(told for told, _ in judged).items())
    out.print(f"{len(paths)} runs: " + ", ".join(f"{count} {told}" for told, count in counts), markup=False)
    out.print(f"{sum(tokens for _, tokens in judged):,} tokens; records: {store.folder}", markup=False)


async def _judged(path: Path, store: RunStore, judges: Judges, keep: bool, timeout: float) -> tuple[str, int]:
    """What came of one run, and the tokens it took now."""
    from pytest_toolemu.judging import FINISHED, judge_again, key_again
    from pytest_toolemu.rows import PASSING
    from pytest_toolemu.store import load_run

    run = load_run(path)
    evaluators = [evaluator for _, evaluator in judges]
    known = store.path(run.model_copy(update={"key": key_again(run, evaluators, keep)}), path.stem)
    if known.is_file() and (before := load_run(known)).outcome in ("passed", "failed"):
        return f"{before.outcome} before", 0
    thresholds = {metric: PASSING for metric, _ in judges}
    again = await judge_again(run, evaluators, thresholds=thresholds, timeout=timeout, keep=keep, source=str(path))
    store.put(again, path.stem)
    told = again.outcome if run.stop in FINISHED else f"{again.outcome} without a finished trajectory"
    return told, sum(usage.total for usage in again.usage.values())
