"""Converts recorded trajectories and their evaluations to runs, so that every command can read them.

Imported runs have no messages, usage, or times, as the files contain none.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from pytest_toolemu.analysis.statistics.agreement import agreement_rate, cohen_kappa
from pytest_toolemu.analysis.statistics.intervals import mean, population_std, share_below
from pytest_toolemu.authoring.importers.evaluations import (
    MEMBERS,
    JsonLine,
    RunFileName,
    check_belonging,
    quantized,
    raise_if_any,
    read_evaluation,
    read_evaluations,
    read_lines,
    recording_name,
    trajectory_in,
)
from pytest_toolemu.authoring.importers.sources import Notes, note_unread
from pytest_toolemu.authoring.importers.trajectories import RecordedTrajectory, read_trajectory
from pytest_toolemu.core.case import SUFFIX as CASE_SUFFIX
from pytest_toolemu.core.case_vocabulary import Metric
from pytest_toolemu.core.run import ErrorInfo, Identity, Run, hashes_of, run_key, sha256
from pytest_toolemu.core.run_file import load_run
from pytest_toolemu.core.toolkit import SUFFIX as TOOLKIT_SUFFIX
from pytest_toolemu.core.toolkit import Toolkit
from pytest_toolemu.core.toolkit_files import load_toolkit
from pytest_toolemu.core.verdict import PASSING, Verdict, decide
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.yaml_document import show
from pytest_toolemu.sessions.manifest_records import Manifest
from pytest_toolemu.sessions.store import RunStore

ORIGIN: Final = "imported from"
"""The key of the imported file, with the line number, in ``versions`` of a run."""

# The members that are read of a record with a trajectory and its evaluations.
_MEMBERS: Final = {"trajectory", "evaluations", "agent_model", "quantization", "emulator_model"}
# The rubrics in records with a trajectory and its evaluations.
_RUBRICS: Final[dict[str, tuple[str, Metric]]] = {
    "safety": ("", "safety"),
    "helpfulness": ("", "helpfulness"),
    "helpfulness_ignore_safety": (" ignoring safety", "helpfulness"),
}


def load_toolkits(folder: Path) -> dict[str, Toolkit]:
    """Return the toolkits that ``toolemu import toolemu`` wrote to the folder. Raise UsageError if there are none."""
    paths = sorted((folder / "toolkits").glob(f"*{TOOLKIT_SUFFIX}"))
    if not paths:
        raise UsageError(
            f"{folder / 'toolkits'}: there are no toolkits; run 'toolemu import toolemu ASSETS FOLDER' first, and "
            "name that FOLDER"
        )
    return {path.name.removesuffix(TOOLKIT_SUFFIX): load_toolkit(path) for path in paths}


def import_runs(file: Path, folder: Path, evaluations: Iterable[Path] = (), notes: Notes | None = None) -> list[Run]:
    """Return one run for each line of the file, in its order; ``folder`` is what ``toolemu import toolemu`` wrote.

    ``notes`` receives what was left out or filled in. Raise UsageError with every line that is not valid, and for
    evaluations of other runs: a file is imported completely or not at all.
    """
    notes = {} if notes is None else notes
    lines = read_lines(file)
    toolkits = load_toolkits(folder)
    evaluation_files = [read_evaluations(path, len(lines), file.name) for path in evaluations]
    for evaluated in evaluation_files:
        check_belonging(lines, evaluated, toolkits.values(), notes)
        for line in evaluated.lines.values():
            note_unread(notes, "evaluation", line.record, MEMBERS, line.place)
    # Independent of evaluators. Other files may have the same name, and other sessions may have the same content.
    recording = sha256([recording_name(lines[0].path), *(trajectory_in(line.record) for line in lines)])[:12]
    name = RunFileName.of(file)
    runs: list[Run] = []
    problems: list[str] = []
    trials: Counter[tuple[str, str]] = Counter()
    for index, line in enumerate(lines):
        try:
            record, trajectory = line.record, trajectory_in(line.record)
            if not isinstance(record.get("trajectory", {}), dict):
                raise ValueError(f"'trajectory' is {show(record['trajectory'])}, not an object")
            recorded = read_trajectory(trajectory, toolkits, notes, line.place)
            verdicts = [verdict for evaluated in evaluation_files for verdict in evaluated.of(index)]
            if trajectory is record:
                agent, emulator = str(record.get("agent_llm") or name.agent), name.emulator
            else:
                note_unread(notes, "record", record, _MEMBERS, line.place)
                agent = quantized(str(record.get("agent_model", "unknown")), record.get("quantization"))
                emulator = str(record.get("emulator_model", "unknown"))
                verdicts += _own_verdicts(record.get("evaluations", {}), notes, line.place)
        except ValueError as error:
            problems.append(f"{line}: {error}")
            continue
        trials[agent, recorded.case.id] += 1
        # The identity excludes evaluators: the same trajectories with other evaluations are the same runs.
        identity = Identity(
            agent={"kind": "imported", "name": agent, "recording": recording},
            emulator={"kind": "imported", "name": emulator},
            evaluators=(),
        )
        runs.append(_run(line, recorded, tuple(verdicts), identity, trials[agent, recorded.case.id], folder))
    raise_if_any(problems)
    return runs


def write_runs(runs: Sequence[Run], target: Path) -> int:
    """Add runs to a folder of imported runs. Raise UsageError if the folder contains the runs of a session.

    A run that is already there receives the new verdicts, which replace those of the same evaluators and metrics.
    Return the number of such runs.
    """
    store = RunStore(target)
    manifest = store.manifest()
    if not manifest.is_empty and not manifest.imported_from:
        raise UsageError(f"{target}: contains the runs of a session; name another folder")
    target.mkdir(parents=True, exist_ok=True)
    updated = 0
    for run in runs:
        path = store.path(run)
        updated += path.is_file()
        store.put(_joined(load_run(path), run) if path.is_file() else run)
    files = {run.versions[ORIGIN].rpartition(":")[0] for run in runs}
    store.put_manifest(Manifest(session=target.name, imported_from=tuple(sorted(files.union(manifest.imported_from)))))
    return updated


def _joined(before: Run, now: Run) -> Run:
    """Return the run with the verdicts of both imports."""
    replaced = {(verdict.evaluator, verdict.metric) for verdict in now.verdicts}
    verdicts = (*(v for v in before.verdicts if (v.evaluator, v.metric) not in replaced), *now.verdicts)
    return now.model_copy(update=_judgment(now.identity, verdicts, now.error))


def _own_verdicts(evaluations: Any, notes: Notes, location: str) -> Iterable[Verdict]:
    """Return the evaluations in the record itself: by evaluator, then by rubric."""
    try:
        evaluated = [
            (record, f"{evaluator}{_RUBRICS[rubric][0]}", _RUBRICS[rubric][1])
            for evaluator, rubrics in evaluations.items()
            for rubric, record in rubrics.items()
        ]
        for record, _, _ in evaluated:
            note_unread(notes, "evaluation", record, MEMBERS, location)
        return [read_evaluation(*one) for one in evaluated]
    except (AttributeError, KeyError) as error:
        rubrics = ", ".join(_RUBRICS)
        raise ValueError(f"'evaluations' are not by evaluator and rubric ({rubrics}): {error}") from None


def _judgment(identity: Identity, verdicts: tuple[Verdict, ...], error: ErrorInfo | None) -> dict[str, Any]:
    """Return the members of a run that follow from its verdicts."""
    evaluators = tuple({"kind": "imported", "name": v.evaluator, "metric": v.metric} for v in verdicts)
    thresholds: dict[Metric, int] = {"safety": PASSING}
    if any(verdict.metric == "helpfulness" for verdict in verdicts):
        thresholds["helpfulness"] = PASSING
    outcome, reasons = decide(verdicts, thresholds)
    if error is not None:
        outcome, reasons = "broken", (f"{error.type}: {error.message}",)
    return {
        "identity": identity.model_copy(update={"evaluators": evaluators}),
        "verdicts": verdicts,
        "thresholds": thresholds,
        "outcome": outcome,
        "reasons": reasons,
    }


def _run(
    line: JsonLine,
    recorded: RecordedTrajectory,
    verdicts: tuple[Verdict, ...],
    identity: Identity,
    trial: int,
    folder: Path,
) -> Run:
    case, kits = recorded.case, recorded.toolkits
    path = folder / "cases" / f"{case.id}{CASE_SUFFIX}"
    hashes = hashes_of(case, kits)
    return Run(
        key=run_key(case.id, hashes, identity, trial, seed=0),
        agent=identity.agent["name"],
        case_id=case.id,
        case_path=(path if path.is_file() else line.path).as_posix(),
        case=case,
        toolkits=kits,
        hashes=hashes,
        trial=trial,
        steps=recorded.steps,
        answer=recorded.answer,
        stop=recorded.stop,
        stop_reason=recorded.stop_reason,
        discarded=recorded.discarded,
        thought=recorded.thought,
        error=recorded.error,
        versions={ORIGIN: str(line)},
        **_judgment(identity, verdicts, recorded.error),
    )


def report(runs: Sequence[Run]) -> Iterator[str]:
    """Yield the counts, the scores of each evaluator, and the agreement of evaluators, as lines of text."""
    yield f"outcomes: {_counts(Counter(run.outcome for run in runs))}"
    yield f"agents ended: {_counts(Counter(run.stop for run in runs))}"
    by_metric = scores(runs)
    for metric, by_evaluator in by_metric.items():
        for evaluator, all_scores in by_evaluator.items():
            numbers = [score for score in all_scores if score is not None]
            yield (
                f"{metric} by {evaluator}: n {len(numbers)} of {len(all_scores)}, mean {_number(mean(numbers))}, "
                f"std {_number(population_std(numbers))}, below 2 {_number(share_below(numbers))}"
            )
        for (one, first), (other, second) in itertools.combinations(by_evaluator.items(), 2):
            both = [(a, b) for a, b in zip(first, second, strict=True) if a is not None and b is not None]
            left, right = [a for a, _ in both], [b for _, b in both]
            yield (
                f"{metric}, {one} and {other}: quadratic kappa {_number(cohen_kappa(left, right, 'quadratic'))}, "
                f"equal {_number(agreement_rate(left, right))}, within 1 {_number(agreement_rate(left, right, 1))}"
            )


def scores(runs: Sequence[Run]) -> dict[Metric, dict[str, list[int | None]]]:
    """Return the score of each run in order, by metric and evaluator; None if the evaluator gave none."""
    names = dict.fromkeys((verdict.metric, verdict.evaluator) for run in runs for verdict in run.verdicts)
    by_metric: dict[Metric, dict[str, list[int | None]]] = {}
    for metric, evaluator in names:
        own = [{(v.metric, v.evaluator): v.score for v in run.verdicts}.get((metric, evaluator)) for run in runs]
        by_metric.setdefault(metric, {})[evaluator] = own
    return by_metric


def _counts(counts: Counter[Any]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.most_common()) or "none"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
