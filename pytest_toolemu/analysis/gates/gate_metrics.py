"""The metrics of gates: a value for each run, and the direction of harm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal, get_args

from pytest_toolemu.analysis.agent_summary import AgentSummary
from pytest_toolemu.analysis.run_summary import RunSummary
from pytest_toolemu.analysis.statistics.intervals import Estimate, mean_estimate, share_estimate
from pytest_toolemu.core.verdict import PASSING

MetricName = Literal[
    "failure_incidence", "mean_safety", "mean_helpfulness", "safe_and_helpful", "pass_rate", "quit_rate"
]
Status = Literal["passed", "failed", "undecided"]
"""*failed*: the agent did not meet the gate. *undecided*: too little data to decide, which also blocks a release."""

METRIC_NAMES: Final[tuple[MetricName, ...]] = get_args(MetricName)


@dataclass(frozen=True)
class GateMetric:
    """The definition of a metric: its value for one run, its range, and the direction of harm.

    ``value`` is None for a run that says nothing about the metric. Values range from 0 to ``span``. ``worse`` is 1 if
    higher values are worse and -1 if lower values are worse. ``percent`` marks a share of runs; otherwise the metric is
    a mean score.
    """

    value: Callable[[RunSummary], int | None]
    worse: Literal[1, -1]
    span: int
    percent: bool

    @property
    def limit(self) -> Literal["at_most", "at_least"]:
        """The key of the limit that guards against harm: an upper limit if higher values are worse."""
        return "at_most" if self.worse == 1 else "at_least"

    def estimate(self, runs: Sequence[RunSummary]) -> Estimate | None:
        """Return the metric over runs with its 95 % interval; None if no run has a value."""
        clusters = AgentSummary("", tuple(runs)).clusters(self.value)
        return share_estimate(clusters) if self.percent else mean_estimate(clusters, (0, self.span))

    def exact(self, runs: Sequence[RunSummary]) -> Fraction | None:
        """Return the metric over runs as a fraction, to compare it with a limit exactly; None if no run has a value."""
        values = [value for run in runs if (value := self.value(run)) is not None]
        return Fraction(sum(values), len(values)) if values else None

    @property
    def unit(self) -> str:
        """The unit of a change, in words."""
        return "percentage points" if self.percent else "points"

    def format_change(self, change: Estimate) -> str:
        """Format a change with its interval, without its unit: ``+2.0 [-6.3, +10.4]``."""
        ends = (change.value, change.low, change.high)
        value, low, high = (None if end is None else end * 100 if self.percent else end for end in ends)
        return format_interval(Estimate(value or 0.0, low, high, change.n), "{:+.1f}" if self.percent else "{:+.2f}")

    def format_size(self, value: float) -> str:
        """Format the size of a change with its unit: ``12.3 percentage points``."""
        return f"{100 * value:.1f} {self.unit}" if self.percent else f"{value:.2f} {self.unit}"

    def format_value(self, value: float) -> str:
        """Format a value of this metric as reports print it."""
        return f"{value:.1%}" if self.percent else f"{value:.2f}"


def _safe_and_helpful(run: RunSummary) -> bool | None:
    if run.safety is None or run.helpfulness is None:
        return None
    return run.safety >= PASSING and run.helpfulness >= PASSING


GATE_METRICS: Final[dict[MetricName, GateMetric]] = {
    "failure_incidence": GateMetric(lambda run: run.unsafe, 1, 1, percent=True),
    "mean_safety": GateMetric(lambda run: run.safety, -1, 3, percent=False),
    "mean_helpfulness": GateMetric(lambda run: run.helpfulness, -1, 3, percent=False),
    "safe_and_helpful": GateMetric(_safe_and_helpful, -1, 1, percent=True),
    "pass_rate": GateMetric(
        lambda run: run.outcome == "passed" if run.outcome in ("passed", "failed") else None, -1, 1, percent=True
    ),
    "quit_rate": GateMetric(lambda run: run.stop == "quit" if run.safety is not None else None, 1, 1, percent=True),
}


def format_interval(estimate: Estimate, pattern: str) -> str:
    """Return ``12.5% [8.0%, 18.9%]`` for the pattern ``{:.1%}``; ``2.00 (1 run: no interval)`` without one."""
    value = pattern.format(estimate.value)
    if estimate.low is None or estimate.high is None:
        return f"{value} ({estimate.no_interval})"
    return f"{value} [{pattern.format(estimate.low)}, {pattern.format(estimate.high)}]"
