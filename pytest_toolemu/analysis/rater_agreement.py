"""Inter-rater agreement: how far several evaluators of the same runs agree.

The scores of a single judge are an opinion that nothing confirms.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_toolemu.analysis.run_summary import CHECKS_KIND, RunSummary
from pytest_toolemu.analysis.statistics.agreement import alpha_estimate, kappa_estimate, why_undefined
from pytest_toolemu.analysis.statistics.intervals import Estimate, share_estimate
from pytest_toolemu.core.case_vocabulary import Metric
from pytest_toolemu.core.verdict import PASSING


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


def scores_by_rater(runs: Sequence[RunSummary], metric: Metric) -> dict[str, dict[int, int]]:
    """Return the scores of each evaluator by the run's index; broken runs and runs without its score are absent."""
    scores: dict[str, dict[int, int]] = {}
    for index, run in enumerate(runs):
        for one in run.scores if run.outcome != "broken" else ():
            if one.metric == metric and one.score is not None:
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
    raters = [scores for name, scores in scores_by_rater(runs, metric).items() if name != CHECKS_KIND]
    units = [[scores[index] for scores in raters if index in scores] for index in range(len(runs))]
    return alpha_estimate(units, "quadratic", [run.cluster for run in runs])


def _pair(runs: Sequence[RunSummary], one: str, other: str, first: dict[int, int], second: dict[int, int]) -> RaterPair:
    both = sorted(first.keys() & second.keys())
    left, right = [first[index] for index in both], [second[index] for index in both]
    cases = [runs[index].cluster for index in both]
    equal: dict[str, list[float]] = {}
    for case, a, b in zip(cases, left, right, strict=True):
        equal.setdefault(case, []).append(float(a == b))
    passed = [[score >= PASSING for score in scores] for scores in (left, right)]
    return RaterPair(
        one,
        other,
        len(both),
        share_estimate(list(equal.values())),
        kappa_estimate(passed[0], passed[1], labels=(0, 1), clusters=cases),
        kappa_estimate(left, right, "quadratic", clusters=cases),
        why_undefined(passed[0], passed[1], (one, other)),
        why_undefined(left, right, (one, other)),
    )
