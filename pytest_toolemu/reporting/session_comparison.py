"""Comparison of two sessions: changed verdicts, changes of metrics, and where transcripts first diverge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from pytest_toolemu.analysis.agent_summary import AgentSummary
from pytest_toolemu.analysis.gates.baseline import Baseline, Difference, baseline_mismatches
from pytest_toolemu.analysis.gates.baseline_comparison import pair_with_baseline
from pytest_toolemu.analysis.gates.gate_metrics import GATE_METRICS, MetricName
from pytest_toolemu.analysis.run_summary import RunSummary
from pytest_toolemu.analysis.statistics.intervals import Estimate
from pytest_toolemu.analysis.statistics.paired_tests import case_changes, mean_change, p_worse
from pytest_toolemu.core.run import Run, sha256
from pytest_toolemu.core.trajectory import Step
from pytest_toolemu.errors import UsageError

Change = Literal["worse", "better", "same", "undecided"]
"""*undecided*: one side has no verdict, so nothing can be said about the agent."""

COMPARED_METRICS: Final[tuple[MetricName, ...]] = (
    "failure_incidence",
    "mean_safety",
    "mean_helpfulness",
    "safe_and_helpful",
)


@dataclass(frozen=True)
class MetricChange:
    """The change of one metric over the cases that both sides judged, after minus before.

    ``worse``, ``better``, and ``lost`` count cases; ``p_worse`` is the one-sided p-value of the test that gates use.
    """

    metric: MetricName
    change: Estimate
    worse: int
    better: int
    lost: int
    p_worse: float


@dataclass(frozen=True)
class FirstDivergence:
    """Where two transcripts first differ: in a call, in the result of a call, or in the answer.

    ``step`` counts from 0 and is None for the answer. ``who`` differed first: the agent (in what it does), or the world
    (in what it returns).
    """

    who: Literal["agent", "world"]
    step: int | None
    before: str
    after: str


@dataclass(frozen=True)
class CaseChange:
    """One case and trial on both sides."""

    before: RunSummary
    after: RunSummary
    kind: Change

    @property
    def flipped(self) -> bool:
        """Whether the outcome changed."""
        return self.before.outcome != self.after.outcome


@dataclass(frozen=True)
class SessionComparison:
    """The comparison of agent ``before`` with agent ``after``; ``differences`` names everything else that differs.

    ``spending`` is the cost of each side by role, empty if no model was used.
    """

    before: str
    after: str
    differences: dict[Difference, str]
    spending: tuple[str, str]
    metric_changes: tuple[MetricChange, ...]
    changes: tuple[CaseChange, ...]

    def count(self, kind: Change) -> int:
        """Count the runs with this kind of change."""
        return sum(change.kind == kind for change in self.changes)


def compare_sessions(before: Sequence[RunSummary], after: Sequence[RunSummary]) -> list[SessionComparison]:
    """Compare agents of the same name, or the only agent of each side; UsageError if it is unclear which ones."""
    sides = [_by_agent(runs) for runs in (before, after)]
    names = [name for name in sides[0] if name in sides[1]]
    if names:
        return [_compare(name, name, sides[0][name], sides[1][name]) for name in names]
    if len(sides[0]) == len(sides[1]) == 1:
        ((first, runs),), ((second, others),) = sides[0].items(), sides[1].items()
        return [_compare(first, second, runs, others)]
    left, right = ", ".join(sides[0]) or "none", ", ".join(sides[1]) or "none"
    raise UsageError(
        f"no agent is in both sessions: {left} in the first, {right} in the second; compare sessions of one agent each"
    )


def first_divergence(before: Run, after: Run) -> FirstDivergence | None:
    """Return where two runs of a case first differ; None if they are equal."""
    for index, (one, other) in enumerate(zip(before.steps, after.steps, strict=False)):
        if _call(one) != _call(other):
            return FirstDivergence("agent", index, _call(one), _call(other))
        if one.observation.content != other.observation.content:
            return FirstDivergence("world", index, one.observation.text, other.observation.text)
    shorter = min(len(before.steps), len(after.steps))
    if len(before.steps) != len(after.steps):
        return FirstDivergence("agent", shorter, *(_next(run, shorter) for run in (before, after)))
    if before.answer != after.answer:
        return FirstDivergence("agent", None, before.answer, after.answer)
    return None


def divergence_keys(run: Run) -> tuple[str, ...]:
    """Return hashes of each call, each result, and the answer, in order; the page compares transcripts by them.

    The first position at which the keys of two runs differ is where ``first_divergence`` finds them to differ.
    """
    steps = [content for step in run.steps for content in (_call(step), step.observation.content)]
    return tuple(sha256(content)[:8] for content in (*steps, run.answer))


def _call(step: Step) -> str:
    return f"{step.call.name} {step.call.text}"


def _next(run: Run, index: int) -> str:
    """Return the call of a run at this index, or its answer if it has no more calls."""
    return _call(run.steps[index]) if index < len(run.steps) else f"answers: {run.answer}"


def _by_agent(runs: Sequence[RunSummary]) -> dict[str, list[RunSummary]]:
    by_agent: dict[str, list[RunSummary]] = {}
    for run in runs:
        by_agent.setdefault(run.agent, []).append(run)
    return by_agent


def _compare(first: str, second: str, before: list[RunSummary], after: list[RunSummary]) -> SessionComparison:
    baseline = Baseline.of(before, "").agents[first]
    metric_changes = []
    for name in COMPARED_METRICS:
        metric = GATE_METRICS[name]
        pairs, lost = pair_with_baseline(metric, baseline, after)
        if change := mean_change(pairs, metric.span):
            harms = [metric.worse * value for value in case_changes(pairs)]
            worse, better = sum(harm > 0 for harm in harms), sum(harm < 0 for harm in harms)
            p_value = p_worse(pairs, metric.worse, metric.span)
            metric_changes.append(MetricChange(name, change, worse, better, lost, p_value))
    runs_before = {(run.case, run.trial): run for run in before}
    both = [(runs_before[key], run) for run in after if (key := (run.case, run.trial)) in runs_before]
    changes = tuple(CaseChange(old, new, _kind(old, new)) for old, new in both)
    spending = (AgentSummary(first, tuple(before)).spending, AgentSummary(second, tuple(after)).spending)
    return SessionComparison(
        first, second, baseline_mismatches(baseline, after), spending, tuple(metric_changes), changes
    )


def _kind(before: RunSummary, after: RunSummary) -> Change:
    """Compare two runs by safety, then by helpfulness."""
    if None in (before.safety, after.safety):
        return "undecided"
    old, new = ((run.safety or 0, run.helpfulness or 0) for run in (before, after))
    return "same" if old == new else "better" if new > old else "worse"
