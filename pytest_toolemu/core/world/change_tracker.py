"""Finds what calls change, by reading the rows again and decoding only those that differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pytest_toolemu.core.world.entity_table import EntityTable, StoredRow
from pytest_toolemu.core.world.sql.database import Database
from pytest_toolemu.core.world.state_changes import Rows, StateChange, changes_between
from pytest_toolemu.core.world.toolkit_plan import ToolkitPlan

Json = dict[str, Any]

Place = tuple[str, str]
"""A toolkit and one of its entities."""

ReadTable = tuple[list[StoredRow], list[Json]]
"""Rows as they are stored, and as JSON values."""


class ChangeTracker:
    """The first rows of a world, and the rows as they were last read. Decoding rows takes longer than reading them."""

    def __init__(
        self,
        plans: Mapping[str, ToolkitPlan],
        databases: Mapping[str, Database],
        first: Mapping[Place, ReadTable],
        initial: Rows,
    ) -> None:
        self._plans = plans
        self._databases = databases
        self._read = dict(first)
        self._last = initial
        self._keys = keys_of(plans)
        self._may_differ: set[Place] = set()

    def expect_changes(self, places: Iterable[Place]) -> None:
        """Note that rows of these entities can change."""
        self._may_differ.update(places)

    def take(self) -> tuple[StateChange, ...]:
        """Return how the rows have changed since the last call of this method."""
        if not self._may_differ:
            return ()
        for kit, name in self._may_differ:
            table = self._plans[kit].tables[name]
            self._read[kit, name] = read_table(table, self._databases[kit], self._read[kit, name])
        kits = {kit for kit, _ in self._may_differ}
        before, self._last = self._last, self._last | {kit: self._rows_of(kit) for kit in kits}
        self._may_differ.clear()
        return changes_between(before, self._last, self._keys)

    def _rows_of(self, kit: str) -> dict[str, list[Json]]:
        return {name: self._read[kit, name][1] for name in self._plans[kit].tables}


def read_table(table: EntityTable, database: Database, earlier: ReadTable) -> ReadTable:
    """Return the rows of a table. Rows that are as they were earlier are not decoded again."""
    stored = table.stored(database)
    # Most changes are of one row, or add one at the end.
    pairs = zip(stored, earlier[0], strict=False)
    shorter = min(len(stored), len(earlier[0]))
    equal = next((index for index, (row, before) in enumerate(pairs) if row != before), shorter)
    if equal == len(stored) == len(earlier[0]):
        return earlier
    key = table.key_index
    known = {row[key]: (row, values) for row, values in zip(earlier[0][equal:], earlier[1][equal:], strict=True)}
    rows = earlier[1][:equal]
    for row in stored[equal:]:
        before, values = known.get(row[key], (None, {}))
        rows.append(values if row == before else table.decoded(row))
    return stored, rows


def keys_of(plans: Mapping[str, ToolkitPlan]) -> dict[str, dict[str, str]]:
    """Return the field that identifies a row, by toolkit and entity."""
    return {kit: {name: table.key for name, table in plan.tables.items()} for kit, plan in plans.items()}
