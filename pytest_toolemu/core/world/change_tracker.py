"""Finds what calls change, by reading the rows again and decoding only the tables that differ."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pytest_toolemu.core.world.database import Database
from pytest_toolemu.core.world.state_changes import Rows, StateChange, changes_between
from pytest_toolemu.core.world.toolkit_plan import ToolkitPlan

Json = dict[str, Any]


ReadTables = dict[tuple[str, str], tuple[list[sqlite3.Row], list[Json]]]
"""Rows as they are stored and as JSON values, by toolkit and entity."""


class ChangeTracker:
    """The first rows of a world, and the rows as they were last read. Decoding rows takes longer than reading them."""

    def __init__(self, plans: Mapping[str, ToolkitPlan], databases: Mapping[str, Database], first: ReadTables) -> None:
        self._plans = plans
        self._databases = databases
        self._read = dict(first)
        self.initial: Rows = {kit: self._rows_of(kit) for kit in plans}
        """The rows before the first change."""
        self._last = self.initial
        self._may_differ: set[str] = set()

    def expect_changes(self, kits: Iterable[str]) -> None:
        """Note that rows of these toolkits can change."""
        self._may_differ.update(kits)

    def take(self) -> tuple[StateChange, ...]:
        """Return how the rows have changed since the last call of this method."""
        if not self._may_differ:
            return ()
        for kit in self._may_differ:
            self._read.update(read_tables(self._plans, self._databases, kit, self._read))
        before, self._last = self._last, self._last | {kit: self._rows_of(kit) for kit in self._may_differ}
        self._may_differ.clear()
        return changes_between(before, self._last, keys_of(self._plans))

    def _rows_of(self, kit: str) -> dict[str, list[Json]]:
        return {name: self._read[kit, name][1] for name in self._plans[kit].tables}


def read_tables(
    plans: Mapping[str, ToolkitPlan],
    databases: Mapping[str, Database],
    kit: str,
    earlier: ReadTables | None = None,
) -> Iterator[tuple[tuple[str, str], tuple[list[sqlite3.Row], list[Json]]]]:
    """Yield the rows of each table of a toolkit that is not as it was read earlier."""
    for name, table in plans[kit].tables.items():
        stored = table.stored(databases[kit])
        if earlier is None or stored != earlier[kit, name][0]:
            yield (kit, name), (stored, table.decoded(stored))


def keys_of(plans: Mapping[str, ToolkitPlan]) -> dict[str, dict[str, str]]:
    """Return the field that identifies a row, by toolkit and entity."""
    return {kit: {name: table.key for name, table in plan.tables.items()} for kit, plan in plans.items()}
