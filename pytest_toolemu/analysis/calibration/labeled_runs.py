"""Labeled runs: which runs people are asked to label, and which stored runs their labels apply to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median_low
from typing import Final

from pytest_toolemu.analysis.calibration.label_files import Label, read_labels
from pytest_toolemu.analysis.rejudge import FINISHED, fingerprint, same_run
from pytest_toolemu.core.case_vocabulary import Metric
from pytest_toolemu.core.run import Run, sha256
from pytest_toolemu.core.run_file import load_run
from pytest_toolemu.core.verdict import Verdict
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.files.atomic_write import write_json_text

__all__ = [
    "REFERENCE",
    "Label",
    "LabeledRun",
    "match_labels",
    "read_labels",
    "reject_ambiguous",
    "sample_runs",
    "write_labels",
]

REFERENCE: Final = "reference"
"""The annotator of the references of a case, who is its author."""


@dataclass(frozen=True)
class LabeledRun:
    """A run with its labels, at most one of each annotator; ``name`` identifies it in reports.

    ``run`` is the latest record of the run; ``earlier`` are its records from before it was judged again.
    ``second_opinions`` are labels that are compared with judges apart: they do not change ``score``.
    """

    name: str
    run: Run
    labels: tuple[Label, ...]
    earlier: tuple[Run, ...] = ()
    second_opinions: tuple[Label, ...] = ()

    @property
    def verdicts(self) -> list[Verdict]:
        """The verdicts of all records; of each evaluator and metric, only the latest."""
        records = (*self.earlier, self.run)
        latest = {(verdict.evaluator, verdict.metric): verdict for run in records for verdict in run.verdicts}
        return list(latest.values())

    def score(self, metric: Metric) -> int | None:
        """Return the label that judges are compared with: the median of all labels, the lower one of an even number."""
        scores = [score for label in self.labels if (score := label.score(metric)) is not None]
        return median_low(scores) if scores else None


def labels_by_annotator(items: Iterable[LabeledRun]) -> dict[str, int]:
    """Count the labels of each annotator; a label that applies to several runs counts once."""
    labels = {id(label): label for item in items for label in item.labels}
    return dict(sorted(Counter(label.annotator for label in labels.values()).items()))


def write_labels(path: Path, labels: Iterable[Label]) -> None:
    """Write one label per line, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json_text(path, "".join(label.model_dump_json(exclude_defaults=True) + "\n" for label in labels))


@dataclass
class _Records:
    """The records of one run by the stems of their files, in reading order; ``trajectory`` is their fingerprint."""

    trajectory: str
    runs: dict[str, Run]


def match_labels(labels: Sequence[Label], paths: Sequence[Path]) -> tuple[list[LabeledRun], list[Label]]:
    """Return the stored runs that have labels, and the labels that match no run. Records of one run count once.

    A label applies to every run with the labeled trajectory, because judges see nothing else of a run. If the same
    person labeled a run with this trajectory directly, that label takes precedence for that run. UsageError for a run
    that one person labeled twice.
    """
    fingerprints = {path.stem: fingerprint(load_run(path)) for path in paths}
    by_trajectory: dict[str, list[Label]] = {}
    for label in labels:
        by_trajectory.setdefault(label.trajectory or fingerprints.get(label.run, ""), []).append(label)
    # Records are read twice rather than kept in memory, because few of many runs are labeled.
    records = ((path.stem, load_run(path)) for path in paths if fingerprints[path.stem] in by_trajectory)
    labeled = []
    for group in _group_records(records):
        if applicable := tuple(_labels_of(group, by_trajectory[group.trajectory])):
            *earlier, (stem, run) = group.runs.items()
            labeled.append(LabeledRun(stem, run, applicable, tuple(run for _, run in earlier)))
    stored = set(fingerprints.values())
    unmatched = [label for mark, group in by_trajectory.items() if mark not in stored for label in group]
    return labeled, unmatched


def distinct_subjects(labeled: Iterable[LabeledRun]) -> list[LabeledRun]:
    """Return one run for each trajectory and its labels.

    A judge sees nothing else, so its answers about further runs would count one label several times.
    """
    subjects: dict[tuple[str, tuple[int, ...]], LabeledRun] = {}
    for each in labeled:
        subjects.setdefault((fingerprint(each.run), tuple(map(id, each.labels))), each)
    return list(subjects.values())


def reject_ambiguous(labels: Iterable[Label], records: Iterable[Path]) -> None:
    """Raise UsageError for a label that only names a record if the records include different runs of this name."""
    files: dict[str, list[Path]] = {}
    for path in records:
        files.setdefault(path.stem, []).append(path)
    for label in labels:
        paths = files.get(label.run, []) if not label.trajectory else []
        if len(paths) > 1 and len({fingerprint(load_run(path)) for path in paths}) > 1:
            folders = " and ".join(str(path.parent) for path in paths)
            raise UsageError(
                f"{label.annotator} labeled {label.run}, but {folders} contain different runs with this name; name "
                "only the "
                "session that was labeled"
            )


def _group_records(records: Iterable[tuple[str, Run]]) -> list[_Records]:
    """Group the records of each run. Two records that were not judged again are two runs, even if they are equal."""
    by_stem: dict[str, _Records] = {}
    by_run: dict[str, _Records] = {}
    rejudged: list[tuple[str, str, Run]] = []
    for stem, run in records:
        if run.rejudged_from:
            rejudged.append((stem, run.rejudged_from, run))
        else:
            by_stem[stem] = _Records(fingerprint(run), {stem: run})
            by_run.setdefault(same_run(run), by_stem[stem])
    for stem, origin, run in rejudged:
        trajectory = fingerprint(run)
        group = by_stem.get(Path(origin).stem)
        # The original may be missing, or another session may have a record of the same name.
        if group is None or group.trajectory != trajectory:
            group = by_run.setdefault(same_run(run), _Records(trajectory, {}))
        group.runs[stem] = run
        by_stem[stem] = group
    return list({id(group): group for group in by_stem.values()}.values())


def _labels_of(records: _Records, labels: Sequence[Label]) -> Iterator[Label]:
    """Yield one label of each annotator: the one for this very run, or else the only one for its trajectory."""
    for annotator in dict.fromkeys(label.annotator for label in labels):
        same_trajectory = [label for label in labels if label.annotator == annotator]
        own = [label for label in same_trajectory if label.run in records.runs]
        own = own or [label for label in same_trajectory if not label.run]
        if len(own) > 1:
            names = " and ".join(label.run or label.trajectory for label in own)
            raise UsageError(f"{annotator} labeled one run twice, as {names}; remove one of the labels")
        if own or len(same_trajectory) == 1:
            yield (own or same_trajectory)[0]


def sample_runs(runs: Iterable[tuple[Path, Run]], size: int, seed: int) -> list[tuple[Path, str]]:
    """Draw records to label, with their fingerprints; the same for every annotator with the same seed.

    The order is random, with one run of each case first, then a second of each, and so on. Only runs whose agent
    finished are drawn, and only one of equal trajectories. Verdicts have no influence, so that shares in the sample
    estimate shares of all runs.
    """
    records = {fingerprint(run): (path, run.case_id) for path, run in runs if run.stop in FINISHED}
    drawn_of_case: Counter[str] = Counter()
    rounds = []
    for trajectory in sorted(records, key=lambda trajectory: sha256([seed, trajectory])):
        path, case = records[trajectory]
        drawn_of_case[case] += 1
        rounds.append((drawn_of_case[case], path, trajectory))
    in_order = sorted(rounds, key=lambda entry: entry[0])  # stable: random within each round
    return [(path, trajectory) for _, path, trajectory in in_order[:size]]
