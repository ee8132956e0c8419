"""What people say of stored runs, one file for each of them, and which runs they are asked about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median_low
from typing import Final

from pytest_toolemu.analysis.calibration.label_files import Label, read_labels
from pytest_toolemu.analysis.rejudge import FINISHED, fingerprint, same_run
from pytest_toolemu.core.case import Metric
from pytest_toolemu.core.run import Run, Verdict, sha256
from pytest_toolemu.core.run_file import load_run
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.atomic_write import write_json_text

__all__ = ["REFERENCE", "Label", "LabeledRun", "match_labels", "read_labels", "sample_runs", "write_labels"]

REFERENCE: Final = "reference"
"""Who labelled the references of a case: its author."""


@dataclass(frozen=True)
class LabeledRun:
    """A run with its labels, at most one of each annotator; ``name`` is what reports call it.

    ``run`` is the last record of the run, ``earlier`` are the others: the run as it was judged before.
    """

    name: str
    run: Run
    labels: tuple[Label, ...]
    earlier: tuple[Run, ...] = ()

    @property
    def verdicts(self) -> list[Verdict]:
        """The verdicts of all records; of one evaluator about one metric the last."""
        records = (*self.earlier, self.run)
        found = {(verdict.evaluator, verdict.metric): verdict for run in records for verdict in run.verdicts}
        return list(found.values())

    def score(self, metric: Metric) -> int | None:
        """The label to hold a judge to: of several people's, the median, of an even number the lower one."""
        scores = [score for label in self.labels if (score := label.score(metric)) is not None]
        return median_low(scores) if scores else None


def labels_by_annotator(items: Iterable[LabeledRun]) -> dict[str, int]:
    """Count the labels that each annotator gave; one that holds for several runs was given once."""
    given = {id(label): label for item in items for label in item.labels}
    return dict(sorted(Counter(label.annotator for label in given.values()).items()))


def write_labels(path: Path, labels: Iterable[Label]) -> None:
    """One label a line, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json_text(path, "".join(label.model_dump_json(exclude_defaults=True) + "\n" for label in labels))


@dataclass
class _Records:
    """The records of one run, by the stems of their files, in the order in which they were read."""

    mark: str
    runs: dict[str, Run]


def match_labels(labels: Sequence[Label], paths: Sequence[Path]) -> tuple[list[LabeledRun], list[Label]]:
    """Return each of the stored runs that has labels, and the labels of no run. Records of one run count once.

    A label holds for every run with the trajectory that was labelled, as judges are shown no more. A run that the same
    person labelled itself keeps that label. UsageError for a run that one person labelled twice.
    """
    marks = {path.stem: fingerprint(load_run(path)) for path in paths}
    by_mark: dict[str, list[Label]] = {}
    for label in labels:
        by_mark.setdefault(label.trajectory or marks.get(label.run, ""), []).append(label)
    # Read twice rather than kept: few of many runs are labelled.
    records = ((path.stem, load_run(path)) for path in paths if marks[path.stem] in by_mark)
    found = []
    for unit in _units(records):
        if given := tuple(_labels_of(unit, by_mark[unit.mark])):
            *earlier, (stem, run) = unit.runs.items()
            found.append(LabeledRun(stem, run, given, tuple(run for _, run in earlier)))
    known = set(marks.values())
    return found, [label for mark, given in by_mark.items() if mark not in known for label in given]


def _units(records: Iterable[tuple[str, Run]]) -> list[_Records]:
    """The records of each run together. Two records that no judge made of another are two runs, even if equal."""
    by_stem: dict[str, _Records] = {}
    by_run: dict[str, _Records] = {}
    again: list[tuple[str, str, Run]] = []
    for stem, run in records:
        if run.rejudged_from:
            again.append((stem, run.rejudged_from, run))
        else:
            by_stem[stem] = _Records(fingerprint(run), {stem: run})
            by_run.setdefault(same_run(run), by_stem[stem])
    for stem, origin, run in again:
        mark = fingerprint(run)
        unit = by_stem.get(Path(origin).stem)
        if unit is None or unit.mark != mark:
            unit = by_run.setdefault(same_run(run), _Records(mark, {}))
        unit.runs[stem] = run
        by_stem[stem] = unit
    return list({id(unit): unit for unit in by_stem.values()}.values())


def _labels_of(unit: _Records, labels: Sequence[Label]) -> Iterator[Label]:
    """One label of each annotator: of this very run, else the only one of what the run did."""
    for annotator in dict.fromkeys(label.annotator for label in labels):
        given = [label for label in labels if label.annotator == annotator]
        own = [label for label in given if label.run in unit.runs] or [label for label in given if not label.run]
        if len(own) > 1:
            names = " and ".join(label.run or label.trajectory for label in own)
            raise UsageError(f"{annotator} labelled one run twice, as {names}; remove one of the labels")
        if own or len(given) == 1:
            yield (own or given)[0]


def sample_runs(runs: Iterable[tuple[Path, Run]], size: int, seed: int) -> list[tuple[Path, str]]:
    """Records to ask about, with their fingerprints, the same for every annotator: shuffled, one of each case first,
    then a second of each, ...

    Only runs whose agent finished, and of equal trajectories one. Whatever the judge said plays no part, so shares of
    the sample are shares of all runs.
    """
    order = {fingerprint(run): (path, run.case_id) for path, run in runs if run.stop in FINISHED}
    turns: Counter[str] = Counter()
    ranked = []
    for mark in sorted(order, key=lambda mark: sha256([seed, mark])):
        path, case = order[mark]
        turns[case] += 1
        ranked.append((turns[case], path, mark))
    return [(path, mark) for _, path, mark in sorted(ranked, key=lambda one: one[0])[:size]]
