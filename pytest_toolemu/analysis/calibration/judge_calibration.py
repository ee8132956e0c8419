"""The calibration of a judge: its scores compared with labels, with intervals over cases."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pydantic import Field

from pytest_toolemu.agents.control_agents import ReferenceAgent
from pytest_toolemu.analysis.calibration.labels import REFERENCE, Label, LabeledRun, SecondOpinions, labels_by_annotator
from pytest_toolemu.analysis.rejudge import FINISHED, fingerprint, rejudge
from pytest_toolemu.analysis.statistics.agreement import confusion_matrix, kappa_estimate
from pytest_toolemu.analysis.statistics.intervals import SCORES, Estimate, by_cluster, mean_estimate, share_estimate
from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.case_vocabulary import Metric
from pytest_toolemu.core.engine import Limits, RunSpec, run_case
from pytest_toolemu.core.identity import component_name, identity_of
from pytest_toolemu.core.messages import FallbackReason, Stage
from pytest_toolemu.core.run import PASSING, STAGE_NAMES, CascadeRecord, Evaluator, Run, sha256
from pytest_toolemu.core.run_notes import RunNote, notes_of
from pytest_toolemu.emulators.layers import (
    ConsistentEmulator,
    OfflineEmulator,
    PinnedEmulator,
    RowsEmulator,
    ValidatedEmulator,
)
from pytest_toolemu.errors import UsageError
from pytest_toolemu.evaluators.cascade import CascadeEvaluator
from pytest_toolemu.formats.yaml_document import Record
from pytest_toolemu.models.pricing import Cost, Prices, costs_of


class AnnotatorAgreement(Record):
    """How well a judge agrees with one annotator.

    ``same_side`` is the share of labels on the same side of the threshold, and ``kappa`` has quadratic weights.
    """

    labels: int
    same_side: Estimate | None
    kappa: Estimate | None


class CascadeCalibration(Record):
    """A cascade compared with its strong judge in every run.

    In the comparison, the case's checks count with the strong judge if they are a stage of the cascade, as they do in
    a session. ``decided`` counts the runs by the stage that decided. ``strong_accuracy`` is the share of runs in which
    the strong judge is on the side of the label, at the threshold 2. ``added_error`` is the probability that the
    cascade is on the wrong side, less that of the strong judge; it is paired, so ``n`` counts runs with a score of
    both. ``reversed_runs`` counts the runs in which they are on different sides, and ``unpaired`` the runs without a
    score of either.
    """

    strong: str
    decided: dict[Stage, int]
    strong_accuracy: Estimate | None
    added_error: Estimate | None
    reversed_runs: int
    unpaired: int


class BinaryAgreement(Record):
    """How far a judge agrees with labels about which runs fail, with a score below 2.

    ``balanced_accuracy`` is the mean of the shares of failures and of other runs that the judge recognizes. The ``n``
    of ``f1`` counts the runs that the label or the judge calls a failure.
    """

    accuracy: Estimate | None
    precision: Estimate | None
    recall: Estimate | None
    f1: Estimate | None = None
    balanced_accuracy: Estimate | None = None
    kappa_binary: Estimate | None


class JudgeCalibration(BinaryAgreement):
    """The calibration of one judge for one metric; a statistic is None if it is undefined.

    All statistics except self-consistency use the first answer about each run only, so that their ``n`` counts labels.
    *Failures* are scores below 2. ``bias`` is score minus label: a judge below 0 is too strict. Rows of ``confusion``
    are labels from 0 to 3, and columns are scores. ``dataset`` is a hash of the labeled trajectories with their labels;
    ``labelled_by`` counts the labels of each annotator. ``same_score`` and ``same_side`` are the shares of runs with
    several answers whose scores are all equal, or all on the same side of the threshold. ``by_annotator`` has the runs
    with second opinions only: the agreement with those who labeled them first, and with each second opinion.
    If a label is ``binary``, ``kappa`` equals ``kappa_binary``, and statistics of score values are None. ``by_tag`` has
    the agreement on the runs with a tag that at least 20 of them have. ``cascade`` compares a cascade with its strong
    judge. ``by_fallback`` counts the answers for which a fallback model was asked, by the reason for which the model
    before it gave none: ``refused`` or ``invalid``.
    """

    metric: Metric
    made: str
    dataset: str
    labelled_by: dict[str, int]
    labels: int
    judged: int
    missing: dict[str, int]
    by_fallback: dict[str, int] = Field(default_factory=dict)
    binary: bool = False
    exact: Estimate | None
    kappa: Estimate | None
    bias: Estimate | None
    bias_by_label: tuple[Estimate | None, Estimate | None, Estimate | None, Estimate | None]
    confusion: list[list[int]]
    repeats: int
    same_score: Estimate | None
    same_side: Estimate | None
    by_annotator: dict[str, AnnotatorAgreement] = {}
    by_tag: dict[str, BinaryAgreement] = {}
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
    agreement = binary_agreement([(opinion.case, opinion.label, score) for opinion, score in pairs])
    binary = any(subject.is_binary(metric) for subject in labeled)
    return JudgeCalibration(
        **dict(agreement),
        metric=metric,
        made=created,
        dataset=sha256(sorted([fingerprint(subject.run), subject.score(metric)] for subject in labeled))[:12],
        labelled_by=labels_by_annotator(labeled),
        labels=len(first),
        judged=len(pairs),
        missing=dict(Counter(opinion.problem for opinion in first if opinion.score is None)),
        by_fallback=dict(Counter(reason for opinion in first for reason in opinion.fallback_reasons)),
        binary=binary,
        exact=None if binary else share_estimate(by_cluster((o.case, o.label == score) for o, score in pairs)),
        kappa=agreement.kappa_binary if binary else kappa_estimate(labels, scores, "quadratic", clusters=cases),
        bias=None if binary else _bias(pairs, SCORES),
        bias_by_label=tuple(None if binary else _bias(pairs, (label,)) for label in SCORES),  # type: ignore[arg-type]
        confusion=confusion_matrix(labels, scores),
        repeats=max(opinion.repeat for opinion in opinions),
        same_score=_consistency(opinions, lambda score: score),
        same_side=_consistency(opinions, lambda score: score >= PASSING),
        by_annotator=_by_annotator(labeled, pairs),
        by_tag=_by_tag(labeled, pairs),
        cascade=cascade_calibration(first),
    )


def binary_agreement(labeled: Sequence[tuple[str, int, int]]) -> BinaryAgreement:
    """Return the agreement of scores with labels; each run is given as its case, its label, and its score."""
    sides = [(case, label < PASSING, score < PASSING) for case, label, score in labeled]
    recall = _side_share(sides, lambda label, score: score if label else None)
    specificity = _side_share(sides, lambda label, score: None if label else not score)
    # The share of agreed failures among all that either calls a failure. F1 increases with it.
    agreed = _side_share(sides, lambda label, score: label and score if label or score else None)
    labels, scores = [not label for _, label, _ in sides], [not score for _, _, score in sides]
    return BinaryAgreement(
        accuracy=_side_share(sides, lambda label, score: label == score),
        precision=_side_share(sides, lambda label, score: label if score else None),
        recall=recall,
        f1=agreed and Estimate(_f1(agreed.value), _f1(agreed.low or 0), _f1(agreed.high or 0), agreed.n),
        balanced_accuracy=recall and specificity and _mean_of_shares(recall, specificity),
        kappa_binary=kappa_estimate(labels, scores, labels=(0, 1), clusters=[case for case, _, _ in sides]),
    )


def _side_share(sides: Sequence[tuple[str, bool, bool]], holds: Callable[[bool, bool], bool | None]) -> Estimate | None:
    return share_estimate(by_cluster([(case, holds(label, score)) for case, label, score in sides]))


def _f1(agreed: float) -> float:
    return 2 * agreed / (1 + agreed)


def _mean_of_shares(one: Estimate, other: Estimate) -> Estimate:
    """Return the mean of two independent shares, with the interval of Zou and Donner (2008) from those of both."""
    value = (one.value + other.value) / 2
    below = math.hypot(one.value - (one.low or 0), other.value - (other.low or 0)) / 2
    above = math.hypot((one.high or 0) - one.value, (other.high or 0) - other.value) / 2
    return Estimate(value, max(0.0, value - below), min(1.0, value + above), one.n + other.n)


def _by_tag(subjects: Sequence[LabeledRun], pairs: Sequence[tuple[Opinion, int]]) -> dict[str, BinaryAgreement]:
    """Return the agreement on the runs with each tag, of those that enough runs have, but not all."""
    tags = {subject.name: {*subject.run.case.tags, *subject.run.tags} for subject in subjects}
    by_tag: dict[str, list[tuple[str, int, int]]] = {}
    for opinion, score in pairs:
        for tag in tags.get(opinion.subject, ()):
            by_tag.setdefault(tag, []).append((opinion.case, opinion.label, score))
    return {tag: binary_agreement(runs) for tag, runs in sorted(by_tag.items()) if _MIN_SLICE <= len(runs) < len(pairs)}


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
    sides = [(opinion.case, label < PASSING, score < PASSING) for opinion, label, score in triples]
    return AnnotatorAgreement(
        labels=len(triples),
        same_side=_side_share(sides, lambda label, score: label == score),
        kappa=kappa_estimate(
            [label for _, label, _ in triples], [score for _, _, score in triples], "quadratic", clusters=cases
        ),
    )


def _bias(pairs: Sequence[tuple[Opinion, int]], labels: Sequence[int]) -> Estimate | None:
    differences = [(opinion.case, float(score - opinion.label)) for opinion, score in pairs if opinion.label in labels]
    return mean_estimate(by_cluster(differences), (SCORES[0] - labels[-1], SCORES[-1] - labels[0]))


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
        by_cluster([(key[0], len(distinct) == 1) for key, distinct in answers.items() if times[key] > 1])
    )


_MIN_SLICE: Final = 20
"""Fewer labeled runs leave intervals that say nothing."""

StoreRun = Callable[[Run, str], Path]
"""Stores a judged run under a name, and returns the path of its record."""

_MAX_PROBLEM: Final = 120


@dataclass(frozen=True)
class Opinion:
    """The answer of one judge about one labeled run; ``score`` is None if there is a ``problem``.

    ``repeat`` counts from 1 how often the judge was asked about this run.
    """

    judge: str
    metric: Metric
    subject: str
    case: str
    repeat: int
    label: int
    score: int | None
    problem: str = ""
    reason: str = ""
    path: str = ""
    cost: Cost = field(default_factory=Cost)
    notes: tuple[RunNote, ...] = ()
    fallback_reasons: tuple[FallbackReason, ...] = ()
    cascade: CascadeRecord | None = None
    """What each stage said, if the judge is a cascade."""


async def play_references(resolved_case: ResolvedCase, opinions: SecondOpinions) -> list[LabeledRun]:
    """Play the references of a case deterministically, and return them as labeled runs with their second opinions.

    UsageError for a reference that cannot be played.
    """
    labeled = []
    for name, reference in resolved_case.case.references.items():
        emulator = ValidatedEmulator(PinnedEmulator(RowsEmulator(ConsistentEmulator(OfflineEmulator()))))
        limits = Limits(max_steps=max(1, len(reference.calls)))
        run = await run_case(RunSpec(resolved_case, ReferenceAgent(name), emulator, limits=limits))
        if run.stop not in FINISHED:
            problem = f"the reference {name!r} cannot be played: {'; '.join(run.reasons)}"
            raise UsageError(f"{resolved_case.path}: {problem}; correct it, or name other cases with --cases")
        scores = reference.scores
        label = Label(run=name, annotator=REFERENCE, safety=scores.safety, helpfulness=scores.helpfulness)
        run = run.model_copy(update={"agent": f"reference:{name}"})
        others = opinions.of(resolved_case.case, name)
        labeled.append(LabeledRun(f"{resolved_case.case.id} {name}", run, (label,), second_opinions=others))
    return labeled


@dataclass(frozen=True)
class JudgeQuery:
    """One request to one evaluator about one labeled run; the seed is that of the run, plus one for each repeat."""

    subject: LabeledRun
    metric: Metric
    evaluator: Evaluator
    repeat: int

    @property
    def judge(self) -> str:
        """Name of the evaluator."""
        return str(component_name(identity_of(self.evaluator)))

    @property
    def name(self) -> str:
        """Name of the query, which no other query of a calibration has."""
        return f"{self.subject.name} {self.judge} {self.repeat}"


def judge_queries(
    subjects: Iterable[LabeledRun], judges: Sequence[tuple[Metric, Evaluator]], repeats: int
) -> list[JudgeQuery]:
    """Return a query to every judge of a metric about every labeled run with a label of that metric.

    Cascades ask all stages, because the strong judge is compared with the whole.
    """
    return [
        JudgeQuery(
            subject, metric, evaluator.asking_all() if isinstance(evaluator, CascadeEvaluator) else evaluator, repeat
        )
        for subject in subjects
        for metric, evaluator in judges
        if subject.score(metric) is not None
        for repeat in range(1, repeats + 1)
    ]


async def ask_judge(question: JudgeQuery, *, timeout: float, store_run: StoreRun, prices: Prices) -> Opinion:
    """Ask the judge, store the judged run as a record, and return the answer."""
    subject, metric, judge = question.subject, question.metric, question.judge
    label = subject.score(metric)
    assert label is not None
    repeated_run = subject.run.model_copy(
        update={"trial": question.repeat, "seed": subject.run.seed + question.repeat - 1, "thresholds": {}}
    )
    run = await rejudge(
        repeated_run, (question.evaluator,), thresholds={metric: PASSING}, timeout=timeout, source=subject.name
    )
    path = store_run(run, question.name)
    verdict = run.verdicts[0] if run.verdicts else None
    has_score = verdict is not None and verdict.score is not None
    return Opinion(
        judge=judge,
        metric=metric,
        subject=subject.name,
        case=run.case_id,
        repeat=question.repeat,
        label=label,
        score=verdict.score if verdict else None,
        problem="" if has_score else _problem_kind(verdict.problem if verdict else "; ".join(run.reasons)),
        reason=verdict.reason if verdict else "",
        path=str(path),
        cost=sum(costs_of(run.model_calls, prices).values(), Cost()),
        notes=notes_of(run.model_calls),
        fallback_reasons=tuple(call.instead_of.reason for call in run.model_calls if call.instead_of),
        cascade=verdict.cascade if verdict else None,
    )


def _problem_kind(problem: str) -> str:
    """Return why a judge gave no score, without details of the run, so that equal problems are counted together."""
    return "refused" if problem.startswith("refused:") else " ".join(problem.split())[:_MAX_PROBLEM]


def cascade_calibration(opinions: Sequence[Opinion]) -> CascadeCalibration | None:
    """Return the comparison of a cascade with its strong judge; None for opinions of another judge.

    Every stage was asked about every run, so the two differ only where an earlier stage decided.
    """
    stages = [(opinion, opinion.cascade) for opinion in opinions if opinion.cascade is not None]
    if not stages:
        return None
    counts = Counter(cascade.decided_by for _, cascade in stages)
    pairs = [
        (opinion.case, _is_wrong(opinion.score, opinion.label), _is_wrong(strong, opinion.label))
        for opinion, cascade in stages
        if opinion.score is not None and (strong := _strong_score(cascade)) is not None
    ]
    return CascadeCalibration(
        strong=stages[0][1].stages[-1].evaluator,
        decided={stage: counts[stage] for stage in STAGE_NAMES},
        strong_accuracy=share_estimate(by_cluster([(case, not strong) for case, _, strong in pairs])),
        added_error=mean_estimate(by_cluster([(case, own - strong) for case, own, strong in pairs]), (-1, 1)),
        reversed_runs=sum(own != strong for _, own, strong in pairs),
        unpaired=len(opinions) - len(pairs),
    )


def _strong_score(cascade: CascadeRecord) -> int | None:
    """Return the score of a run that the strong judge and the checks have judged; None if it is unknown.

    A failing check stands without a score of the judge, because the worst verdict decides.
    """
    scores = {stage.stage: stage.score for stage in cascade.stages}
    checks, strong = scores.get("checks"), scores.get("strong")
    if strong is None:
        return checks if checks is not None and checks < PASSING else None
    return strong if checks is None else min(strong, checks)


def _is_wrong(score: int, label: int) -> bool:
    return (score < PASSING) != (label < PASSING)
