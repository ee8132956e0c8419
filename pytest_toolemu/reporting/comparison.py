"""Comparison of two sessions: changed verdicts, and changes of metrics."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from pytest_toolemu.analysis.gates.baseline import Pairs, baseline_mismatches, pair_with_baseline
from pytest_toolemu.analysis.metrics import (
    ASKING_LABEL,
    GATE_METRICS,
    AgentSummary,
    GateMetric,
    MetricName,
    asked_rightly,
    asking_values,
    in_one_line,
    metrics_of_judges,
    summarize_agents,
    user_values,
)
from pytest_toolemu.analysis.run_summary import RunSummary
from pytest_toolemu.analysis.statistics.hypothesis_tests import case_changes, mean_change, p_worse
from pytest_toolemu.analysis.statistics.intervals import Estimate
from pytest_toolemu.core.run import Run, sha256
from pytest_toolemu.core.run_notes import reported_model_changes, reported_names
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.text import truncated, visible

Change = Literal["worse", "better", "same", "undecided"]
"""*undecided*: one side has no verdict, so nothing can be said about the agent."""

COMPARED_METRICS: Final[tuple[MetricName, ...]] = (
    "failure_incidence",
    "mean_safety",
    "mean_helpfulness",
    "safe_and_helpful",
)

CHANGES: Final[tuple[Change, ...]] = ("worse", "undecided", "better", "same")
"""Kinds of changes, the most important one first."""

_LEVEL: Final = 0.05
# The share of pairs of case and twin in which the agent asked in the case only.
_ASKING: Final = GateMetric(ASKING_LABEL, lambda _: None, -1, 1, percent=True)  # only pairs of runs have a value


@dataclass(frozen=True)
class MetricChange:
    """The change of one metric over the cases that both sides judged, after minus before.

    ``worse``, ``better``, and ``lost`` count cases; ``p_worse`` is the one-sided p-value of the test that gates use.
    """

    metric: str
    definition: GateMetric
    change: Estimate
    worse: int
    better: int
    lost: int
    p_worse: float


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

    ``spending`` is the cost of each side by role, empty if no model was used. ``asking`` says how often the agent asked
    in conversations, and ``user`` how well the user of each side played its part; both are empty without conversations.
    ``combination`` says how several judges are combined; empty if no run has several.
    """

    before: str
    after: str
    differences: dict[str, str]
    spending: tuple[str, str]
    asking: tuple[str, str]
    user: tuple[str, str]
    combination: tuple[str, str]
    metric_changes: tuple[MetricChange, ...]
    changes: tuple[CaseChange, ...]

    def count(self, kind: Change) -> int:
        """Count the runs with this kind of change."""
        return sum(change.kind == kind for change in self.changes)

    @property
    def tendency(self) -> Change:
        """Worse or better if the failure incidence changed beyond chance, by the test that gates use; else same."""
        failures = next((change for change in self.metric_changes if change.metric == "failure_incidence"), None)
        if failures is None or None in (failures.change.low, failures.change.high):
            return "same"
        if failures.p_worse < _LEVEL:
            return "worse"
        return "better" if (failures.change.high or 0.0) < 0 else "same"


def compare_sessions(before: Sequence[RunSummary], after: Sequence[RunSummary]) -> list[SessionComparison]:
    """Compare agents of the same name, or the only agent of each side; UsageError if it is unclear which ones.

    An agent with conversations has a second name for them, so the only agent of each side is that of a number of turns.
    """
    sides = [{one.agent: one.runs for one in summarize_agents(runs)} for runs in (before, after)]
    names = [name for name in sides[0] if name in sides[1]]
    if names:
        return [_compare(name, name, sides[0][name], sides[1][name]) for name in names]
    by_turns = [{runs[0].turns: name for name, runs in side.items()} for side in sides]
    if all(len(only) == len(side) for only, side in zip(by_turns, sides, strict=True)):
        pairs = [(name, by_turns[1][turns]) for turns, name in by_turns[0].items() if turns in by_turns[1]]
        if pairs:
            return [_compare(first, second, sides[0][first], sides[1][second]) for first, second in pairs]
    left, right = ", ".join(sides[0]) or "none", ", ".join(sides[1]) or "none"
    raise UsageError(
        f"no agent is in both sessions: {left} in the first, {right} in the second; compare sessions with one agent "
        "each"
    )


def compare_agents(before: Sequence[RunSummary], after: Sequence[RunSummary]) -> SessionComparison:
    """Compare the runs of one agent with those of one agent, which may be another; UsageError without runs."""
    if not (before and after):
        raise UsageError("one side has no runs to compare; choose sessions and agents with runs")
    return _compare(before[0].agent, after[0].agent, before, after)


def changes_by_importance(comparisons: Sequence[SessionComparison]) -> list[CaseChange]:
    """Return every run that is on both sides, the ones that got worse first."""
    changes = [change for comparison in comparisons for change in comparison.changes]
    return sorted(changes, key=lambda change: (CHANGES.index(change.kind), change.after.case, change.after.trial))


def _compare(first: str, second: str, before: Sequence[RunSummary], after: Sequence[RunSummary]) -> SessionComparison:
    changes_of_metrics = [
        _metric_change(name, metric, *pair_with_baseline(metric, before, after))
        for name in COMPARED_METRICS
        for metric in [GATE_METRICS[name]]
    ]
    sides = (AgentSummary(first, tuple(before)), AgentSummary(second, tuple(after)))
    changes_of_metrics += [
        _metric_change(name, metric, *pair_with_baseline(metric, before, after))
        for name, metric in metrics_of_judges(after).items()
        if any(side.combination for side in sides)
    ]
    changes_of_metrics.append(_metric_change("asks_only_when_needed", _ASKING, *_asking_pairs(before, after)))
    differences: dict[str, str] = dict(baseline_mismatches(before, after).items())
    # Other names of a model may stand for another snapshot of it.
    names = [reported_names(run.case_notes for run in runs) for runs in (before, after)]
    if changes := reported_model_changes(*names):
        differences["reported models"] = changes
    runs_before = {(run.case, run.trial): run for run in before}
    both = [(runs_before[key], run) for run in after if (key := (run.case, run.trial)) in runs_before]
    return SessionComparison(
        before=first,
        after=second,
        differences=differences,
        spending=(sides[0].spending, sides[1].spending),
        asking=(in_one_line(asking_values(before)), in_one_line(asking_values(after))),
        user=(in_one_line(user_values(before)), in_one_line(user_values(after))),
        combination=(sides[0].combination, sides[1].combination),
        metric_changes=tuple(change for change in changes_of_metrics if change is not None),
        changes=tuple(CaseChange(old, new, _kind(old, new)) for old, new in both),
    )


def _metric_change(name: str, metric: GateMetric, pairs: Pairs, lost: int) -> MetricChange | None:
    """Return the change of a metric; None if no case has a value on both sides."""
    change = mean_change(pairs, metric.span)
    if change is None:
        return None
    harms = [metric.worse * value for value in case_changes(pairs)]
    worse, better = sum(harm > 0 for harm in harms), sum(harm < 0 for harm in harms)
    return MetricChange(name, metric, change, worse, better, lost, p_worse(pairs, metric.worse, metric.span))


def _asking_pairs(before: Sequence[RunSummary], after: Sequence[RunSummary]) -> tuple[Pairs, int]:
    """Return for each case with a twin whether the agent asked rightly, and the number of cases with one side only."""
    old, new = asked_rightly(before), asked_rightly(after)
    run_twice = {run.case for run in before} & {run.case for run in after}
    lost = run_twice & (old.keys() ^ new.keys())
    return [(old[case], new[case]) for case in new if case in old], len(lost)


def _kind(before: RunSummary, after: RunSummary) -> Change:
    """Compare two runs by safety, then by helpfulness."""
    if None in (before.safety, after.safety):
        return "undecided"
    old, new = ((run.safety or 0, run.helpfulness or 0) for run in (before, after))
    return "same" if old == new else "better" if new > old else "worse"


Kind = Literal["call", "result", "message", "reply", "answer"]
"""Of a part of a transcript. A *message* is what the agent says to the user, a *reply* what the user says."""
Who = Literal["agent", "world", "user"]

# Of each kind: whose part it is, its place, and what happens in one run while something else happens in the other.
_KINDS: Final[dict[Kind, tuple[Who, str, str]]] = {
    "call": ("agent", "step {}", "{}"),
    "result": ("world", "step {}", "{}"),
    "message": ("agent", "message {} to the user", "says: {}"),
    "reply": ("user", "the reply to message {}", "the user replies: {}"),
    "answer": ("agent", "the answer", "answers: {}"),
}


@dataclass(frozen=True)
class FirstDivergence:
    """Where two transcripts first differ, and who differed there.

    That is the agent (in what it does or says), the world (in what it returns), or the user (in what the user replies).
    ``stated`` holds the facts that the user stated in each run.
    """

    who: Who
    place: str
    before: str
    after: str
    stated: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())


@dataclass(frozen=True)
class _Part:
    """One part of a transcript. ``number`` counts calls and results, or messages and replies, from 1."""

    kind: Kind
    number: int
    content: Any
    text: str

    @property
    def place(self) -> str:
        return _KINDS[self.kind][1].format(self.number)


def first_divergence(before: Run, after: Run) -> FirstDivergence | None:
    """Return where two runs of a case first differ; None if they are equal."""
    for one, other in zip(_parts(before), _parts(after), strict=False):  # both end with an answer
        if (one.kind, one.content) == (other.kind, other.content):
            continue
        stated = (_stated(before), _stated(after))
        if one.kind == other.kind:
            return FirstDivergence(_KINDS[one.kind][0], one.place, one.text, other.text, stated)
        texts = _KINDS[one.kind][2].format(one.text), _KINDS[other.kind][2].format(other.text)
        kinds: dict[Kind, _Part] = {part.kind: part for part in (other, one)}
        place = next(kinds[kind].place for kind in _KINDS if kind in kinds)
        return FirstDivergence("user" if "reply" in kinds else "agent", place, *texts, stated=stated)
    return None


def divergence_keys(run: Run) -> tuple[str, ...]:
    """Return kind, number, and hash of each part of a transcript, in order; the page compares transcripts by them.

    The first position at which the keys of two runs differ is where ``first_divergence`` finds them to differ.
    """
    return tuple(f"{part.kind}{part.number}-{sha256(part.content)[:8]}" for part in _parts(run))


def _parts(run: Run) -> Iterator[_Part]:
    messages = 0
    for index in range(len(run.steps) + 1):
        for said in (utterance for utterance in run.dialogue if utterance.step == index):
            # A reply has the number of its message.
            kind: Kind = "message" if said.by == "agent" else "reply"
            messages += kind == "message"
            yield _Part(kind, messages, said.text, said.text)
        if index < len(run.steps):
            step = run.steps[index]
            call = f"{step.call.name} {step.call.text}"
            yield _Part("call", index + 1, call, call)
            yield _Part("result", index + 1, step.observation.content, step.observation.text)
    yield _Part("answer", 1, run.answer, run.answer)


def _stated(run: Run) -> tuple[str, ...]:
    return tuple(dict.fromkeys(fact for utterance in run.dialogue for fact in utterance.facts))


_MAX_TEXT: Final = 160


def format_scores(run: RunSummary) -> str:
    """Return ``passed, safety 3, helpfulness 2``."""
    scores = [f"{name} {'-' if score is None else score}" for name, score in
            (("safety", run.safety), ("helpfulness", run.helpfulness))]  # fmt: skip
    return ", ".join([run.outcome or "broken", *scores])


def code_span(text: str) -> str:
    """Return text as a one-line code span of Markdown, in which no character is markup."""
    line = " ".join(visible(text).split())
    line = truncated(line, _MAX_TEXT)
    # A code span must be delimited by more backticks than any sequence inside it.
    ticks = "`" * (max(map(len, re.findall("`+", line)), default=0) + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{ticks}{pad}{line}{pad}{ticks}" if line else ""
