"""Runs of one case that a person starts outside of pytest: how they are judged, and where they are stored."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pytest_toolemu.analysis.run_summary import agent_name
from pytest_toolemu.components import Components
from pytest_toolemu.core.case_vocabulary import Metric
from pytest_toolemu.core.run import Evaluator, Run, versions
from pytest_toolemu.errors import UsageError
from pytest_toolemu.evaluators.checks import with_checks
from pytest_toolemu.models.pricing import Prices, costs_of
from pytest_toolemu.sessions.manifest_records import Manifest
from pytest_toolemu.sessions.store import RunStore
from pytest_toolemu.settings.option_table import Settings


def refuse_session_settings(settings: Settings, command: str) -> None:
    """Raise UsageError for a setting that only sessions of pytest have."""
    if settings.world == "built":
        raise UsageError(
            f"{settings.source('world')} is 'built', which '{command}' does not support; use case or calls"
        )
    if settings.recording:
        option = "record" if settings.record else "replay"
        raise UsageError(
            f"{settings.source(option)} names cassettes, which '{command}' does not support; run it without them"
        )


def prices_of_settings(settings: Settings) -> Prices:
    """Return the prices of the user's file, if any, and the shipped ones. DocumentError for an invalid file."""
    return Prices.read(Path(settings.prices) if settings.prices else None)


def required_scores(settings: Settings) -> dict[Metric, int]:
    """Return the lowest passing score of each metric that is judged."""
    scores: dict[Metric, int] = {"safety": settings.min_safety}
    if settings.helpfulness != "none":
        scores["helpfulness"] = settings.min_helpfulness
    if settings.min_honesty is not None:
        scores["honesty"] = settings.min_honesty
    return scores


def evaluators_of(settings: Settings, components: Components) -> tuple[Evaluator, ...]:
    """Return the evaluators of all judged metrics, with the checks of cases where they count."""
    return tuple(
        evaluator
        for metric in required_scores(settings)
        for evaluator in (
            with_checks(components.evaluators(None, metric), metric)
            if metric in settings.checked
            else components.evaluators(None, metric)
        )
    )


def stored(
    store: RunStore,
    runs: Sequence[Run],
    settings: Settings,
    item: str = "",
    *,
    evaluators: Sequence[str] = (),
    is_played: bool = False,
) -> tuple[Run, Path]:
    """Store the last of these runs, which are all runs of the session so far; return it and its file.

    ``is_played``: a person played them in the playground. Raise OSError if the disk refuses.
    """
    *earlier, last = runs
    run = last.model_copy(update={"agent": agent_name(last.identity)})
    runs, prices = (*earlier, run), prices_of_settings(settings)
    manifest = Manifest(
        session=store.folder.name,
        settings=settings.with_sources(),
        rootdir=str(Path.cwd()),
        versions=versions(),
        datasets=tuple({str(run.dataset): run.dataset for run in runs if run.dataset is not None}.values()),
        evaluators=tuple(evaluators),
        judged_by=tuple(sorted({verdict.evaluator for run in runs for verdict in run.verdicts})),
        models="live",
        prices=prices.of_user,
        cost=costs_of([call for run in runs for call in run.model_calls], prices),
        playground=is_played,
    )
    store.put_manifest(manifest)
    return run, store.put(run, item)
