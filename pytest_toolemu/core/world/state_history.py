"""The states of a finished run, from its first rows and the changes of its calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.world.state_changes import Rows, StateChange, apply_changes
from pytest_toolemu.core.world.state_query import StateDatabase
from pytest_toolemu.core.world.world import World, plan_of


class StateHistory:
    """The rows before the first call and after each call; built from a record, so no call is executed again."""

    def __init__(self, world: World, changes: Sequence[tuple[StateChange, ...]]) -> None:
        self._keys: Mapping[str, Mapping[str, str]] = world.keys()
        self._initial = world.initial
        self._changes = changes
        self._database = StateDatabase(world.plans, self._initial)
        self._loaded: int | None = None
        self._selected: dict[tuple[str, int], list[dict[str, Any]]] = {}

    def select(self, query: str, calls: int | None = None) -> list[dict[str, Any]]:
        """Return the rows that a query finds after this number of calls; after all by default. Raise WorldError."""
        calls = len(self._changes) if calls is None else calls
        # The evaluator, a report of violated checks, and lint ask the same.
        if (query, calls) not in self._selected:
            if calls != self._loaded:
                self._database.load(self._state(calls))
                self._loaded = calls
            self._selected[query, calls] = self._database.select(query)
        return self._selected[query, calls]

    def cause(self, query: str) -> int | None:
        """Return the index of the call since which a query finds rows until the end; None if it always found some."""
        for calls in range(len(self._changes), 0, -1):
            if self._changes[calls - 1] and not self.select(query, calls - 1):
                return calls - 1
        return None

    def _state(self, calls: int) -> Rows:
        return apply_changes(self._initial, (change for step in self._changes[:calls] for change in step), self._keys)


def query_problems(resolved_case: ResolvedCase, queries: Iterable[str]) -> list[str | None]:
    """Return why each query of a case's state is not valid; None if it is."""
    kits = [kit for kit in resolved_case.toolkits if kit.name in resolved_case.case.world]
    database = StateDatabase({kit.name: plan_of(kit) for kit in kits}, {})
    return [database.problem(query) for query in queries]
