"""What ``toolemu judge`` and ``toolemu calibrate`` share: options, settings, record folders, and judges."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from pytest_toolemu.cli.command_settings import command_settings
from pytest_toolemu.cli.model_work import with_components
from pytest_toolemu.formats.counted import counted

if TYPE_CHECKING:
    from pytest_toolemu.analysis.recheck import CurrentCases
    from pytest_toolemu.components import Components
    from pytest_toolemu.core.case_vocabulary import Metric
    from pytest_toolemu.core.protocols import Evaluator
    from pytest_toolemu.models.batches.batched_model import Batches
    from pytest_toolemu.sessions.manifest_records import Manifest
    from pytest_toolemu.sessions.store import RunStore
    from pytest_toolemu.settings import Settings

T = TypeVar("T")
Judges = list[tuple["Metric", "Evaluator"]]

Evaluators = Annotated[
    list[str] | None,
    typer.Option(
        "--evaluator",
        metavar="SPEC",
        help="A model as judge, a fallback 'A|B', a cascade 'checks then A then B', or checks; may be repeated.",
    ),
]
Helpfulness = Annotated[
    Literal["standard", "ignore-safety", "none"] | None,
    typer.Option(help="The rubric for helpfulness; none judges only safety."),
]
ChecksOption = Annotated[
    Literal["on", "off"] | None,
    typer.Option(
        "--checks", help="Whether the checks of each case count in addition to the evaluators; on by default."
    ),
]
Concurrency = Annotated[int | None, typer.Option(min=1, help="Number of runs judged concurrently.")]


def judge_settings(
    evaluator: list[str] | None,
    helpfulness: str | None,
    concurrency: int | None,
    checks: str | None = None,
    sessions: Iterable[Path] = (),
) -> Settings:
    """Return the settings from these options, else from ``TOOLEMU_*`` variables, else from the defaults.

    Variables are also read from ``.env`` in the current folder. Sessions that left judging for later imply the
    evaluators that they name. UsageError if no evaluator is named, or if the thresholds of the sessions differ for a
    cascade.
    """
    from pytest_toolemu.errors import UsageError
    from pytest_toolemu.sessions.deferred_judging import judging_options, refuse_different_thresholds
    from pytest_toolemu.sessions.reader import manifest_of

    options: dict[str, Any] = {
        "toolemu_evaluator": evaluator,
        "toolemu_helpfulness": helpfulness,
        "toolemu_concurrency": concurrency,
        "toolemu_checks": checks,
    }
    manifests = [manifest_of(session) for session in sessions]
    settings = command_settings(options, judging_options(manifests))
    if not settings.evaluator:
        raise UsageError(
            "no evaluator is given; name a model, such as --evaluator=claude-sonnet-5-5, or use --evaluator=checks"
        )
    refuse_different_thresholds(settings, manifests)
    return settings


def new_store(
    settings: Settings,
    sessions: list[Path],
    judges: Judges,
    to: Path | None = None,
    keep: bool = False,
    current_cases: CurrentCases | None = None,
    runs: Iterable[Path] = (),
) -> RunStore:
    """Create the store for new records: a new session folder, or ``to``.

    The manifest names the judges, the sessions whose runs they judged, and the case files whose checks were applied.
    It plans a record for each of the ``runs``, so that readers of an unfinished folder know what is missing.
    UsageError if ``to`` has records of other judges or of other runs, or if the sessions are shards of a session of
    which other shards are missing.
    """
    from pytest_toolemu.core.environment import versions
    from pytest_toolemu.core.identity import component_name, identity_of
    from pytest_toolemu.formats.files.private_folders import make_folder
    from pytest_toolemu.sessions.deferred_judging import deciding_settings
    from pytest_toolemu.sessions.manifest_records import Manifest
    from pytest_toolemu.sessions.planned_cases import left_out, to_judge
    from pytest_toolemu.sessions.reader import manifest_of
    from pytest_toolemu.sessions.session_id import session_id
    from pytest_toolemu.sessions.single_run import prices_of_settings
    from pytest_toolemu.sessions.store import RunStore

    manifests = [manifest_of(session) for session in sessions]
    _refuse_shards(manifests)
    private = settings.run_dir_mode == "private"
    folder = to or Path(settings.run_dir) / session_id()
    store = RunStore.create(folder.parent, folder.name, private=private) if to is None else RunStore(folder)
    names = [str(component_name(identity_of(judge))) for _, judge in judges] + ["earlier evaluators"] * keep
    names += [current_cases.name] if current_cases else []
    _refuse_other_judges(store, names)
    _refuse_other_runs(store, runs)
    make_folder(store.folder, private=private)
    planned = left_out(sessions, [manifest for manifest in manifests if manifest.is_plan_complete])
    for case, content in to_judge(runs, manifests).items():
        unrecorded = planned[case].items if case in planned else {}
        planned[case] = content.with_items({**unrecorded, **content.items})
    store.put_manifest(
        Manifest(
            session=store.folder.name,
            judges=tuple(names),
            judged_from=tuple(map(str, sessions)),
            cases=current_cases.files if current_cases else {},
            settings={**settings.with_sources(), **deciding_settings(manifests)},
            versions=versions(),
            prices=prices_of_settings(settings).of_user,
            planned=planned,
            shards=next((manifest.shards for manifest in manifests if manifest.shards), None),
            missing=tuple(line for manifest in manifests for line in manifest.missing),
        )
    )
    return store


def _refuse_shards(manifests: Sequence[Manifest]) -> None:
    """Raise UsageError if a shard is missing: the new records would no longer say that they are only a part."""
    from pytest_toolemu.errors import UsageError
    from pytest_toolemu.sessions.shard_assignment import absent

    if lines := absent(manifests):
        raise UsageError(
            f"not the whole session: {'; '.join(lines)}; merge the shards with 'toolemu merge', and judge the merged "
            "session"
        )


def _refuse_other_judges(store: RunStore, names: list[str]) -> None:
    """Raise UsageError if the folder has runs, and other judges than these have judged them."""
    from pytest_toolemu.errors import UsageError
    from pytest_toolemu.sessions.store import RUNS

    if not any(store.folder.glob(RUNS)):
        return
    earlier = store.manifest().judges
    if not earlier:
        raise UsageError(
            f"{store.folder}: contains runs that 'toolemu judge' did not write; name another folder with --to"
        )
    if earlier != tuple(names):
        raise UsageError(f"{store.folder}: contains runs judged by {', '.join(earlier)}; name another folder with --to")


def _refuse_other_runs(store: RunStore, runs: Iterable[Path]) -> None:
    """Raise UsageError if the folder has new records of other runs, which would be decided together with these."""
    from pytest_toolemu.errors import UsageError
    from pytest_toolemu.sessions.reader import rejudged_mark
    from pytest_toolemu.sessions.store import RUNS, mark_of

    judged = set(map(rejudged_mark, runs))
    others = sorted(path.name for path in store.folder.glob(RUNS) if mark_of(path.name) not in judged)
    if others:
        raise UsageError(
            f"{store.folder}: contains {counted(len(others), 'record')} of other runs, such as {others[0]}; name "
            "another folder with --to"
        )


def with_judges(settings: Settings, work: Callable[[Judges], Awaitable[T]], batches: Batches | None = None) -> T:
    """Create the judges, check each endpoint without using tokens, run ``work``, and close the connections.

    With ``batches``, their requests are sent in these.
    """
    from pytest_toolemu.errors import UsageError

    try:
        return with_components(settings, configured_judges, work, batches)
    except OSError as error:  # writing a record failed
        raise UsageError(
            f"a record cannot be written ({error.strerror}), so no more requests were sent; free disk space or "
            "restore the folder, and run the same command again"
        ) from None


def configured_judges(components: Components) -> Judges:
    """Return the evaluators of the settings, each with its metric."""
    metrics: tuple[Metric, ...] = ("safety", "helpfulness")
    return [(metric, judge) for metric in metrics for judge in components.evaluators(None, metric)]
