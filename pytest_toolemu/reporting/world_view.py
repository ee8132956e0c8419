"""The rows of a case as tables for a reader, and how they differ at the end of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from pydantic_core import to_json

from pytest_toolemu.core.run import Run
from pytest_toolemu.core.world.state_changes import StateChange, net_changes

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


def initial_tables(run: Run) -> list[ShownTable]:
    """Return the rows before the first call, by entity; entities without rows are left out."""
    return [
        _table(f"{kit}.{name}", rows)
        for kit, entities in run.case.world.items()
        for name, rows in entities.items()
        if rows
    ]


def final_changes(run: Run) -> list[ShownChange]:
    """Return how the rows at the end of a run differ from those at its beginning."""
    return shown_changes(net_changes(change for step in run.steps for change in step.changes))


def shown_changes(changes: Iterable[StateChange]) -> list[ShownChange]:
    """Return changes for a reader."""
    return [_change(change) for change in changes]


def change_lines(changes: Iterable[ShownChange]) -> Iterator[str]:
    """Yield one line of text for each change."""
    for change in changes:
        values = ", ".join(
            f"{name}: {old} -> {new}" if change.change == "changed" else f"{name}: {new or old}"
            for name, old, new in change.values
        )
        yield f"{change.change} {change.entity} {change.key}" + (f": {values}" if values else "")


def _table(name: str, rows: tuple[dict[str, Any], ...]) -> ShownTable:
    fields = tuple(dict.fromkeys(field for row in rows for field in row))
    return ShownTable(name, fields, tuple(tuple(_text(row.get(field)) for field in fields) for row in rows))


def _change(change: StateChange) -> ShownChange:
    names = dict.fromkeys([*change.before, *change.after])
    values = tuple((name, _text(change.before.get(name)), _text(change.after.get(name))) for name in names)
    return ShownChange(change.entity, _text(change.key), change.change, values)


def _text(value: Any) -> str:
    if value is None:
        return _ABSENT
    return value if isinstance(value, str) else to_json(value).decode()
