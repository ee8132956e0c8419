"""The calibration of a judge: its scores compared with labels, with intervals over cases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from pydantic import Field

from pytest_toolemu.analysis.calibration.cascade_calibration import CascadeCalibration, cascade_calibration
from pytest_toolemu.analysis.calibration.judge_queries import Opinion
from pytest_toolemu.analysis.calibration.labeled_runs import LabeledRun, labels_by_annotator
from pytest_toolemu.analysis.rejudge import fingerprint
from pytest_toolemu.analysis.statistics.agreement import confusion_matrix, kappa_estimate
from pytest_toolemu.analysis.statistics.description import SCORES
from pytest_toolemu.analysis.statistics.intervals import Estimate, mean_estimate, share_estimate
from pytest_toolemu.core.case_vocabulary import Metric
from pytest_toolemu.core.run import sha256
from pytest_toolemu.core.verdict import PASSING
from pytest_toolemu.formats.yaml_document import Record


class AnnotatorAgreement(Record):
    """How well a judge agrees with one annotator.

    ``same_side`` is the share of labels on the same side of the threshold, and ``kappa`` has quadratic weights.
    """

    labels: int
    same_side: Estimate | None
    kappa: Estimate | None


class JudgeCalibration(Record):
    """The calibration of one judge for one metric; a statistic is None if it is undefined.

    All statistics except self-consistency use the first answer about each run only, so that their ``n`` counts labels.
    *Failures* are scores below 2. ``bias`` is score minus label: a judge below 0 is too strict. Rows of ``confusion``
    are labels from 0 to 3, and columns are scores. ``dataset`` is a hash of the labeled trajectories with their labels;
    ``labelled_by`` counts the labels of each annotator. ``same_score`` and ``same_side`` are the shares of runs with
    several answers whose scores are all equal, or all on the same side of the threshold. ``by_annotator`` has the runs
    with second opinions only: the agreement with those who labeled them first, and with each second opinion.
    ``cascade`` compares a cascade with its strong judge. ``by_fallback`` counts the answers for which a fallback model
    was asked, by the reason for which the model before it gave none: ``refused`` or ``invalid``.
    """

    metric: Metric
    made: str
    dataset: str
    labelled_by: dict[str, int]
    labels: int
    judged: int
    missing: dict[str, int]
    by_fallback: dict[str, int] = Field(default_factory=dict)
    accuracy: Estimate | None
    precision: Estimate | None
    recall: Estimate | None
    exact: Estimate | None
    kappa: Estimate | None
    kappa_binary: Estimate | None
    bias: Estimate | None
    bias_by_label: tuple[Estimate | None, Estimate | None, Estimate | None, Estimate | None]
    confusion: list[list[int]]
    repeats: int
    same_score: Estimate | None
    same_side: Estimate | None
    by_annotator: dict[str, AnnotatorAgreement] = {}
    cascade: CascadeCalibration | None = None


def calibrate_judges(
    subjects: Sequence[LabeledRun], opinions: Sequence[Opinion], created: str
) -> dict[str, JudgeCalibration]:
    """Return the calibration of every judge that was asked about these runs; ``created`` is the time in ISO 8601."""
    by_judge: dict[str, list[Opinion]] = {}
    for opinion in opinions:
        by_judge.setdefault(opinion.judge, []).append(opinion)
    return {judge: _calibration(subjects, answers, created) for judge, answers in by_judge.items()}


def _calibration(subjects: Sequence[LabeledRun], opinions: Sequence[Opinion], created: str) -> JudgeCalibration:
    metric = opinions[0].metric
    labeled = [subject for subject in subjects if subject.score(metric) is not None]
    first = [opinion for opinion in opinions if opinion.repeat == 1]
    pairs = [(opinion, opinion.score) for opinion in first if opinion.score is not None]
    labels, scores = [opinion.label for opinion, _ in pairs], [score for _, score in pairs]
    cases = [opinion.case for opinion, _ in pairs]
    return JudgeCalibration(
        metric=metric,
        made=created,
        dataset=sha256(sorted([fingerprint(subject.run), subject.score(metric)] for subject in labeled))[:12],
        labelled_by=labels_by_annotator(labeled),
        labels=len(first),
        judged=len(pairs),
        missing=dict(Counter(opinion.problem for opinion in first if opinion.score is None)),
        by_fallback=dict(Counter(reason for opinion in first for reason in opinion.fallback_reasons)),
        accuracy=_share(pairs, lambda label, score: (label < PASSING) == (score < PASSING)),
        precision=_share(pairs, lambda label, score: label < PASSING if score < PASSING else None),
        recall=_share(pairs, lambda label, score: score < PASSING if label < PASSING else None),
        exact=_share(pairs, lambda label, score: label == score),
        kappa=kappa_estimate(labels, scores, "quadratic", clusters=cases),
        kappa_binary=kappa_estimate(
            [label >= PASSING for label in labels],
            [score >= PASSING for score in scores],
            labels=(0, 1),
            clusters=cases,
        ),
        bias=_bias(pairs, SCORES),
        bias_by_label=tuple(_bias(pairs, (label,)) for label in SCORES),  # type: ignore[arg-type]
        confusion=confusion_matrix(labels, scores),
        repeats=max(opinion.repeat for opinion in opinions),
        same_score=_consistency(opinions, lambda score: score),
        same_side=_consistency(opinions, lambda score: score >= PASSING),
        by_annotator=_by_annotator(labeled, pairs),
        cascade=cascade_calibration(first),
    )


def _by_annotator(
    subjects: Sequence[LabeledRun], pairs: Sequence[tuple[Opinion, int]]
) -> dict[str, AnnotatorAgreement]:
    """Return the agreement with each annotator of the runs that have second opinions."""
    twice_labeled = {subject.name: subject for subject in subjects if subject.second_opinions}
    labels: dict[str, list[tuple[Opinion, int, int]]] = {}
    for opinion, score in pairs:
        if subject := twice_labeled.get(opinion.subject):
            for label in (*subject.labels, *subject.second_opinions):
                if (labeled := label.score(opinion.metric)) is not None:
                    labels.setdefault(label.annotator, []).append((opinion, labeled, score))
    return {annotator: _agreement(triples) for annotator, triples in labels.items()}


def _agreement(triples: Sequence[tuple[Opinion, int, int]]) -> AnnotatorAgreement:
    cases = [opinion.case for opinion, _, _ in triples]
    sides = [
        (case, (label >= PASSING) == (score >= PASSING)) for case, (_, label, score) in zip(cases, triples, strict=True)
    ]
    return AnnotatorAgreement(
        labels=len(triples),
        same_side=share_estimate(_grouped(sides)),
        kappa=kappa_estimate(
            [label for _, label, _ in triples], [score for _, _, score in triples], "quadratic", clusters=cases
        ),
    )


def _grouped(pairs: Sequence[tuple[str, float | None]]) -> list[list[float]]:
    """Return the defined values of each case."""
    by_case: dict[str, list[float]] = {}
    for case, value in pairs:
        if value is not None:
            by_case.setdefault(case, []).append(value)
    return list(by_case.values())


def _share(pairs: Sequence[tuple[Opinion, int]], holds: Callable[[int, int], bool | None]) -> Estimate | None:
    return share_estimate(_grouped([(opinion.case, holds(opinion.label, score)) for opinion, score in pairs]))


def _bias(pairs: Sequence[tuple[Opinion, int]], labels: Sequence[int]) -> Estimate | None:
    differences = [(opinion.case, float(score - opinion.label)) for opinion, score in pairs if opinion.label in labels]
    return mean_estimate(_grouped(differences), (SCORES[0] - labels[-1], SCORES[-1] - labels[0]))


def _consistency(opinions: Sequence[Opinion], side: Callable[[int], object]) -> Estimate | None:
    """Estimate the share of repeatedly judged runs with equal answers; None if every run was judged once."""
    answers: dict[tuple[str, str], set[object]] = {}
    times: Counter[tuple[str, str]] = Counter()
    for opinion in opinions:
        if opinion.score is not None:
            key = (opinion.case, opinion.subject)
            answers.setdefault(key, set()).add(side(opinion.score))
            times[key] += 1
    return share_estimate(
        _grouped([(key[0], len(distinct) == 1) for key, distinct in answers.items() if times[key] > 1])
    )
