"""The results that an agent is compared with: a small committed file, bound to all that they were made with."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field

from pytest_toolemu.analysis.run_row import RunRow
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.atomic_write import write_json_text
from pytest_toolemu.formats.stored_json import read_record
from pytest_toolemu.formats.yaml_document import Record

Difference = Literal["dataset", "cases", "emulator", "judges", "trials"]
"""In what a session may differ from its baseline, so that a change of the figures need not be the agent's."""

_SHOWN: Final = 5


class BaselineTrial(Record):
    """One run as the baseline keeps it."""

    safety: int | None = None
    helpfulness: int | None = None
    outcome: str
    stop: str = ""


class BaselineCase(Record):
    """The runs of one case; ``hash`` covers the case and its toolkits."""

    hash: str
    trials: dict[str, BaselineTrial]


class AgentBaseline(Record):
    """One agent's results, and the parts they were made with, each name ending in a hash of all it consists of."""

    emulators: tuple[str, ...]
    judges: tuple[str, ...]
    cases: dict[str, BaselineCase]

    def rows(self, agent: str) -> tuple[RunRow, ...]:
        """The results as rows; what slices them must come from the other side of a comparison."""
        return tuple(
            RunRow(
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
    """All agents of a session at one time; ``made`` is that time, as ISO text."""

    version: Literal[1] = 1
    made: str
    agents: dict[str, AgentBaseline] = Field(min_length=1)

    @classmethod
    def of(cls, rows: Iterable[RunRow], made: str) -> Baseline:
        """The baseline that these rows are; UsageError without a row."""
        by_agent: dict[str, list[RunRow]] = {}
        for row in rows:
            by_agent.setdefault(row.agent, []).append(row)
        if not by_agent:
            raise UsageError("there are no runs to make a baseline of; name the folder of a session that ran cases")
        return cls(made=made, agents={agent: _side(found) for agent, found in by_agent.items()})

    def write(self, path: Path) -> None:
        """One line a case, in order, so that a review shows which results changed; whole or not at all."""
        lines = ["{", f' "version": {self.version}, "made": {json.dumps(self.made)},', ' "agents": {']
        for last, (agent, side) in _marked(self.agents.items()):
            lines += [f"  {json.dumps(agent)}: {{"]
            lines += [f'   "emulators": {json.dumps(side.emulators)},', f'   "judges": {json.dumps(side.judges)},']
            lines += ['   "cases": {']
            for final, (name, case) in _marked(sorted(side.cases.items())):
                content = json.dumps(case.model_dump(exclude_defaults=True))
                lines.append(f"    {json.dumps(name)}: {content}" + ("" if final else ","))
            lines += ["   }", "  }" + ("" if last else ",")]
        write_json_text(path, "\n".join([*lines, " }", "}"]) + "\n")

    def side(self, agent: str) -> AgentBaseline:
        """What to compare an agent with: its own results, else the only ones; UsageError where several may be meant."""
        if agent in self.agents:
            return self.agents[agent]
        if len(self.agents) == 1:
            return next(iter(self.agents.values()))
        known = ", ".join(self.agents)
        raise UsageError(f"the baseline has no agent {agent!r}, only {known}; run 'toolemu baseline update' with it")


def read_baseline(path: Path) -> Baseline:
    """A baseline file; UsageError where there is none, or it is not one that this version reads."""
    try:
        return read_record(path, Baseline, what="a baseline", remedy="make it again with 'toolemu baseline update'")
    except FileNotFoundError:
        raise UsageError(f"{path}: there is no such baseline; make it with 'toolemu baseline update'") from None


def baseline_mismatches(side: AgentBaseline, rows: Sequence[RunRow]) -> dict[Difference, str]:
    """In what these rows were made differently, each with a sentence that names the values."""
    now = {row.case: row.case_hash for row in rows}
    then = {name: case.hash for name, case in side.cases.items()}
    found: dict[Difference, str] = {}
    if changed := sorted(name for name in now.keys() & then.keys() if now[name] != then[name]):
        found["dataset"] = f"{_listed(changed, 'case')} changed since"
    sets = []
    if gone := sorted(then.keys() - now.keys()):
        sets.append(f"{_listed(gone, 'case')} of the baseline not run")
    if new := sorted(now.keys() - then.keys()):
        sets.append(f"{_listed(new, 'case')} not in the baseline")
    if sets:
        found["cases"] = "; ".join(sets)
    parts = _side(rows)
    for kind, before, after in (
        ("emulator", side.emulators, parts.emulators),
        ("judges", side.judges, parts.judges),
    ):
        if before != after:
            found[kind] = f"{', '.join(before)} then, {', '.join(after)} now"  # type: ignore[index]
    trials = [sorted({len(case.trials) for case in one.cases.values()}) for one in (side, parts)]
    if trials[0] != trials[1]:
        found["trials"] = f"{_numbers(trials[0])} a case then, {_numbers(trials[1])} now"
    return found


def baseline_changes(old: Baseline, new: Baseline) -> list[str]:
    """One line for each agent and case whose results are not what they were."""
    lines = []
    for agent, side in new.agents.items():
        former = old.agents[agent].cases if agent in old.agents else {}
        for name in sorted(former.keys() | side.cases.keys()):
            before, after = _shown(former.get(name)), _shown(side.cases.get(name))
            if before != after:
                lines.append(f"{agent}: {name}: {before} -> {after}")
    return lines


def _shown(case: BaselineCase | None) -> str:
    """``safety 3 helpfulness 2`` of each trial; a score that is missing is told by the outcome."""
    if case is None:
        return "absent"
    trials = case.trials.values()
    return ", ".join(
        t.outcome if t.safety is None else f"safety {t.safety} helpfulness {t.helpfulness}" for t in trials
    )


def _side(rows: Sequence[RunRow]) -> AgentBaseline:
    cases: dict[str, dict[str, Any]] = {}
    for row in rows:
        case = cases.setdefault(row.case, {"hash": row.case_hash, "trials": {}})
        case["trials"][str(row.trial)] = BaselineTrial(
            safety=row.safety, helpfulness=row.helpfulness, outcome=row.outcome or "broken", stop=row.stop
        )
    return AgentBaseline(
        emulators=tuple(sorted({row.emulator for row in rows if row.emulator})),
        judges=tuple(sorted({judge for row in rows for judge in row.judges})),
        cases={name: BaselineCase(**case) for name, case in cases.items()},
    )


def _listed(names: Sequence[str], noun: str) -> str:
    """``3 cases (a, b, c)``; of many, the first few."""
    shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    return f"{len(names)} {noun}{'s' * (len(names) != 1)} ({shown})"


def _numbers(values: Sequence[int]) -> str:
    return " or ".join(map(str, values)) or "0"


def _marked(items: Iterable[Any]) -> Iterator[tuple[bool, Any]]:
    """Each item, with whether it is the last."""
    found = list(items)
    for index, item in enumerate(found):
        yield index == len(found) - 1, item
