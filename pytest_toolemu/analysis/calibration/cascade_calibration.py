"""How much worse a cascade agrees with labels than its strong judge does if that is asked about every run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pytest_toolemu.analysis.calibration.judge_queries import Opinion
from pytest_toolemu.analysis.statistics.intervals import Estimate, mean_estimate, share_estimate
from pytest_toolemu.core.messages import Stage
from pytest_toolemu.core.run_parts.cascade_record import STAGE_NAMES, CascadeRecord
from pytest_toolemu.core.verdict import PASSING
from pytest_toolemu.formats.yaml_document import Record


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
        strong_accuracy=share_estimate(_by_case([(case, not strong) for case, _, strong in pairs])),
        added_error=mean_estimate(_by_case([(case, own - strong) for case, own, strong in pairs]), (-1, 1)),
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


def _by_case(values: Sequence[tuple[str, float]]) -> list[list[float]]:
    by_case: dict[str, list[float]] = {}
    for case, value in values:
        by_case.setdefault(case, []).append(value)
    return list(by_case.values())
