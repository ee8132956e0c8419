"""What ``toolemu judge`` and ``toolemu calibrate`` share: options, settings, record folders, and judges."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar

import typer

from pytest_toolemu.cli.common import Job, command_settings, err, run_concurrently, with_components
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.counted import counted

if TYPE_CHECKING:
    from pytest_toolemu.analysis.rejudge import CurrentCases
    from pytest_toolemu.components import Components
    from pytest_toolemu.core.case_vocabulary import Metric
    from pytest_toolemu.core.run import Run
    from pytest_toolemu.core.verdict import Evaluator
    from pytest_toolemu.models.batch_journal import BatchState
    from pytest_toolemu.models.batch_queue import Batches
    from pytest_toolemu.models.pricing import Cost
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
    from pytest_toolemu.core.identity import component_name, identity_of
    from pytest_toolemu.core.run import versions
    from pytest_toolemu.formats.files.private_folders import make_folder
    from pytest_toolemu.sessions import session_id
    from pytest_toolemu.sessions.deferred_judging import deciding_settings
    from pytest_toolemu.sessions.manifest_records import Manifest
    from pytest_toolemu.sessions.reader import manifest_of
    from pytest_toolemu.sessions.single_run import prices_of_settings
    from pytest_toolemu.sessions.store import RunStore
    from pytest_toolemu.sessions.stored_decision import left_out, to_judge

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


BatchOption = Annotated[
    bool,
    typer.Option(
        "--batch",
        help="Send the requests in batches of OpenAI or Anthropic, at half the price and answered within 24 hours. "
        "After an interruption, run the same command again to continue.",
    ),
]
EstimateOption = Annotated[
    bool, typer.Option("--estimate", help="Print what the judges would cost, without sending anything.")
]

LOCK: Final = ".batches-lock"
"""The file in the run directory that a process locks while it looks for unfinished batches."""

INTERRUPTED: Final = 130
"""Exit status after Ctrl-C, as of a process that the signal ended."""

# Runs that are judged in the same batches; each stays in memory until it is judged.
_RUNS_AT_ONCE: Final = 4_000


@dataclass
class JudgingCommand:
    """A command that asks judges about runs of some sessions; ``batches`` is None if it asks them immediately.

    ``content`` is what determines its requests besides the sessions and the judges.
    """

    name: str
    settings: Settings
    sessions: list[Path]
    content: tuple[object, ...]
    batches: Batches | None

    @classmethod
    def create(
        cls, name: str, settings: Settings, sessions: Sequence[Path], batch: bool, *content: object
    ) -> JudgingCommand:
        """Return the command; with ``batch``, it asks judges in batches."""
        return cls(name, settings, list(sessions), content, _new_batches(settings) if batch else None)

    def execute(self, work: Callable[[Judges], Awaitable[T]]) -> T:
        """Create the judges, and run ``work`` with them. After Ctrl-C, say how to continue with the batches."""
        with self._resumable():
            return with_judges(self.settings, work, self.batches)

    def judges(self) -> Judges:
        """Return the judges without their keys, for an estimate."""
        from pytest_toolemu.components import Components

        return configured_judges(Components(replace(self.settings, estimate=True)))

    def print_estimate(self, questions: Iterable[tuple[Evaluator, Run]], subject: str) -> None:
        """Print what judging these runs would cost, in batches or immediately."""
        from pytest_toolemu.analysis.cost_estimate import estimate_judging
        from pytest_toolemu.cli.common import print_estimate

        print_estimate(estimate_judging(questions, batch=self.batches is not None), self.settings, subject)

    def store(
        self,
        judges: Judges,
        to: Path | None = None,
        keep: bool = False,
        current_cases: CurrentCases | None = None,
        runs: Sequence[Path] = (),
    ) -> RunStore:
        """Return the store for new records: that of an interrupted call of the same command, or a new one.

        Raise UsageError if a folder has unfinished batches that this command would not continue.
        """
        if self.batches is None:
            if to is not None and _unfinished(to):
                raise UsageError(
                    f"{to}: has unfinished batches, which the provider charges for; continue them with --batch, or "
                    "name another folder with --to"
                )
            return new_store(self.settings, self.sessions, judges, to, keep, current_cases, runs)
        from pytest_toolemu.models.batch_journal import BatchJournal

        command = self._hash(judges, keep, current_cases)
        with nullcontext() if to else _alone(self.settings):
            folder = to or self._unfinished_folder(command)
            store = new_store(self.settings, self.sessions, judges, folder, keep, current_cases, runs)
            self.batches.use(BatchJournal.open(store.folder, command))
        return store

    async def run(self, jobs: Sequence[tuple[str, Job[T]]]) -> list[T]:
        """Return the results of all jobs in their order. Each has a subject, which names its requests in batches."""
        limit = self.settings.concurrency if self.batches is None else _RUNS_AT_ONCE
        return await run_concurrently([_about(subject, job) for subject, job in jobs], limit)

    def usage_text(self, costs: Sequence[Cost]) -> str:
        """Return the tokens that were used; with batches, also their number and the cost at batch prices."""
        from pytest_toolemu.models.pricing import Cost

        total = sum(costs, Cost())
        tokens = counted(total.input + total.output, "token")
        if self.batches is None:
            return tokens
        number = counted(len(self.batches.journal.batches), "batch")
        return f"{tokens} in {number}, {total.text} USD at batch prices"

    def _hash(self, judges: Judges, keep: bool, current_cases: CurrentCases | None) -> str:
        """Return a hash of what was asked; a call with the same hash is the same command."""
        from pytest_toolemu.core.identity import identity_of
        from pytest_toolemu.core.run import sha256

        sessions = [path.absolute().as_posix() for path in self.sessions]
        identities = [identity_of(judge) for _, judge in judges]
        checks = current_cases.name if current_cases else ""
        return sha256([self.name, sessions, identities, keep, checks, *self.content])

    def _unfinished_folder(self, command: str) -> Path | None:
        """Return the folder in the run directory in which an interrupted call of this command left its batches.

        Without one, name the folders with unfinished batches of other commands that judge the same sessions.
        """
        from pytest_toolemu.models.batch_journal import STATE

        others, judged = [], {path.absolute() for path in self.sessions}
        for path in sorted(Path(self.settings.run_dir).glob(f"2*-*/{STATE}"), reverse=True):
            state = _unfinished(path.parent)
            if state is not None and state.command == command:
                return path.parent
            if state is not None and judged.intersection(map(Path.absolute, _sources(path.parent))):
                others.append(path.parent)
        for line in foreign(others):
            err.print(line)
        return None

    @contextmanager
    def _resumable(self) -> Iterator[None]:
        batches = self.batches
        try:
            yield
        except KeyboardInterrupt:
            if batches is None or not batches.is_open:
                raise
            for line in interruption(batches):
                err.print(line)
            raise typer.Exit(INTERRUPTED) from None
        else:
            if batches is not None:
                finish(batches)
        finally:
            if batches is not None and batches.is_open:
                batches.journal.close()


def _new_batches(settings: Settings) -> Batches:
    from pytest_toolemu.formats.visible_text import in_log
    from pytest_toolemu.models.batch_queue import Batches
    from pytest_toolemu.scheduling.budget import Budget

    def report(line: str) -> None:
        err.print(in_log(line))

    return Batches(Budget(settings.budget_usd, settings.budget_tokens), report)


@contextmanager
def _alone(settings: Settings) -> Iterator[None]:
    """Let only one process at a time look for a folder of unfinished batches in the run directory, or create one.

    UsageError if the run directory cannot be locked.
    """
    from pytest_toolemu.formats.files.file_lock import lock_file
    from pytest_toolemu.formats.files.private_folders import make_folder
    from pytest_toolemu.models.batch_journal import unlockable

    folder = Path(settings.run_dir)
    try:
        make_folder(folder, private=settings.run_dir_mode == "private")
        lock = lock_file(folder / LOCK, wait=True)
    except OSError as error:
        raise unlockable(folder, error) from None
    try:
        yield
    finally:
        os.close(lock)


def judged_sessions(sessions: Sequence[Path], batch: bool) -> list[Path]:
    """Return the sessions to judge. With ``batch``, the folder of unfinished batches stands for what they judge.

    Such a folder is what ``latest`` names after an interruption.
    """
    return [source for folder in sessions for source in (_sources(folder) if batch else [folder])]


def _sources(folder: Path) -> list[Path]:
    """Return the sessions that an unfinished batch in this folder judges, or the folder itself if it has none."""
    from pytest_toolemu.sessions.reader import manifest_of

    state = _unfinished(folder)
    return [folder] if state is None else list(map(Path, manifest_of(folder).judged_from))


def _unfinished(folder: Path) -> BatchState | None:
    from pytest_toolemu.models.batch_journal import read_state

    state = read_state(folder)
    return state if state is not None and not state.finished else None


def _about(subject: str, job: Job[T]) -> Job[T]:
    from pytest_toolemu.models.batch_journal import SUBJECT

    async def with_subject() -> T:
        SUBJECT.set(subject)
        return await job()

    return with_subject


def finish(batches: Batches) -> None:
    """Record that the command has completed. Raise UsageError if that cannot be written."""
    for line in _unused(batches):
        err.print(line)
    try:
        batches.journal.finish()
    except OSError as error:
        raise UsageError(
            f"{batches.journal.folder}: all runs are judged, but this cannot be recorded ({error.strerror}); free "
            "disk space, and run the same command again, which sends nothing"
        ) from None


def _unused(batches: Batches) -> Iterator[str]:
    """Yield a line for each batch of an earlier command that is not needed, because the sessions have changed."""
    for sent in batches.journal.batches:
        if sent.status in ("sending", "sent"):
            name = f"batch {sent.batch}" if sent.batch else "a batch that was being sent"
            requests = counted(sent.requests, "request")
            yield (
                f"{sent.model}: {name} with {requests} of an earlier command is not used, because the sessions have "
                "changed since; cancel it at the provider, or you will be charged for it"
            )


def interruption(batches: Batches) -> Iterator[str]:
    """Yield a line for each batch that continues at the provider after Ctrl-C, and one on how to resume."""
    journal = batches.journal
    for sent in journal.batches:
        if sent.status == "sent":
            requests = counted(sent.requests, "request")
            yield (
                f"{sent.model}: batch {sent.batch} with {requests} continues at the provider, which will charge for it"
            )
    yield (
        f"interrupted; run the same command again to continue with the batches of {journal.folder}; nothing is "
        "sent twice"
    )


def foreign(folders: Iterable[Path]) -> Iterator[str]:
    """Yield a line for each folder with unfinished batches of another command."""
    for folder in folders:
        yield (
            f"{folder}: has unfinished batches for the same sessions, which the provider charges for; this command "
            "does not continue them, because its judges, prompts, or options differ"
        )
