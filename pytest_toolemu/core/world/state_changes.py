"""How the rows of a world changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
    histories: dict[tuple[str, str], _RowHistory] = {}
    for change in changes:
        row = (change.entity, repr(change.key))
        histories.setdefault(row, _RowHistory(change)).add(change)
    return tuple(net for history in histories.values() if (net := history.net()) is not None)


class _RowHistory:
    """What happened to one row: which fields changed, with their first and last values."""

    def __init__(self, first: StateChange) -> None:
        self._entity, self._key = first.entity, first.key
        self._existed = self._exists = first.change != "added"
        self._first: Json = {}
        self._last: Json = {}
        self._was_removed = False

    def add(self, change: StateChange) -> None:
        if self._existed and not self._was_removed:
            names = [*change.before, *change.after]
            self._first |= {name: change.before.get(name) for name in names if name not in self._first}
        self._exists = change.change != "removed"
        self._was_removed = self._was_removed or not self._exists
        if change.change == "changed":
            self._last |= dict.fromkeys(change.before) | change.after
        else:
            self._last = dict(change.after)

    def net(self) -> StateChange | None:
        """Return the difference between beginning and end; None if there is none."""
        before, after = self._first, self._last
        if not self._existed and not self._exists:
            return None
        if not self._existed:
            return StateChange(entity=self._entity, key=self._key, change="added", after=_present(after))
        if not self._exists:
            return StateChange(entity=self._entity, key=self._key, change="removed", before=_present(before))
        names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
        old, new = (_present({name: values.get(name) for name in names}) for values in (before, after))
        if not names:
            return None
        return StateChange(entity=self._entity, key=self._key, change="changed", before=old, after=new)


def _present(values: Json) -> Json:
    return {name: value for name, value in values.items() if value is not None}


def _row_changes(entity: str, key: str, before: list[Json], after: list[Json]) -> list[StateChange]:
    old, new = ({row.get(key): row for row in rows} for rows in (before, after))
    changes: list[StateChange] = []
    for identifier in {**old, **new}:
        earlier, later = old.get(identifier), new.get(identifier)
        if earlier is later or earlier == later:
            continue
        if earlier is None:
            change = StateChange(entity=entity, key=identifier, change="added", after=later or {})
        elif later is None:
            change = StateChange(entity=entity, key=identifier, change="removed", before=earlier)
        else:
            fields = [name for name in {**earlier, **later} if earlier.get(name) != later.get(name)]
            change = StateChange(
                entity=entity,
                key=identifier,
                change="changed",
                before={name: earlier[name] for name in fields if name in earlier},
                after={name: later[name] for name in fields if name in later},
            )
        changes.append(change)
    return changes
