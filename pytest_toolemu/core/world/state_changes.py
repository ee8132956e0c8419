"""How the rows of a world changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from pydantic import Field

from pytest_toolemu.formats.yaml_document import Record

Json = dict[str, Any]
Rows = dict[str, dict[str, list[Json]]]
"""All rows of a world, by toolkit and entity."""


class StateChange(Record):
    """One row that a call added, changed or removed."""

    entity: str = Field(description="The entity, as `Toolkit.entity`")
    key: Any = Field(description="The key of the row")
    change: Literal["added", "changed", "removed"] = Field(description="What happened to the row")
    before: dict[str, Any] = Field(default={}, description="Values before: of changed fields, or of a removed row")
    after: dict[str, Any] = Field(default={}, description="Values after: of changed fields, or of an added row")


class StateEdit(Record):
    """A change of one row that an emulating model asks for."""

    change: Literal["add", "change", "remove"] = Field(description="What happens to the row")
    entity: str = Field(description="The entity, without its toolkit")
    key: str = Field(description="The key of the row, as text")
    values: dict[str, Any] = Field(default={}, description="The values of the fields that the change sets")


def changes_between(before: Rows, after: Rows, keys: Mapping[str, Mapping[str, str]]) -> tuple[StateChange, ...]:
    """Return the changes from one state to another; ``keys`` names the key of each entity."""
    changes: list[StateChange] = []
    for kit, entities in after.items():
        for name, rows in entities.items():
            earlier = before.get(kit, {}).get(name, [])
            if rows is not earlier and rows != earlier:
                changes += _row_changes(f"{kit}.{name}", keys[kit][name], earlier, rows)
    return tuple(changes)


def apply_changes(rows: Rows, changes: Iterable[StateChange], keys: Mapping[str, Mapping[str, str]]) -> Rows:
    """Return the rows after the changes, with the same lists for entities without a change.

    Raise KeyError if a change is of an unknown entity.
    """
    changed: dict[tuple[str, str], dict[Any, Json]] = {}
    for change in changes:
        kit, _, name = change.entity.partition(".")
        if (kit, name) not in changed:
            changed[kit, name] = {row[keys[kit][name]]: row for row in rows[kit][name]}
        table = changed[kit, name]
        if change.change == "removed":
            table.pop(change.key, None)
            continue
        cleared = change.before.keys() - change.after.keys()
        old = {field: value for field, value in table.get(change.key, {}).items() if field not in cleared}
        table[change.key] = {**old, **change.after}
    state = {kit: dict(entities) for kit, entities in rows.items()}
    for (kit, name), table in changed.items():
        state[kit][name] = [*table.values()]
    return state


def net_changes(changes: Iterable[StateChange]) -> tuple[StateChange, ...]:
    """Return one change for each row that differs at the end, given all changes in order."""
    keys: dict[tuple[str, str], Any] = {}
    first: dict[tuple[str, str], Json | None] = {}
    last: dict[tuple[str, str], Json | None] = {}
    removed: set[tuple[str, str]] = set()
    for change in changes:
        row = (change.entity, repr(change.key))
        if row not in keys:
            keys[row], first[row], last[row] = change.key, None if change.change == "added" else {}, {}
        values = first[row]
        if values is not None and row not in removed:
            names = [*change.before, *change.after]
            values |= {name: change.before.get(name) for name in names if name not in values}
        if change.change == "removed":
            removed.add(row)
            last[row] = None
        elif change.change == "added":
            last[row] = dict(change.after)
        else:
            last[row] = (last[row] or {}) | dict.fromkeys(change.before) | change.after
    nets = (_change(row[0], key, _present(first[row]), _present(last[row])) for row, key in keys.items())
    return tuple(net for net in nets if net is not None)


def _present(values: Json | None) -> Json | None:
    return None if values is None else {name: value for name, value in values.items() if value is not None}


def _row_changes(entity: str, key: str, before: list[Json], after: list[Json]) -> Iterator[StateChange]:
    old, new = ({row.get(key): row for row in rows} for rows in (before, after))
    for identifier in {**old, **new}:
        earlier, later = old.get(identifier), new.get(identifier)
        if earlier is not later and (change := _change(entity, identifier, earlier, later)) is not None:
            yield change


def _change(entity: str, key: Any, before: Json | None, after: Json | None) -> StateChange | None:
    """Return how a row differs, which is None where it does not exist; None if it does not differ."""
    if before == after:
        return None
    if before is None:
        return StateChange(entity=entity, key=key, change="added", after=after or {})
    if after is None:
        return StateChange(entity=entity, key=key, change="removed", before=before)
    fields = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    old, new = ({name: row[name] for name in fields if name in row} for row in (before, after))
    return StateChange(entity=entity, key=key, change="changed", before=old, after=new)
