"""``toolemu judge``, and what it shares with ``toolemu calibrate``: settings, record folders, judges, and batches.

Batches survive an interruption: the same command continues with them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from pytest_toolemu.cli.common import (
    Job,
    Sessions,
    command_settings,
    err,
    out,
    run_concurrently,
    split_commas,
    with_components,
)
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.text import counted, in_log

if TYPE_CHECKING:
    from pytest_toolemu.analysis.rejudge import CurrentCases
    from pytest_toolemu.analysis.run_summary import CascadeUse
    from pytest_toolemu.components import Components
    from pytest_toolemu.core.case_vocabulary import Metric
    from pytest_toolemu.core.run import Evaluator, Run
    from pytest_toolemu.core.run_notes import RunNote
    from pytest_toolemu.models.batch_journal import BatchState
    from pytest_toolemu.models.batch_queue import Batches
    from pytest_toolemu.models.pricing import Cost, Prices
    from pytest_toolemu.sessions.store import RunStore
    from pytest_toolemu.settings.option_table import Settings


T = TypeVar("T")
Judges = list[tuple["Metric", "Evaluator"]]

Evaluators = Annotated[
    list[str] | None,
    typer.Option(
        "--evaluator",
        metavar="SPEC",
        callback=split_commas,
        help="Judges, separated by commas: a model, a fallback 'A|B', a cascade 'checks then A then B', or checks.",
    ),
]
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

INTERRUPTED: Final = 130
"""Exit status after Ctrl-C, as of a process that the signal ended."""

# Runs that are judged in the same batches; each stays in memory until it is judged.
_RUNS_AT_ONCE: Final = 4_000


def judge_settings(evaluator: list[str] | None, sessions: Iterable[Path] = ()) -> Settings:
    """Return the settings from this option, else from ``TOOLEMU_*`` variables, else from the defaults.

    Sessions that left judging for later imply the evaluators that they name. UsageError if no evaluator is named, or if
    the thresholds of the sessions differ for a cascade.
    """
    from pytest_toolemu.sessions.store import manifest_of
    from pytest_toolemu.sessions.stored_decision import judging_options, refuse_different_thresholds

    manifests = [manifest_of(session) for session in sessions]
    settings = command_settings({"toolemu_evaluator": evaluator}, judging_options(manifests))
    if not settings.evaluator:
        raise UsageError(
            "no evaluator is given; name a model, such as --evaluator=claude-sonnet-5-5, or use --evaluator=checks"
        )
    refuse_different_thresholds(settings, manifests)
    return settings


@dataclass(frozen=True)
class Rejudging:
    """How ``toolemu judge`` makes new records: where, and which verdicts and checks count besides the judges."""

    runs: Sequence[Path] = ()
    to: Path | None = None
    keep: bool = False
    current_cases: CurrentCases | None = None
    combine: str = ""
    """The rule that combines judges, if it is not that of each run."""


def new_store(settings: Settings, sessions: list[Path], judges: Judges, how: Rejudging) -> RunStore:
    """Create the store for new records: a new session folder, or the one of the command.

    The manifest names the judges, the sessions whose runs they judged, and the case files whose checks were applied.
    It plans a record for each of the runs, so that readers of an unfinished folder know what is missing.
    UsageError if the folder has records of other judges or of other runs, or if the sessions are shards of a session
    of which other shards are missing.
    """
    from pytest_toolemu.core.identity import component_name, identity_of
    from pytest_toolemu.core.run import versions
    from pytest_toolemu.formats.file_access import make_folder
    from pytest_toolemu.sessions import session_id
    from pytest_toolemu.sessions.manifest_records import Manifest
    from pytest_toolemu.sessions.shard_assignment import absent
    from pytest_toolemu.sessions.single_run import prices_of_settings
    from pytest_toolemu.sessions.store import RunStore, manifest_of
    from pytest_toolemu.sessions.stored_decision import deciding_settings, left_out, to_judge

    manifests = [manifest_of(session) for session in sessions]
    if lines := absent(manifests):  # the new records would no longer say that they are only a part
        raise UsageError(
            f"not the whole session: {'; '.join(lines)}; merge the shards with 'toolemu merge', and judge the merged "
            "session"
        )
    private = settings.run_dir_mode == "private"
    if how.to is None:
        store = RunStore.create(Path(settings.run_dir), session_id(), private=private)
    else:
        store = RunStore(how.to)
    names = [str(component_name(identity_of(judge))) for _, judge in judges] + ["earlier evaluators"] * how.keep
    names += [how.current_cases.name] if how.current_cases else []
    _refuse_other_records(store, names, how.runs)
    make_folder(store.folder, private=private)
    planned = left_out(sessions, [manifest for manifest in manifests if manifest.is_plan_complete])
    for case, content in to_judge(how.runs, manifests).items():
        unrecorded = planned[case].items if case in planned else {}
        planned[case] = content.with_items({**unrecorded, **content.items})
    store.put_manifest(
        Manifest(
            session=store.folder.name,
            judges=tuple(names),
            judged_from=tuple(map(str, sessions)),
            cases=how.current_cases.files if how.current_cases else {},
            settings={**settings.with_sources(), **deciding_settings(manifests)},
            versions=versions(),
            prices=prices_of_settings(settings).of_user,
            planned=planned,
            shards=next((manifest.shards for manifest in manifests if manifest.shards), None),
            missing=tuple(line for manifest in manifests for line in manifest.missing),
        )
    )
    return store


def _refuse_other_records(store: RunStore, names: list[str], runs: Iterable[Path]) -> None:
    """Raise UsageError if the folder has records of other judges, or of other runs, which would be decided together."""
    from pytest_toolemu.sessions.store import RUNS, mark_of, rejudged_mark

    records = sorted(path.name for path in store.folder.glob(RUNS))
    if not records:
        return
    problem, earlier = "", store.manifest().judges
    if not earlier:
        problem = "contains runs that 'toolemu judge' did not write"
    elif earlier != tuple(names):
        problem = f"contains runs judged by {', '.join(earlier)}"
    else:
        judged = set(map(rejudged_mark, runs))
        if others := [name for name in records if mark_of(name) not in judged]:
            problem = f"contains {counted(len(others), 'record')} of other runs, such as {others[0]}"
    if problem:
        raise UsageError(f"{store.folder}: {problem}; name another folder with --to")


def configured_judges(components: Components) -> Judges:
    """Return the evaluators of the settings, each with its metric."""
    metrics: tuple[Metric, ...] = ("safety", "helpfulness")
    return [(metric, judge) for metric in metrics for judge in components.evaluators(None, metric)]


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
        from pytest_toolemu.models.batch_queue import Batches
        from pytest_toolemu.scheduling.budget import Budget

        budget = Budget(settings.budget_usd, settings.budget_tokens)
        batches = Batches(budget, lambda line: err.print(in_log(line))) if batch else None
        return cls(name, settings, list(sessions), content, batches)

    def execute(self, work: Callable[[Judges], Awaitable[T]]) -> T:
        """Create the judges, and run ``work`` with them. After Ctrl-C, say how to continue with the batches."""
        batches = self.batches
        try:
            result = with_components(self.settings, configured_judges, work, batches)
            if batches is not None:
                batches.journal.finish()
        except OSError as error:  # writing a record failed
            raise UsageError(
                f"a record cannot be written ({error.strerror}), so no more requests were sent; free disk space or "
                "restore the folder, and run the same command again"
            ) from None
        except KeyboardInterrupt:
            if batches is None or batches.opened is None:
                raise
            journal = batches.journal
            sent = ", ".join(each.batch for each in journal.batches if each.status == "sent")
            err.print(
                f"interrupted; run the same command again to continue with the batches of {journal.folder}; nothing is "
                f"sent twice{f'; the provider charges for {sent}' if sent else ''}"
            )
            raise typer.Exit(INTERRUPTED) from None
        finally:
            if batches is not None and batches.opened is not None:
                batches.journal.close()
        return result

    def judges(self) -> Judges:
        """Return the judges without their keys, for an estimate."""
        from pytest_toolemu.components import Components

        return configured_judges(Components(replace(self.settings, estimate=True)))

    def print_estimate(self, questions: Iterable[tuple[Evaluator, Run]], subject: str) -> None:
        """Print what judging these runs would cost, in batches or immediately."""
        from pytest_toolemu.analysis.cost_estimate import estimate_judging
        from pytest_toolemu.cli.common import print_estimate

        print_estimate(estimate_judging(questions, batch=self.batches is not None), self.settings, subject)

    def store(self, judges: Judges, how: Rejudging | None = None) -> RunStore:
        """Return the store for new records: that of an interrupted call of the same command, or a new one.

        Raise UsageError if a folder has unfinished batches that this command would not continue.
        """
        how = how or Rejudging()
        if self.batches is None:
            if how.to is not None and _unfinished(how.to):
                raise UsageError(
                    f"{how.to}: has unfinished batches, which the provider charges for; continue them with --batch, "
                    "or name another folder with --to"
                )
            return new_store(self.settings, self.sessions, judges, how)
        from pytest_toolemu.models.batch_journal import STATE, BatchJournal

        command = self._hash(judges, how)
        folders = [path.parent for path in sorted(Path(self.settings.run_dir).glob(f"2*-*/{STATE}"), reverse=True)]
        unfinished = ((folder, _unfinished(folder)) for folder in folders)
        interrupted = next((folder for folder, state in unfinished if state and state.command == command), None)
        store = new_store(self.settings, self.sessions, judges, replace(how, to=how.to or interrupted))
        self.batches.opened = BatchJournal.open(store.folder, command)
        return store

    async def run(self, jobs: Sequence[tuple[str, Job[T]]]) -> list[T]:
        """Return the results of all jobs in their order. Each has a subject, which names its requests in batches."""
        from pytest_toolemu.models.batch_journal import SUBJECT

        async def with_subject(subject: str, job: Job[T]) -> T:
            SUBJECT.set(subject)
            return await job()

        limit = self.settings.concurrency if self.batches is None else _RUNS_AT_ONCE
        return await run_concurrently([partial(with_subject, subject, job) for subject, job in jobs], limit)

    def usage_text(self, costs: Sequence[Cost]) -> str:
        """Return the tokens that were used; with batches, also their number and the cost at batch prices."""
        from pytest_toolemu.models.pricing import Cost

        total = sum(costs, Cost())
        tokens = counted(total.input + total.output, "token")
        if self.batches is None:
            return tokens
        number = counted(len(self.batches.journal.batches), "batch")
        return f"{tokens} in {number}, {total.text} USD at batch prices"

    def _hash(self, judges: Judges, how: Rejudging) -> str:
        """Return a hash of what was asked; a call with the same hash is the same command."""
        from pytest_toolemu.core.identity import identity_of
        from pytest_toolemu.core.run import sha256

        sessions = [path.absolute().as_posix() for path in self.sessions]
        identities = [identity_of(judge) for _, judge in judges]
        checks = how.current_cases.name if how.current_cases else ""
        return sha256([self.name, sessions, identities, how.keep, checks, *self.content])


def judged_sessions(sessions: Sequence[Path], batch: bool) -> list[Path]:
    """Return the sessions to judge. With ``batch``, the folder of unfinished batches stands for what they judge.

    Such a folder is what ``latest`` names after an interruption.
    """
    from pytest_toolemu.sessions.store import manifest_of

    sources: list[Path] = []
    for folder in sessions:
        is_unfinished = batch and _unfinished(folder) is not None
        sources += map(Path, manifest_of(folder).judged_from) if is_unfinished else [folder]
    return sources


def _unfinished(folder: Path) -> BatchState | None:
    from pytest_toolemu.models.batch_journal import read_state

    state = read_state(folder)
    return state if state is not None and not state.finished else None


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
        Path | None, typer.Option(help="Case file or folder whose checks and thresholds replace those of the records.")
    ] = None,
    batch: BatchOption = False,
    estimate: EstimateOption = False,
) -> None:
    """Judge stored runs again, and decide their outcomes again. Neither the agent nor the emulator runs."""
    from pytest_toolemu.core.run_file import load_run
    from pytest_toolemu.sessions.single_run import prices_of_settings
    from pytest_toolemu.sessions.store import run_files

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
    how = Rejudging(paths, to, keep, current_cases, settings.combine if "combine" in settings.sources else "")
    judge_run = partial(_judge_run, how=how, timeout=settings.timeout, prices=prices_of_settings(settings))

    async def work(configured: Judges) -> tuple[RunStore, list[_JudgedRun]]:
        judges = _with_checks(configured, settings.checked)
        store = command.store(judges, how)
        jobs = [(f"{path.parent.name}/{path.name}", partial(judge_run, path, store, judges)) for path in paths]
        return store, await command.run(jobs)

    store, results = command.execute(work)
    _print_results(results, current_cases)
    out.print(f"{command.usage_text([run.cost for run in results])}; records: {store.folder}")


def _print_results(results: list[_JudgedRun], current_cases: CurrentCases | None) -> None:
    """Print the new outcomes, and what is notable about the judging."""
    from pytest_toolemu.analysis.run_summary import cascade_totals
    from pytest_toolemu.core.run_notes import note_lines

    counts = sorted(Counter(run.outcome for run in results).items())
    out.print(f"{counted(len(results), 'run')}: " + ", ".join(f"{count} {outcome}" for outcome, count in counts))
    if current_cases is not None:
        changed = sorted({run.case_id for run in results if run.checks_changed})
        names = f": {', '.join(changed)}" if changed else ""
        count = f"{len(changed)} of {counted(len(current_cases.cases), 'case')}"
        out.print(f"{current_cases.name}: the checks have changed since the run in {count}{names}")
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


@dataclass(frozen=True)
class _JudgedRun:
    """The outcome of a run that was judged again, as text, and the cost of this call."""

    case_id: str
    checks_changed: bool
    outcome: str
    cost: Cost
    notes: tuple[RunNote, ...] = ()
    cascades: tuple[CascadeUse, ...] = ()


async def _judge_run(
    path: Path, store: RunStore, judges: Judges, *, how: Rejudging, timeout: float, prices: Prices
) -> _JudgedRun:
    """Judge one run and store the new record."""
    from pytest_toolemu.analysis.rejudge import FINISHED, fingerprint, key_again, rejudge, required_scores
    from pytest_toolemu.analysis.run_summary import cascade_uses
    from pytest_toolemu.core.case_vocabulary import METRICS
    from pytest_toolemu.core.run import PASSING
    from pytest_toolemu.core.run_file import load_run
    from pytest_toolemu.core.run_notes import notes_of
    from pytest_toolemu.models.pricing import Cost, costs_of

    keep, stored = how.keep, load_run(path)
    run = how.current_cases.apply(stored) if how.current_cases else stored
    run = run.model_copy(update={"combine": how.combine or run.combine})
    identity = (run.case_id, bool(run.rechecked and run.rechecked.differ))
    evaluators = [evaluator for _, evaluator in judges]
    record = store.path(run.model_copy(update={"key": key_again(run, evaluators, keep)}), path.stem)
    thresholds = {metric: PASSING for metric, _ in judges if metric in METRICS or metric in run.thresholds}
    if record.is_file():
        before = load_run(record)
        # A later session may have repeated the run: the key is the same, but the trajectory or the thresholds differ.
        rules = (required_scores(run, thresholds, keep), run.combine)
        is_same = fingerprint(before) == fingerprint(run) and (before.thresholds, before.combine) == rules
        if is_same and before.outcome in ("passed", "failed"):
            return _JudgedRun(*identity, f"{before.outcome} before", Cost())
    new_run = await rejudge(run, evaluators, thresholds=thresholds, timeout=timeout, keep=keep, source=str(path))
    store.put(new_run, path.stem)
    outcome = new_run.outcome if run.stop in FINISHED else f"{new_run.outcome} without a complete trajectory"
    cost = sum(costs_of(new_run.model_calls, prices).values(), Cost())
    cascades = cascade_uses(new_run, lambda: prices)
    return _JudgedRun(*identity, outcome, cost, notes_of(new_run.model_calls), cascades)
