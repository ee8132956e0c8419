"""Two sessions case by case: what flipped, by how much the figures moved, and where two transcripts part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from pytest_toolemu.analysis.gates.baseline import Baseline, Difference, baseline_mismatches
from pytest_toolemu.analysis.gates.baseline_comparison import pair_with_baseline
from pytest_toolemu.analysis.gates.gate_metrics import GATE_METRICS, MetricName
from pytest_toolemu.analysis.run_row import RunRow
from pytest_toolemu.analysis.statistics.intervals import Estimate
from pytest_toolemu.analysis.statistics.paired_tests import case_changes, mean_change, p_worse
from pytest_toolemu.analysis.summary import Summary
from pytest_toolemu.core.run import Run
from pytest_toolemu.core.trajectory import Step
from pytest_toolemu.errors import UsageError

Change = Literal["worse", "better", "same", "undecided"]
"""*undecided*: no verdict on one side; nothing is said about the agent."""

COMPARED_METRICS: Final[tuple[MetricName, ...]] = (
    "failure_incidence",
    "mean_safety",
    "mean_helpfulness",
    "safe_and_helpful",
)


@dataclass(frozen=True)
class MetricChange:
    """One figure's change over the cases that both sides judged, after minus before, and how surely it got worse.

    ``p_worse`` is the one-sided p-value of the test that gates use.
    """

    metric: MetricName
    change: Estimate
    worse: int
    better: int
    lost: int
    p_worse: float


@dataclass(frozen=True)
class FirstDivergence:
    """Where two transcripts first differ: a call, what one call returned, or the answer.

    ``step`` counts from 0 and is None for the answer; ``who`` is what differed first, the agent or the world.
    """

    who: Literal["agent", "world"]
    step: int | None
    before: str
    after: str


@dataclass(frozen=True)
class CaseChange:
    """One case and trial on both sides."""

    before: RunRow
    after: RunRow
    kind: Change

    @property
    def flipped(self) -> bool:
        """Whether safety or helpfulness crossed its threshold, or a verdict came or went."""
        return self.before.outcome != self.after.outcome


@dataclass(frozen=True)
class SessionComparison:
    """Agent ``before`` against agent ``after``; ``differing`` says what else was not the same, by name.

    ``spending`` is what each side cost, by role; empty where no model was asked.
    """

    before: str
    after: str
    differing: dict[Difference, str]
    spending: tuple[str, str]
    moved: tuple[MetricChange, ...]
    changes: tuple[CaseChange, ...]

    def count(self, kind: Change) -> int:
        """Runs that changed in this way."""
        return sum(change.kind == kind for change in self.changes)


def compare_sessions(before: Sequence[RunRow], after: Sequence[RunRow]) -> list[SessionComparison]:
    """Agents of the same name, or the only one of each side; UsageError where it is not clear which are meant."""
    sides = [_by_agent(rows) for rows in (before, after)]
    names = [name for name in sides[0] if name in sides[1]]
    if names:
        return [_compare(name, name, sides[0][name], sides[1][name]) for name in names]
    if len(sides[0]) == len(sides[1]) == 1:
        ((first, rows),), ((second, others),) = sides[0].items(), sides[1].items()
        return [_compare(first, second, rows, others)]
    left, right = ", ".join(sides[0]) or "none", ", ".join(sides[1]) or "none"
    raise UsageError(
        f"no agent is in both: {left} in the first, {right} in the second; compare sessions of one agent each"
    )


def first_divergence(before: Run, after: Run) -> FirstDivergence | None:
    """Where two runs of a case first differ; None where they never do."""
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


def _call(step: Step) -> str:
    return f"{step.call.name} {step.call.text}"


def _next(run: Run, index: int) -> str:
    """What a run does where the other's calls have ended, or the end of its own."""
    return _call(run.steps[index]) if index < len(run.steps) else f"answers: {run.answer}"


def _by_agent(rows: Sequence[RunRow]) -> dict[str, list[RunRow]]:
    found: dict[str, list[RunRow]] = {}
    for row in rows:
        found.setdefault(row.agent, []).append(row)
    return found


def _compare(first: str, second: str, before: list[RunRow], after: list[RunRow]) -> SessionComparison:
    baseline = Baseline.of(before, "").agents[first]
    moved = []
    for name in COMPARED_METRICS:
        measure = GATE_METRICS[name]
        pairs, lost = pair_with_baseline(measure, baseline, after)
        if change := mean_change(pairs, measure.span):
            worsening = [measure.worse * value for value in case_changes(pairs)]
            worse, better = sum(value > 0 for value in worsening), sum(value < 0 for value in worsening)
            moved.append(MetricChange(name, change, worse, better, lost, p_worse(pairs, measure.worse, measure.span)))
    known = {(row.case, row.trial): row for row in before}
    both = [(known[key], row) for row in after if (key := (row.case, row.trial)) in known]
    changes = tuple(CaseChange(old, new, _kind(old, new)) for old, new in both)
    spending = (Summary(first, tuple(before)).spending, Summary(second, tuple(after)).spending)
    return SessionComparison(first, second, baseline_mismatches(baseline, after), spending, tuple(moved), changes)


def _kind(before: RunRow, after: RunRow) -> Change:
    """By safety first, then by helpfulness."""
    if None in (before.safety, after.safety):
        return "undecided"
    old, new = ((row.safety or 0, row.helpfulness or 0) for row in (before, after))
    return "same" if old == new else "better" if new > old else "worse"
