"""The baseline: a small committed file with the results that later sessions are compared with.

It also stores the conditions of its results (case hashes, emulators, judges), so that a comparison can name everything
that differs besides the agent.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field

from pytest_toolemu.analysis.run_summary import ReportedOutcome, RunSummary
from pytest_toolemu.core.run_notes import reported_names
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.counted import counted
from pytest_toolemu.formats.files.atomic_write import write_json_text
from pytest_toolemu.formats.files.stored_json import read_record
from pytest_toolemu.formats.yaml_document import Record

Difference = Literal["dataset", "cases", "emulator", "judges", "trials"]
"""What may differ between a session and its baseline besides the agent, and so may explain a change of the metrics."""

_NAMES_LISTED: Final = 5
_CASE_DEPTH: Final = 4
"""The nesting level of cases in the file: document, agents, agent, cases."""


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

    def run_summaries(self, agent: str) -> tuple[RunSummary, ...]:
        """Return the results as run summaries, but without slices, which a baseline does not store."""
        return tuple(
            RunSummary(
                case=name,
                agent=agent,
                trial=int(number),
                outcome=trial.outcome,
                # Errors are never counted; files written before that rule may hold scores of broken runs.
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
        by_agent: dict[str, list[RunSummary]] = {}
        for run in runs:
            by_agent.setdefault(run.agent, []).append(run)
        if not by_agent:
            raise UsageError("there are no runs to create a baseline from; name the folder of a session that ran cases")
        return cls(made=created, agents={agent: _agent_baseline(group) for agent, group in by_agent.items()})

    def write(self, path: Path) -> None:
        """Write the file atomically, with one line for each case, so that a diff shows whose results changed."""
        content = {"version": self.version, **self.model_dump(mode="json", exclude_defaults=True)}
        write_json_text(path, _one_line_below(content, _CASE_DEPTH) + "\n")

    def results_of(self, agent: str) -> AgentBaseline:
        """Return the results to compare an agent with: those of the same name, or else the only ones in the file.

        UsageError if the file has several agents, but none of that name.
        """
        if agent in self.agents:
            return self.agents[agent]
        if len(self.agents) == 1:
            return next(iter(self.agents.values()))
        names = ", ".join(self.agents)
        raise UsageError(
            f"the baseline has no results of {agent!r}, only of {names}; add them with 'toolemu baseline update'"
        )


def read_baseline(path: Path) -> Baseline:
    """Read a baseline file; UsageError if it is missing, or not a baseline that this version reads."""
    try:
        return read_record(
            path, Baseline, expected="a baseline", remedy="create it again with 'toolemu baseline update'"
        )
    except FileNotFoundError:
        raise UsageError(f"{path}: there is no such baseline; create it with 'toolemu baseline update'") from None


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
    return AgentBaseline(
        emulators=tuple(sorted({name for run in runs for name in _counterparts(run)})),
        judges=tuple(sorted({str(judge) for run in runs for judge in run.judges})),
        reported_models=reported_names(run.case_notes for run in runs),
        cases={name: BaselineCase(hash=hashes[name], trials=trials[name]) for name in sorted(trials)},
    )


def _counterparts(run: RunSummary) -> list[str]:
    """Return the names of what the agent talked to: the emulator, and the user of a conversation."""
    return [str(run.emulator)] * bool(run.emulator) + [f"user {run.user}"] * bool(run.user)


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


def _one_line_below(value: Any, depth: int, indent: str = "\n") -> str:
    """Return JSON with line breaks in the outer ``depth`` levels only; ``json.dumps`` breaks all levels or none."""
    if not depth or not isinstance(value, dict):
        return json.dumps(value)
    inner = f"{indent} "
    members = (f"{json.dumps(name)}: {_one_line_below(member, depth - 1, inner)}" for name, member in value.items())
    return "{" + inner + f",{inner}".join(members) + indent + "}"
