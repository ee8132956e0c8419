"""Inter-rater agreement: how far several evaluators of the same runs agree.

The scores of a single judge are an opinion that nothing confirms.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pytest_toolemu.analysis.calibration.labels import LabeledRun
from pytest_toolemu.analysis.run_summary import RunSummary
from pytest_toolemu.analysis.statistics.agreement import alpha_estimate, kappa_estimate, why_undefined
from pytest_toolemu.analysis.statistics.intervals import Estimate, by_cluster, share_estimate
from pytest_toolemu.core.case_vocabulary import METRICS, Metric
from pytest_toolemu.core.run import PASSING
from pytest_toolemu.formats.text import counted
from pytest_toolemu.settings.model_names import CHECKS


@dataclass(frozen=True)
class RaterPair:
    """The agreement of two evaluators over the runs that both scored.

    ``binary`` is the kappa of passing (a score of at least 2) or failing. ``quadratic`` is the kappa of the scores with
    quadratic weights, which penalize large differences more. If a kappa is None, ``why_no_binary`` or
    ``why_no_quadratic`` gives the reason.
    """

    first: str
    second: str
    n: int
    exact: Estimate | None
    binary: Estimate | None
    quadratic: Estimate | None
    why_no_binary: str = ""
    why_no_quadratic: str = ""
    warning: str = ""


def _evidence_warning(count: int) -> str:
    """Return a warning about runs in which raters saw different evidence; empty if there are none."""
    runs = f"{counted(count, 'run')} with discarded text"
    return f"different evidence in {runs}: only the imported evaluator read it unmarked" if count else ""


def scores_by_rater(runs: Sequence[RunSummary], metric: Metric) -> dict[str, dict[int, int]]:
    """Return the scores of each evaluator by the run's index; broken runs and runs without its score are absent."""
    scores: dict[str, dict[int, int]] = {}
    for index, run in enumerate(runs):
        for one in run.scores if run.outcome != "broken" else ():
            if one.metric == metric and one.score is not None and not one.repeats_checks:
                scores.setdefault(one.evaluator, {})[index] = one.score
    return scores


def rater_pairs(runs: Sequence[RunSummary], metric: Metric) -> list[RaterPair]:
    """Return the agreement of every two evaluators of a metric, in the order in which they first occur."""
    raters = scores_by_rater(runs, metric)
    return [_pair(runs, one, other, raters[one], raters[other]) for one, other in itertools.combinations(raters, 2)]


def judge_alpha(runs: Sequence[RunSummary], metric: Metric) -> Estimate | None:
    """Return Krippendorff's alpha over all judges of a metric; None if no run was scored by two.

    A case's checks are fixed rules that apply in every session. They are excluded, because alpha describes the judges.
    """
    raters = [scores for name, scores in scores_by_rater(runs, metric).items() if name != CHECKS]
    units = [[scores[index] for scores in raters if index in scores] for index in range(len(runs))]
    return alpha_estimate(units, "quadratic", [run.cluster for run in runs])


def _pair(runs: Sequence[RunSummary], one: str, other: str, first: dict[int, int], second: dict[int, int]) -> RaterPair:
    both = sorted(first.keys() & second.keys())
    left, right = [first[index] for index in both], [second[index] for index in both]
    cases = [runs[index].cluster for index in both]
    equal = by_cluster([(case, float(a == b)) for case, a, b in zip(cases, left, right, strict=True)])
    passed = [[score >= PASSING for score in scores] for scores in (left, right)]
    return RaterPair(
        one,
        other,
        len(both),
        share_estimate(equal),
        kappa_estimate(passed[0], passed[1], labels=(0, 1), clusters=cases),
        kappa_estimate(left, right, "quadratic", clusters=cases),
        why_undefined(passed[0], passed[1], (one, other)),
        why_undefined(left, right, (one, other)),
        _evidence_warning(
            sum(_is_imported(run, one) != _is_imported(run, other) for run in map(runs.__getitem__, both) if run.claims)
        ),
    )


def _is_imported(run: RunSummary, evaluator: str) -> bool:
    return any(judge.label.startswith(f"imported {evaluator} ") for judge in run.judges)


_EVERYBODY: Final = ("everybody", "everybody")
"""The sides of pairs of more than two people: each pair counts both ways, so no order of annotators matters."""


@dataclass(frozen=True)
class AgreementLine:
    """The kappa over all pairs of labels that two kinds of raters gave to the same run; None if it is undefined."""

    name: str
    kappa: Estimate | None
    why_undefined: str = ""
    warning: str = ""


Pairs = list[tuple[str, int, int]]
"""The case, and two labels of one run."""

Sides = tuple[str, str]
"""Who gave the first labels of pairs, and who the second."""


def label_agreements(items: Sequence[LabeledRun]) -> Iterator[AgreementLine]:
    """Yield the agreement of each judge with people, and of people with each other."""
    for metric in METRICS:
        binary = any(item.is_binary(metric) for item in items)
        for judge in dict.fromkeys(v.evaluator for item in items for v in item.verdicts if v.metric == metric):
            lines = _kappas(
                f"{metric}: {judge} and people", _with_judge(items, judge, metric), (judge, "people"), binary=binary
            )
            imported = (
                any(part.get("kind") == "imported" and part.get("name") == judge for part in run.identity.evaluators)
                for item in items
                for run in (item.run, *item.earlier)
                if run.claims and item.labels
            )
            warning = _evidence_warning(sum(imported))
            yield from (replace(line, warning=warning) for line in lines)
        yield from _kappas(f"{metric}: among people", _among(items, metric), _people(items), binary=binary)
    yield _agreement("critical issues: among people", _among(items, None), (0, 1), _people(items))


def _people(items: Sequence[LabeledRun]) -> Sides:
    """Return the two annotators by name: two have Cohen's kappa. More have Fleiss's, over all pairs of labels."""
    names = sorted({label.annotator for item in items for label in item.labels})
    return (names[0], names[1]) if len(names) == 2 else _EVERYBODY


def _with_judge(items: Sequence[LabeledRun], judge: str, metric: Metric) -> Pairs:
    return [
        (item.run.case_id, verdict.score, score)
        for item in items
        for verdict in item.verdicts
        if (verdict.evaluator, verdict.metric) == (judge, metric) and verdict.score is not None
        for label in item.labels
        if (score := label.score(metric)) is not None
    ]


def _among(items: Sequence[LabeledRun], metric: Metric | None) -> Pairs:
    """Return the labels of every two people for one run, in the order of their names.

    Without a metric, the labels are those of critical issues.
    """
    pairs: Pairs = []
    for item in items:
        labels = sorted(item.labels, key=lambda label: label.annotator)
        values = [label.critical_issue if metric is None else label.score(metric) for label in labels]
        pairs += [
            (item.run.case_id, int(one), int(other))
            for one, other in itertools.combinations(values, 2)
            if one is not None and other is not None
        ]
    return pairs


def _kappas(name: str, pairs: Pairs, sides: Sides, *, binary: bool) -> Iterator[AgreementLine]:
    passing = [(case, int(one >= PASSING), int(other >= PASSING)) for case, one, other in pairs]
    yield _agreement(f"{name}, failure or not", passing, (0, 1), sides)
    if not binary:
        yield _agreement(f"{name}, quadratic", pairs, (0, 1, 2, 3), sides)


def _agreement(name: str, pairs: Pairs, labels: tuple[int, ...], sides: Sides) -> AgreementLine:
    swapped = [(case, other, one) for case, one, other in pairs]
    # The kappa of two is the same either way, but the draws of its interval are not.
    chosen = [*pairs, *swapped] if sides == _EVERYBODY else min(pairs, swapped, key=sorted)
    cases = [case for case, _, _ in chosen]
    first, second = [one for _, one, _ in chosen], [other for _, _, other in chosen]
    kappa = kappa_estimate(first, second, "quadratic", labels, clusters=cases)
    why = why_undefined(first, second, sides if chosen is not swapped else (sides[1], sides[0]))
    return AgreementLine(name, kappa and replace(kappa, n=len(pairs)), why)
