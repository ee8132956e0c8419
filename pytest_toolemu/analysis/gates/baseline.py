"""The baseline: a small committed file with the results that later sessions are compared with.

It also stores the conditions of its results (case hashes, emulators, judges), so that a comparison can name everything
that differs besides the agent.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import json
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from pydantic import Field

from pytest_toolemu.analysis.gates.gate_file import Difference, Gate, Gates, exact_fraction
from pytest_toolemu.analysis.metrics import GATE_METRICS, AgentSummary, GateMetric, Status, summarize_agents
from pytest_toolemu.analysis.run_summary import RunSummary
from pytest_toolemu.analysis.statistics.hypothesis_tests import (
    case_changes,
    detectable_change,
    format_p_value,
    holm_rejections,
    mean_change,
    p_worse,
)
from pytest_toolemu.core.run_notes import reported_model_changes, reported_names
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.file_access import read_record, write_atomically
from pytest_toolemu.formats.text import counted
from pytest_toolemu.formats.yaml_document import Record

_NAMES_LISTED: Final = 5
_MOST_CASES: Final = 10_000
"""Up to here, the number of cases that a gate needs is computed."""


# What a baseline keeps of each run: its result, and the conditions under which it was obtained.
_STORED: Final = {
    "case", "agent", "trial", "outcome", "safety", "helpfulness", "stop", "case_hash", "emulator", "user", "judges",
    "combination",
}  # fmt: skip


class Baseline(Record):
    """The results of all agents of a session; ``made`` is the time of creation in ISO 8601."""

    version: Literal[1] = 1
    made: str
    runs: tuple[RunSummary, ...] = Field(min_length=1)
    """The runs by case and trial, without slices, costs, and all else that gates do not compare."""

    @classmethod
    def of(cls, runs: Iterable[RunSummary], created: str) -> Baseline:
        """Return the baseline of these runs; UsageError if there are none."""
        stored = [
            RunSummary(
                **{name: value for name, value in run if name in _STORED},
                notes=tuple(note for note in run.notes if note.kind == "reported model"),
            )
            for run in sorted(runs, key=lambda run: (run.case, run.trial))
        ]
        if not stored:
            raise UsageError("there are no runs to create a baseline from; name the folder of a session that ran cases")
        return cls(made=created, runs=tuple(stored))

    def write(self, path: Path) -> None:
        """Write the file atomically, with one line for each run, so that a diff shows whose results changed."""
        runs = (json.dumps(run.model_dump(mode="json", exclude_defaults=True)) for run in self.runs)
        head = f'{{"version": {self.version}, "made": {json.dumps(self.made)}, "runs": ['
        write_atomically(path, head + "\n" + ",\n".join(runs) + "\n]}\n")

    @functools.cached_property
    def agents(self) -> dict[str, AgentSummary]:
        """The results of each agent."""
        return {summary.agent: summary for summary in summarize_agents(self.runs)}

    def results_of(self, agent: str) -> AgentSummary:
        """Return the results to compare an agent with: those of the same name, or else the only ones in the file.

        UsageError if the file has several agents, but none of that name.
        """
        if agent not in self.agents and len(self.agents) > 1:
            names = ", ".join(self.agents)
            raise UsageError(
                f"the baseline has no results of {agent!r}, only of {names}; add them with 'toolemu baseline'"
            )
        return self.agents.get(agent) or next(iter(self.agents.values()))


def read_baseline(path: Path) -> Baseline:
    """Read a baseline file; UsageError if it is missing, or not a baseline that this version reads."""
    try:
        return read_record(path, Baseline, expected="a baseline", remedy="create it again with 'toolemu baseline'")
    except FileNotFoundError:
        raise UsageError(f"{path}: there is no such baseline; create it with 'toolemu baseline'") from None


def baseline_mismatches(baseline: Sequence[RunSummary], runs: Sequence[RunSummary]) -> dict[Difference, str]:
    """Return what differs between a baseline and these runs besides the agent, each with the values of both."""
    before, now = ({run.case: run.case_hash for run in side} for side in (baseline, runs))
    # A case that was not run has no hash: it may be unchanged.
    changed = {case for case, hash_ in now.items() if hash_ and before.get(case, hash_) != hash_}
    found: dict[Difference, list[str]] = {"dataset": _count_and_names(changed, "changed")}
    absent = _count_and_names(before.keys() - now.keys(), "of the baseline not run")
    found["cases"] = [*absent, *_count_and_names(now.keys() - before.keys(), "not in the baseline")]
    conditions = conditions_of(runs)
    for kind, value in conditions_of(baseline).items():
        found[kind] = [f"{value} before, {conditions[kind]} now"] if value != conditions[kind] else []
    return {kind: "; ".join(texts) for kind, texts in found.items() if texts}


def conditions_of(runs: Sequence[RunSummary]) -> dict[Difference, str]:
    """Return the emulators with the users, the judges with how they are combined, and the number of trials of a
    case.

    The name of each component ends with a hash of its whole configuration.
    """
    counterparts = {str(run.emulator) for run in runs if run.emulator} | {
        f"user {run.user}" for run in runs if run.user
    }
    judges = sorted({str(judge) for run in runs for judge in run.judges})
    trials = sorted({len(trials) for trials in AgentSummary("", tuple(runs)).cases.values()})
    return {
        "emulator": ", ".join(sorted(counterparts)),
        "judges": ", ".join(judges + sorted({run.combination for run in runs} - {""})),
        "trials": f"{' or '.join(map(str, trials))} trial{'s' * (trials != [1])} per case",
    }


def baseline_changes(old: Baseline, new: Baseline) -> list[str]:
    """Return one line for each agent and case whose results differ between two baselines."""
    before, after = _results_in_words(old), _results_in_words(new)
    changes = (
        (key, before.get(key, "absent"), after.get(key, "absent")) for key in sorted(before.keys() | after.keys())
    )
    return [
        f"{agent}: {case}: {result} -> {result_now}"
        for (agent, case), result, result_now in changes
        if agent in new.agents and result != result_now
    ]


def _results_in_words(baseline: Baseline) -> dict[tuple[str, str], str]:
    """Return ``safety 3 helpfulness 2`` for each trial, or its outcome if it has no safety score, by agent and case."""
    results: dict[tuple[str, str], list[str]] = {}
    for run in baseline.runs:
        scores = f"safety {run.safety} helpfulness {run.helpfulness}"
        results.setdefault((run.agent, run.case), []).append(
            scores if run.safety is not None else run.outcome or "broken"
        )
    return {key: ", ".join(texts) for key, texts in results.items()}


def _count_and_names(cases: Set[str], what: str) -> list[str]:
    """Return ``3 cases (a, b, c) changed``, with only the first names of many; nothing without cases."""
    return [f"{counted(len(cases), 'case')} ({_names(cases)}) {what}"] if cases else []


def _names(cases: Iterable[str]) -> str:
    names = sorted(cases)
    return ", ".join(names[:_NAMES_LISTED]) + (", ..." if len(names) > _NAMES_LISTED else "")


Pairs = list[tuple[list[float], list[float]]]
"""For each case, the values of its trials in the baseline and in the session."""


@dataclass(frozen=True)
class GateComparison:
    """A relative gate before its decision.

    ``lost`` is the number of cases that ran on both sides but lack a value on one. A non-empty ``problem`` makes the
    gate undecided. ``note`` says which models the endpoints named otherwise before; it decides nothing.
    """

    gate: Gate
    pairs: Pairs
    lost: int
    problem: str = ""
    note: str = ""


def comparable_results(
    gates: Gates, summary: AgentSummary, baseline: Baseline | None
) -> tuple[tuple[RunSummary, ...], str]:
    """Return the results to compare an agent with, and why they cannot be compared; empty if they can."""
    if baseline is None:
        return (), "there is no baseline to compare with"
    try:
        results = baseline.results_of(summary.agent).runs
    except UsageError as error:
        return (), str(error)
    mismatches = baseline_mismatches(results, summary.runs)
    refused = {kind: text for kind, text in mismatches.items() if kind not in gates.allow}
    listed = "; ".join(f"{kind}: {text}" for kind, text in refused.items())
    remedy = f"create a new baseline, or allow the difference with 'allow: [{', '.join(refused)}]'"
    return results, f"the baseline was created under other conditions: {listed}; {remedy}" if refused else ""


def compare_gate(
    gate: Gate, limit: float, baseline: Sequence[RunSummary], runs: Sequence[RunSummary], incomplete: str
) -> GateComparison:
    """Pair the runs of a gate's slice with the baseline; ``limit`` is the largest share of pairs that may be lost.

    ``incomplete`` says that too many runs of the slice lack a value; it is empty if enough have one.
    """
    pairs, lost = pair_with_baseline(GATE_METRICS[gate.metric], baseline, runs)
    problem, total = f"{incomplete}: too many runs are missing to decide" if incomplete else "", len(pairs) + lost
    if not pairs:
        problem = "no case has a verdict on both sides"
    elif lost > exact_fraction(limit) * total:
        share = f"{lost} of {counted(total, 'pair')} ({lost / total:.1%})"
        problem = f"{share} lost to errors, at most {limit:.1%} allowed"
    names = [reported_names(run.case_notes for run in side) for side in (baseline, runs)]
    return GateComparison(gate, pairs, lost, problem, reported_model_changes(*names))


def pair_with_baseline(
    metric: GateMetric, baseline: Sequence[RunSummary], runs: Sequence[RunSummary]
) -> tuple[Pairs, int]:
    """Return the values of cases that have some on both sides, and the number of cases that lack them on one."""
    before, after = AgentSummary("", tuple(baseline)).cases, AgentSummary("", tuple(runs)).cases
    sides = [(before[case], after[case]) for case in after if case in before]
    values = [(new[0].cluster, _values(metric, old), _values(metric, new)) for old, new in sides]
    known = [(cluster, old, new) for cluster, old, new in values if old and new]
    # A case and its variants are one pair, as they are not independent.
    pairs: dict[str, tuple[list[float], list[float]]] = {}
    for cluster, old_values, new_values in known:
        pair = pairs.setdefault(cluster, ([], []))
        pair[0].extend(old_values)
        pair[1].extend(new_values)
    return list(pairs.values()), len(sides) - len(known)


def _values(metric: GateMetric, runs: Sequence[RunSummary]) -> list[float]:
    return [float(value) for run in runs if (value := metric.value(run)) is not None]


def decide_comparisons(level: float, comparisons: Sequence[GateComparison]) -> list[tuple[Status, str]]:
    """Return the status and the explanation of each comparison.

    The ``no_worse`` gates share one significance level by Holm's method, so that more gates do not raise the
    probability of a false alarm.
    """
    tested = [c for c in comparisons if not c.problem and c.gate.baseline == "no_worse"]
    p_values = [_p_worse(comparison.gate, comparison.pairs) for comparison in tested]
    tests = dict(zip(map(id, tested), zip(p_values, holm_rejections(p_values, level), strict=True), strict=True))
    decisions = [_decide(level, comparison, tests.get(id(comparison))) for comparison in comparisons]
    level_of_each = level / max(1, len(tested))
    return [
        _with_power(decision, comparison, level_of_each if comparison.gate.baseline == "no_worse" else level)
        for decision, comparison in zip(decisions, comparisons, strict=True)
    ]


def _with_power(decision: tuple[Status, str], comparison: GateComparison, level: float) -> tuple[Status, str]:
    """Return the decision, undecided if this number of cases allows no other.

    Without evidence, ``no_worse`` passes and ``not_inferior`` fails. That decides nothing if the first could not fail
    even an agent that became as bad as possible in every case, or the second could not pass an unchanged agent.
    """
    gate, (status, text), n = comparison.gate, decision, len(comparison.pairs)
    if status != ("passed" if gate.baseline == "no_worse" else "failed"):
        return decision
    metric = GATE_METRICS[gate.metric]
    best, worst = (0, metric.span)[:: metric.worse]

    def has_power(number: int) -> bool:
        pairs = [(before, after) for before, after in itertools.islice(itertools.cycle(comparison.pairs), number)]
        if gate.baseline == "no_worse":
            worse = [([float(best)] * len(before), [float(worst)] * len(after)) for before, after in pairs]
            return _p_worse(gate, worse) <= level
        return _is_not_inferior(
            gate, [([float(best)] * len(old), [float(best)] * len(new)) for old, new in pairs], level
        )

    if has_power(n):
        return decision
    needed = n + bisect.bisect_left(range(n, _MOST_CASES), True, key=has_power)
    impossible = "fail, whatever the results" if gate.baseline == "no_worse" else "pass an unchanged agent"
    return "undecided", f"{text}; with {counted(n, 'case')} this gate cannot {impossible}: it needs at least {needed:,}"


def _decide(level: float, comparison: GateComparison, test: tuple[float, bool] | None) -> tuple[Status, str]:
    """Decide one comparison; ``test`` is the p-value and whether it is significant, for ``no_worse`` gates."""
    if comparison.problem:
        return "undecided", comparison.problem
    gate, metric = comparison.gate, GATE_METRICS[comparison.gate.metric]
    # A two-sided interval at twice the level: its unfavorable end is the one-sided bound that decides 'not_inferior'.
    change = mean_change(comparison.pairs, metric.span, 1 - 2 * level)
    assert change is not None
    harms = [metric.worse * value for value in case_changes(comparison.pairs)]
    text = (
        f"{gate.metric} {metric.format_change(change)} {metric.unit} against the baseline "
        f"({100 - 200 * level:.4g} % interval): worse on {sum(harm > 0 for harm in harms)}, "
        f"better on {sum(harm < 0 for harm in harms)} of {counted(change.n, 'case')} ({comparison.lost} lost to errors)"
    )
    if comparison.note:
        text = f"{text}; {comparison.note}"
    if test is not None:
        p_value, worse = test
        text = f"{text}; p {format_p_value(p_value)} at level {level:g}; {_power(level, comparison)}"
        return ("failed" if worse else "passed"), text
    end = "upper" if metric.worse > 0 else "lower"
    text = f"{text}; the {end} end decides, the margin is {metric.format_size(gate.margin)}"
    return ("passed" if _is_not_inferior(gate, comparison.pairs, level) else "failed"), text


def _p_worse(gate: Gate, pairs: Pairs) -> float:
    metric = GATE_METRICS[gate.metric]
    return p_worse(pairs, metric.worse, metric.span, gate.margin)


def _is_not_inferior(gate: Gate, pairs: Pairs, level: float) -> bool:
    """Return whether the unfavorable end of the interval is within the margin; a single case may have no interval."""
    metric = GATE_METRICS[gate.metric]
    change = mean_change(pairs, metric.span, 1 - 2 * level)
    bound = None if change is None else change.high if metric.worse > 0 else change.low
    return bound is not None and metric.worse * bound < gate.margin


def decide_regressions(limit: int, baseline: Sequence[RunSummary], runs: Sequence[RunSummary]) -> tuple[Status, str]:
    """Decide whether at most ``limit`` cases fail that passed in the baseline: in both, by the majority of trials."""
    before, after = AgentSummary("", tuple(baseline)).cases, AgentSummary("", tuple(runs)).cases
    passed = [case for case in after if case in before and _passes(before[case], missing=False)]
    regressed = [case for case in passed if not _passes(after[case], missing=True)]
    unknown = [case for case in passed if case not in regressed and not _passes(after[case], missing=False)]
    text = f"{counted(len(regressed), 'regression')} in {counted(len(passed), 'case')} that passed in the baseline"
    if regressed:
        text += f" ({_names(regressed)})"
    if len(regressed) > limit:
        return "failed", text
    if len(regressed) + len(unknown) > limit:
        return "undecided", f"{text}; {counted(len(unknown), 'more case')} without a verdict ({_names(unknown)})"
    if len(passed) <= limit:
        return "undecided", f"{text}; this gate cannot fail: it needs at least {counted(limit + 1, 'case')} that passed"
    return "passed", text


def _passes(trials: Sequence[RunSummary], *, missing: bool) -> bool:
    """Return whether more than half of the trials pass, if those without a verdict pass (``missing``) or do not."""
    values = [GATE_METRICS["pass_rate"].value(run) for run in trials]
    return 2 * sum(missing if value is None else value for value in values) > len(values)


def _power(level: float, comparison: GateComparison) -> str:
    """Return a sentence that says which true change the test would detect."""
    gate, metric = comparison.gate, GATE_METRICS[comparison.gate.metric]
    smallest = detectable_change(comparison.pairs, metric.span, level, gate.margin)
    if smallest is None or smallest > metric.span:
        return "with so few cases, not even the largest change would be detected with 80 % power"
    direction = "rise" if metric.worse > 0 else "fall"
    return f"a true {direction} of {metric.format_size(smallest)} would be detected with 80 % power"
