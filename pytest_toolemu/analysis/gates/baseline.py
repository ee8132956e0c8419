"""The baseline: a small committed file with the results that later sessions are compared with.

It also stores the conditions of its results (case hashes, emulators, judges), so that a comparison can name everything
that differs besides the agent.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from pydantic import Field

from pytest_toolemu.analysis.gates.gate_file import Difference, Gate, Gates, exact_fraction
from pytest_toolemu.analysis.metrics import GATE_METRICS, AgentSummary, GateMetric, Status, summarize_agents
from pytest_toolemu.analysis.run_summary import ReportedOutcome, RunSummary
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


class BaselineTrial(Record):
    """The result of one run."""

    safety: int | None = None
    helpfulness: int | None = None
    outcome: ReportedOutcome
    stop: str = ""


class BaselineCase(Record):
    """The results of one case by trial number; ``hash`` covers the case and its toolkits."""

    hash: str
    trials: dict[str, BaselineTrial]


class AgentBaseline(Record):
    """The results of one agent, and the emulators and judges behind them.

    The name of each emulator and judge ends with a hash of its whole configuration.
    """

    emulators: tuple[str, ...]
    judges: tuple[str, ...]
    reported_models: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """For each requested model, the names that its endpoint reported."""
    cases: dict[str, BaselineCase]

    @functools.cached_property
    def runs_by_case(self) -> dict[str, tuple[RunSummary, ...]]:
        """The runs of each case."""
        return AgentSummary("", self.run_summaries("baseline")).cases

    def run_summaries(self, agent: str) -> tuple[RunSummary, ...]:
        """Return the results as run summaries, but without slices, which a baseline does not store."""
        return tuple(
            RunSummary(
                case=name,
                agent=agent,
                trial=int(number),
                outcome=trial.outcome,
                # Errors are never counted, even if an evaluator gave a score before.
                safety=None if trial.outcome == "broken" else trial.safety,
                helpfulness=None if trial.outcome == "broken" else trial.helpfulness,
                stop=trial.stop,
                case_hash=case.hash,
            )
            for name, case in self.cases.items()
            for number, trial in case.trials.items()
        )


class Baseline(Record):
    """The results of all agents of a session; ``made`` is the time of creation in ISO 8601."""

    version: Literal[1] = 1
    made: str
    agents: dict[str, AgentBaseline] = Field(min_length=1)

    @classmethod
    def of(cls, runs: Iterable[RunSummary], created: str) -> Baseline:
        """Return the baseline of these runs; UsageError if there are none."""
        agents = {one.agent: _agent_baseline(one.runs) for one in summarize_agents(runs)}
        if not agents:
            raise UsageError("there are no runs to create a baseline from; name the folder of a session that ran cases")
        return cls(made=created, agents=agents)

    def write(self, path: Path) -> None:
        """Write the file atomically, with one line for each value, so that a diff shows whose results changed."""
        content = {"version": self.version, **self.model_dump(mode="json", exclude_defaults=True)}
        write_atomically(path, json.dumps(content, indent=1) + "\n")

    def results_of(self, agent: str) -> AgentBaseline:
        """Return the results to compare an agent with: those of the same name, or else the only ones in the file.

        UsageError if the file has several agents, but none of that name.
        """
        if agent in self.agents:
            return self.agents[agent]
        if len(self.agents) == 1:
            return next(iter(self.agents.values()))
        names = ", ".join(self.agents)
        raise UsageError(f"the baseline has no results of {agent!r}, only of {names}; add them with 'toolemu baseline'")


def read_baseline(path: Path) -> Baseline:
    """Read a baseline file; UsageError if it is missing, or not a baseline that this version reads."""
    try:
        return read_record(path, Baseline, expected="a baseline", remedy="create it again with 'toolemu baseline'")
    except FileNotFoundError:
        raise UsageError(f"{path}: there is no such baseline; create it with 'toolemu baseline'") from None


def baseline_mismatches(baseline: AgentBaseline, runs: Sequence[RunSummary]) -> dict[Difference, str]:
    """Return what differs between a baseline and these runs besides the agent, each with the values of both."""
    session = _agent_baseline(runs)
    session_hashes = {name: case.hash for name, case in session.cases.items()}
    baseline_hashes = {name: case.hash for name, case in baseline.cases.items()}
    differences: dict[Difference, str] = {}
    # A case that was not run has no hash: it may be unchanged.
    run = {name: hash_ for name, hash_ in session_hashes.items() if hash_}
    if changed := sorted(name for name in run.keys() & baseline_hashes.keys() if run[name] != baseline_hashes[name]):
        differences["dataset"] = f"{_count_and_names(changed)} changed"
    case_differences = []
    if absent := sorted(baseline_hashes.keys() - session_hashes.keys()):
        case_differences.append(f"{_count_and_names(absent)} of the baseline not run")
    if added := sorted(session_hashes.keys() - baseline_hashes.keys()):
        case_differences.append(f"{_count_and_names(added)} not in the baseline")
    if case_differences:
        differences["cases"] = "; ".join(case_differences)
    if baseline.emulators != session.emulators:
        differences["emulator"] = _then_and_now(baseline.emulators, session.emulators)
    if baseline.judges != session.judges:
        differences["judges"] = _then_and_now(baseline.judges, session.judges)
    trials_then, trials_now = _trial_counts(baseline), _trial_counts(session)
    if trials_then != trials_now:
        differences["trials"] = f"{trials_then} per case before, {trials_now} now"
    return differences


def baseline_changes(old: Baseline, new: Baseline) -> list[str]:
    """Return one line for each agent and case whose results differ between two baselines."""
    lines = []
    for agent, results in new.agents.items():
        old_cases = old.agents[agent].cases if agent in old.agents else {}
        for name in sorted(old_cases.keys() | results.cases.keys()):
            before, after = _case_text(old_cases.get(name)), _case_text(results.cases.get(name))
            if before != after:
                lines.append(f"{agent}: {name}: {before} -> {after}")
    return lines


def _case_text(case: BaselineCase | None) -> str:
    """Return ``safety 3 helpfulness 2`` for each trial, or its outcome if it has no safety score."""
    if case is None:
        return "absent"
    trials = case.trials.values()
    return ", ".join(
        t.outcome if t.safety is None else f"safety {t.safety} helpfulness {t.helpfulness}" for t in trials
    )


def _agent_baseline(runs: Sequence[RunSummary]) -> AgentBaseline:
    hashes = {run.case: run.case_hash for run in runs}
    trials: dict[str, dict[str, BaselineTrial]] = {}
    for run in runs:
        trials.setdefault(run.case, {})[str(run.trial)] = BaselineTrial(
            safety=run.safety, helpfulness=run.helpfulness, outcome=run.outcome or "broken", stop=run.stop
        )
    counterparts = {str(run.emulator) for run in runs if run.emulator} | {
        f"user {run.user}" for run in runs if run.user
    }
    return AgentBaseline(
        emulators=tuple(sorted(counterparts)),
        judges=tuple(sorted({str(judge) for run in runs for judge in run.judges})),
        reported_models=reported_names(run.case_notes for run in runs),
        cases={name: BaselineCase(hash=hashes[name], trials=trials[name]) for name in sorted(trials)},
    )


def _count_and_names(names: Sequence[str]) -> str:
    """Return ``3 cases (a, b, c)``, with only the first names of many."""
    listed = ", ".join(names[:_NAMES_LISTED]) + (", ..." if len(names) > _NAMES_LISTED else "")
    return f"{counted(len(names), 'case')} ({listed})"


def _then_and_now(before: Sequence[str], after: Sequence[str]) -> str:
    return f"{', '.join(before)} before, {', '.join(after)} now"


def _trial_counts(results: AgentBaseline) -> str:
    """Return how many trials the cases have: ``3``, or ``1 or 3`` if they differ."""
    counts = sorted({len(case.trials) for case in results.cases.values()})
    trials = " or ".join(map(str, counts)) or "0"
    return f"{trials} trial{'s' * (trials != '1')}"


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

    @property
    def p_worse(self) -> float:
        """The p-value of the test for harm beyond the margin."""
        metric = GATE_METRICS[self.gate.metric]
        return p_worse(self.pairs, metric.worse, metric.span, self.gate.margin)


@dataclass(frozen=True)
class AgentComparison:
    """An agent and its baseline: what all its gates share."""

    gates: Gates
    summary: AgentSummary
    baseline: Baseline | None

    def of(self, gate: Gate, runs: Sequence[RunSummary], incomplete: str = "") -> GateComparison:
        """Pair the runs of a gate's slice with the baseline.

        The result has a ``problem`` if they cannot be compared. ``incomplete`` says that too many runs of the slice
        lack a value; it is empty if enough have one.
        """
        results, refusal = self._results
        if results is None:
            return GateComparison(gate, [], 0, refusal)
        pairs, lost = pair_with_baseline(GATE_METRICS[gate.metric], results, runs)
        if not pairs:
            return GateComparison(gate, [], lost, "no case has a verdict on both sides")
        limit = self.gates.pairs_lost_at_most
        if lost > exact_fraction(limit) * (len(pairs) + lost):
            total = len(pairs) + lost
            share = f"{lost} of {counted(total, 'pair')} ({lost / total:.1%})"
            return GateComparison(gate, pairs, lost, f"{share} lost to errors, at most {limit:.1%} allowed")
        problem = f"{incomplete}: too many runs are missing to decide" if incomplete else ""
        note = reported_model_changes(results.reported_models, reported_names(run.case_notes for run in runs))
        return GateComparison(gate, pairs, lost, problem, note)

    @functools.cached_property
    def _results(self) -> tuple[AgentBaseline | None, str]:
        """The results to compare with; or None, and why there are none."""
        try:
            if self.baseline is None:
                raise UsageError("there is no baseline to compare with")
            results = self.baseline.results_of(self.summary.agent)
        except UsageError as error:
            return None, str(error)
        mismatches = baseline_mismatches(results, self.summary.runs)
        if refused := {kind: text for kind, text in mismatches.items() if kind not in self.gates.allow}:
            listed = "; ".join(f"{kind}: {text}" for kind, text in refused.items())
            remedy = f"create a new baseline, or allow the difference with 'allow: [{', '.join(refused)}]'"
            return None, f"the baseline was created under other conditions: {listed}; {remedy}"
        return results, ""


def pair_with_baseline(metric: GateMetric, baseline: AgentBaseline, runs: Sequence[RunSummary]) -> tuple[Pairs, int]:
    """Return the values of cases that have some on both sides, and the number of cases that lack them on one."""
    before, after = baseline.runs_by_case, AgentSummary("", tuple(runs)).cases
    sides = [(before[case], after[case]) for case in after if case in before]
    values = [(new[0].cluster, _values(metric, old), _values(metric, new)) for old, new in sides]
    known = [(cluster, old, new) for cluster, old, new in values if old and new]
    # A case and its variants are one pair, as they are not independent.
    pairs: dict[str, tuple[list[float], list[float]]] = {cluster: ([], []) for cluster, _, _ in known}
    for cluster, old_values, new_values in known:
        pairs[cluster][0].extend(old_values)
        pairs[cluster][1].extend(new_values)
    return list(pairs.values()), len(sides) - len(known)


def _values(metric: GateMetric, runs: Sequence[RunSummary]) -> list[float]:
    return [float(value) for run in runs if (value := metric.value(run)) is not None]


def decide_comparisons(level: float, comparisons: Sequence[GateComparison]) -> list[tuple[Status, str]]:
    """Return the status and the explanation of each comparison.

    The ``no_worse`` gates share one significance level by Holm's method, so that more gates do not raise the
    probability of a false alarm.
    """
    tested = [c for c in comparisons if not c.problem and c.gate.baseline == "no_worse"]
    p_values = [comparison.p_worse for comparison in tested]
    tests = dict(zip(map(id, tested), zip(p_values, holm_rejections(p_values, level), strict=True), strict=True))
    return [_decide(level, comparison, tests.get(id(comparison))) for comparison in comparisons]


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
    bound = change.high if metric.worse > 0 else change.low
    if bound is None:
        return "undecided", f"{text}; a single case has no interval"
    is_not_inferior = metric.worse * bound < gate.margin
    end = "upper" if metric.worse > 0 else "lower"
    text = f"{text}; the {end} end decides, the margin is {metric.format_size(gate.margin)}"
    return ("passed" if is_not_inferior else "failed"), text


def _power(level: float, comparison: GateComparison) -> str:
    """Return a sentence that says which true change the test would detect."""
    gate, metric = comparison.gate, GATE_METRICS[comparison.gate.metric]
    smallest = detectable_change(comparison.pairs, metric.span, level, gate.margin)
    if smallest is None or smallest > metric.span:
        return "with so few cases, not even the largest change would be detected with 80 % power"
    direction = "rise" if metric.worse > 0 else "fall"
    return f"a true {direction} of {metric.format_size(smallest)} would be detected with 80 % power"
