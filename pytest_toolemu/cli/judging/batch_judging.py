"""The work of ``toolemu judge`` and ``toolemu calibrate``: immediately, or in batches that survive an interruption."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from pytest_toolemu.cli.consoles import err
from pytest_toolemu.cli.judging.batch_ending import finish, foreign, interruption
from pytest_toolemu.cli.judging.judge_setup import Judges, configured_judges, new_store, with_judges
from pytest_toolemu.cli.model_work import Job, run_concurrently
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.counted import counted

if TYPE_CHECKING:
    from pytest_toolemu.analysis.recheck import CurrentCases
    from pytest_toolemu.core.protocols import Evaluator
    from pytest_toolemu.core.run import Run
    from pytest_toolemu.models.batches.batch_journal import BatchState
    from pytest_toolemu.models.batches.batched_model import Batches
    from pytest_toolemu.models.pricing import Cost
    from pytest_toolemu.sessions.store import RunStore
    from pytest_toolemu.settings import Settings

T = TypeVar("T")

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
        from pytest_toolemu.analysis.cost_estimate.judge_forecast import judge_forecast
        from pytest_toolemu.cli.estimates import print_estimate

        print_estimate(judge_forecast(questions, batch=self.batches is not None), self.settings, subject)

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
        from pytest_toolemu.models.batches.batch_journal import BatchJournal

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
        from pytest_toolemu.models.batches.batch_journal import STATE

        others, judged = [], {path.absolute() for path in self.sessions}
        for path in sorted(Path(self.settings.run_dir).glob(f"2*-*/{STATE}"), reverse=True):
            state = _unfinished(path.parent)
            if state is not None and state.command == command:
                return path.parent
            if state is not None and judged.intersection(map(Path.absolute, _sources(path.parent))):
                others.append(path.parent)
        for line in foreign(others):
            err.print(line, markup=False)
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
                err.print(line, markup=False)
            raise typer.Exit(INTERRUPTED) from None
        else:
            if batches is not None:
                finish(batches)
        finally:
            if batches is not None and batches.is_open:
                batches.journal.close()


def _new_batches(settings: Settings) -> Batches:
    from pytest_toolemu.formats.redaction import in_log
    from pytest_toolemu.models.batches.batched_model import Batches
    from pytest_toolemu.scheduling.budget import Budget

    def report(line: str) -> None:
        err.print(in_log(line), markup=False)

    return Batches(Budget(settings.budget_usd, settings.budget_tokens), report)


@contextmanager
def _alone(settings: Settings) -> Iterator[None]:
    """Let only one process at a time look for a folder of unfinished batches in the run directory, or create one.

    UsageError if the run directory cannot be locked.
    """
    from pytest_toolemu.formats.files.file_lock import lock_file
    from pytest_toolemu.formats.files.private_folders import make_folder
    from pytest_toolemu.models.batches.batch_journal import unlockable

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
    from pytest_toolemu.models.batches.batch_journal import read_state

    state = read_state(folder)
    return state if state is not None and not state.finished else None


def _about(subject: str, job: Job[T]) -> Job[T]:
    from pytest_toolemu.models.batches.batch_journal import SUBJECT

    async def with_subject() -> T:
        SUBJECT.set(subject)
        return await job()

    return with_subject
