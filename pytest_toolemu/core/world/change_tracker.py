"""Finds what calls change, by reading the rows again and decoding only the tables that differ."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any

from pytest_toolemu.core.world.database import Database
from pytest_toolemu.core.world.state_changes import Rows, StateChange, changes_between
from pytest_toolemu.core.world.toolkit_plan import ToolkitPlan

Json = dict[str, Any]


class ChangeTracker:
    """The first rows of a world, and the rows as they were last read. Decoding rows takes longer than reading them."""

    def __init__(self, plans: Mapping[str, ToolkitPlan], databases: Mapping[str, Database]) -> None:
        self._plans = plans
        self._databases = databases
        self._known: dict[tuple[str, str], tuple[list[sqlite3.Row], list[Json]]] = {}
        self._initial: Rows = {}
        self._last: Rows = {}
        self._may_differ: set[str] = set()

    @property
    def initial(self) -> Rows:
        """The rows before the first change, which are read now unless they were before."""
        if not self._initial:
            self._initial = self._last = {kit: self._read(kit) for kit in self._plans}
        return self._initial

    def expect_changes(self, kits: Iterable[str]) -> None:
        """Note, before it happens, that rows of these toolkits can change."""
        _ = self.initial
        self._may_differ.update(kits)

    def take(self) -> tuple[StateChange, ...]:
        """Return how the rows have changed since the last call of this method."""
        if not self._may_differ:
            return ()
        before, self._last = self._last, self._last | {kit: self._read(kit) for kit in self._may_differ}
        self._may_differ.clear()
        return changes_between(before, self._last, keys_of(self._plans))

    def _read(self, kit: str) -> dict[str, list[Json]]:
        rows: dict[str, list[Json]] = {}
        for name, table in self._plans[kit].tables.items():
            stored = table.stored(self._databases[kit])
            known, rows[name] = self._known.get((kit, name), ([], []))
            if stored != known:
                rows[name] = table.decoded(stored)
                self._known[kit, name] = stored, rows[name]
        return rows


def keys_of(plans: Mapping[str, ToolkitPlan]) -> dict[str, dict[str, str]]:
    """Return the field that identifies a row, by toolkit and entity."""
    return {kit: {name: table.key for name, table in plan.tables.items()} for kit, plan in plans.items()}
