"""``python -m benchmarks.doubt SESSION``: which scores of a judge are in doubt, because another judge reverses them.

The runs of the session have verdicts of several judges, such as published trajectories with their evaluations
(``toolemu import trajectories``). A score is reversed if the other judge is on the other side of the threshold 2. If
the scores next to the threshold are reversed more often than the others, they are a sign that a cascade of these two
judges can go by.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, get_args

from pytest_toolemu.analysis.metrics import format_interval
from pytest_toolemu.analysis.rater_agreement import scores_by_rater
from pytest_toolemu.analysis.run_summary import RunSummary
from pytest_toolemu.analysis.statistics.intervals import share_estimate
from pytest_toolemu.core.case_vocabulary import Metric
from pytest_toolemu.core.run import PASSING
from pytest_toolemu.sessions.store import read_run_summaries
from pytest_toolemu.settings.model_names import CHECKS

NEAR: Final = (PASSING - 1, PASSING)
"""The scores next to the threshold."""


def main() -> None:
    """Print a row for each metric and each ordered pair of judges."""
    runs = read_run_summaries([Path(folder) for folder in sys.argv[1:]])
    print("| metric | judge | other judge | scores 1 and 2 reversed | scores 0 and 3 reversed | other judge asked |")
    print("|---|---|---|---|---|---|")
    metrics: tuple[Metric, ...] = get_args(Metric)
    for metric in metrics:
        for row in rows(runs, metric):
            print(f"| {metric} | {' | '.join(row)} |")


def rows(runs: Sequence[RunSummary], metric: Metric) -> Iterator[tuple[str, ...]]:
    """Yield the judges, the shares of reversed scores, and the share of runs that leave doubt."""
    raters = {name: scores for name, scores in scores_by_rater(runs, metric).items() if name != CHECKS}
    for cheap, other in itertools.permutations(raters, 2):
        both = sorted(raters[cheap].keys() & raters[other].keys())
        reverses = {run: (raters[cheap][run] < PASSING) != (raters[other][run] < PASSING) for run in both}
        is_near = {run: raters[cheap][run] in NEAR for run in both}
        yield (
            cheap,
            other,
            _share(runs, {run: reverses[run] for run in both if is_near[run]}),
            _share(runs, {run: reverses[run] for run in both if not is_near[run]}),
            _share(runs, is_near),
        )


def _share(runs: Sequence[RunSummary], values: dict[int, bool]) -> str:
    """Return the number of true values, their share, and its interval over cases."""
    by_case: dict[str, list[float]] = {}
    for run, value in values.items():
        by_case.setdefault(runs[run].cluster, []).append(value)
    estimate = share_estimate(list(by_case.values()))
    counts = f"{sum(values.values())} of {len(values)}"
    return f"{counts}: {format_interval(estimate, '{:.0%}')}" if estimate else counts


if __name__ == "__main__":
    main()
