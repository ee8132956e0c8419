"""The rows of a case as tables for a reader, and how they differ at the end of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pydantic_core import to_json

from pytest_toolemu.core.references import CarefulRead, Trap, missing_texts
from pytest_toolemu.core.run import Run
from pytest_toolemu.core.toolkit import Toolkit
from pytest_toolemu.core.trajectory import json_text
from pytest_toolemu.core.verdict import Finding
from pytest_toolemu.core.world.state_changes import StateChange, apply_changes, net_changes
from pytest_toolemu.formats.truncation import truncated

_ABSENT: Final = ""


@dataclass(frozen=True)
class ShownTable:
    """The rows of one entity."""

    name: str
    fields: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class ShownChange:
    """A row that differs at the end, with its fields, and their values before and after."""

    entity: str
    key: str
    change: str
    values: tuple[tuple[str, str, str], ...]
    key_field: str | None = None
    """The field with the key; None if the declarations do not say."""
    steps: tuple[int, ...] = ()
    """The numbers of the calls that changed the row; empty if the change is that of one call."""
    risky: bool = False
    """Whether an evaluator found one of these calls risky."""

    @property
    def cause(self) -> str:
        """The calls that changed the row, as text."""
        noun = "step" if len(self.steps) == 1 else "steps"
        return f"{noun} {', '.join(map(str, self.steps))}{', risky' if self.risky else ''}"


def initial_tables(run: Run) -> list[ShownTable]:
    """Return the rows before the first call, by entity; entities without rows are left out."""
    return [
        _table(f"{kit}.{name}", rows)
        for kit, entities in run.case.world.items()
        for name, rows in entities.items()
        if rows
    ]


def final_tables(run: Run) -> list[ShownTable]:
    """Return the rows after the last call, by entity; entities without rows are left out.

    Empty if the changes in the record do not fit the declarations of its toolkits.
    """
    keys = _keys(kit for kit in run.toolkits if kit.name in run.case.world)
    initial = {kit: {name: list(run.case.world[kit].get(name, ())) for name in names} for kit, names in keys.items()}
    try:
        rows = apply_changes(initial, (change for step in run.steps for change in step.changes), keys)
    except (KeyError, TypeError):
        return []
    return [
        _table(f"{kit}.{name}", tuple(entries))
        for kit, tables in rows.items()
        for name, entries in tables.items()
        if entries
    ]


def final_changes(run: Run) -> list[ShownChange]:
    """Return how the rows at the end of a run differ from those at its beginning; the risky changes come first."""
    risky = {finding.step + 1 for verdict in run.verdicts for finding in verdict.findings if finding.step is not None}
    steps: dict[tuple[str, str], list[int]] = {}
    for number, step in enumerate(run.steps, 1):
        for change in step.changes:
            steps.setdefault(_row(change), []).append(number)
    shown, keys = [], _keys(run.toolkits)
    for change in net_changes(change for step in run.steps for change in step.changes):
        numbers = tuple(dict.fromkeys(steps[_row(change)]))
        shown.append(replace(_change(change, keys), steps=numbers, risky=not risky.isdisjoint(numbers)))
    return sorted(shown, key=lambda change: not change.risky)


def harm(run: Run) -> list[Finding]:
    """Return each finding about a call that changed rows, the worst first."""
    changed = {number for number, step in enumerate(run.steps) if step.changes}
    findings = (finding for verdict in run.verdicts for finding in verdict.findings if finding.step in changed)
    return sorted(dict.fromkeys(findings), key=lambda finding: finding.score)


def shown_changes(changes: Iterable[StateChange], toolkits: Iterable[Toolkit]) -> tuple[ShownChange, ...]:
    """Return changes of rows of these toolkits for a reader."""
    changes = [*changes]
    keys = _keys(toolkits) if changes else {}
    return tuple(_change(change, keys) for change in changes)


def change_lines(changes: Iterable[ShownChange], longest: int | None = None) -> Iterator[str]:
    """Yield one line of text for each change. ``longest`` is the largest number of characters of a value."""
    for change in changes:
        values = ", ".join(f"{name}: {value}" for name, value in value_lines(change, longest))
        cause = f" ({change.cause})" if change.steps else ""
        yield f"{change.change} {change.entity} {change.key}{cause}" + (f": {values}" if values else "")


def value_lines(change: ShownChange, longest: int | None = None) -> Iterator[tuple[str, str]]:
    """Yield each field of a change but its key, with the value, or both values, as one line of text."""
    for name, old, new in change.values:
        before, after = _line(old, longest), _line(new, longest)
        if change.change == "changed":
            yield name, f"{before} -> {after}"
        elif name != change.key_field:
            yield name, after or before


def _line(text: str, longest: int | None) -> str:
    line = " ".join(text.split())
    return line if longest is None else truncated(line, longest)


def _row(change: StateChange) -> tuple[str, str]:
    return change.entity, repr(change.key)


def _table(name: str, rows: tuple[dict[str, Any], ...]) -> ShownTable:
    fields = tuple(dict.fromkeys(field for row in rows for field in row))
    return ShownTable(name, fields, tuple(tuple(_text(row.get(field)) for field in fields) for row in rows))


def _keys(toolkits: Iterable[Toolkit]) -> dict[str, dict[str, str]]:
    """Return the field with the key, by toolkit and entity."""
    return {kit.name: {name: entity.key for name, entity in kit.entities.items()} for kit in toolkits}


def _change(change: StateChange, keys: Mapping[str, Mapping[str, str]]) -> ShownChange:
    names = dict.fromkeys([*change.before, *change.after])
    values = tuple((name, _text(change.before.get(name)), _text(change.after.get(name))) for name in names)
    kit, _, entity = change.entity.partition(".")
    return ShownChange(change.entity, _text(change.key), change.change, values, keys.get(kit, {}).get(entity))


def _text(value: Any) -> str:
    if value is None:
        return _ABSENT
    return value if isinstance(value, str) else to_json(value).decode()


@dataclass(frozen=True)
class ShownClue:
    """A call that shows a reason to stop or to ask."""

    call: str
    texts: str
    """The texts of its result that give the reason."""
    seen: str
    """Which results contain these texts, other than those of calls that changed rows: there it is too late."""


@dataclass(frozen=True)
class ShownTrap:
    """The trap of a built world."""

    built_by: str
    design: tuple[tuple[str, str], ...]
    """Titles and texts of the design."""
    risky_call: str
    made: str
    """Whether and when the agent made the risky call."""
    clues: tuple[ShownClue, ...]

    @property
    def lines(self) -> list[tuple[str, str]]:
        """The trap as titles and texts."""
        call = ("risky call", f"{self.risky_call}: {self.made}")
        clues = [("clue", f"{clue.call} shows {clue.texts}: {clue.seen}") for clue in self.clues]
        return [*self.design, call, *clues]


def shown_trap(run: Run) -> ShownTrap | None:
    """Return the trap of the run's world; None if no model built the world."""
    if run.trap is None:
        return None
    design, risky_call = run.trap.design, run.trap.proof.risky_call
    steps = [
        number
        for number, step in enumerate(run.steps, 1)
        if step.call.tool == risky_call.tool and json_text(step.call.arguments) == json_text(risky_call.arguments)
    ]
    return ShownTrap(
        built_by=_built_by(run.trap),
        design=(
            ("gap", design.gap),
            ("risky action", design.risky_action),
            ("scenario", design.scenario),
            ("harm", design.harm),
        ),
        risky_call=_call(risky_call.tool, risky_call.arguments),
        made=f"the agent made this call in {_listed(steps)}" if steps else "the agent did not make exactly this call",
        clues=tuple(_clue(read, run) for read in run.trap.proof.careful_reads),
    )


def _clue(read: CarefulRead, run: Run) -> ShownClue:
    steps = [
        number
        for number, step in enumerate(run.steps, 1)
        if not (step.observation.is_error or step.changes or missing_texts(step.observation.content, read.shows))
    ]
    seen = f"the agent saw this in {_listed(steps)}" if steps else "no result that the agent saw contains all of this"
    return ShownClue(_call(read.tool, read.arguments), ", ".join(read.shows), seen)


def _listed(steps: list[int]) -> str:
    return f"step {steps[0]}" if len(steps) == 1 else f"steps {', '.join(map(str, steps))}"


def _call(tool: str, arguments: dict[str, Any]) -> str:
    return f"{tool} {json_text(arguments)}"


def _built_by(trap: Trap) -> str:
    parts = (trap.model.get("provider"), trap.model.get("name"))
    name = ":".join(str(part) for part in parts if part)
    return f"world {trap.variant}, built by {name}" if name else f"world {trap.variant}"
