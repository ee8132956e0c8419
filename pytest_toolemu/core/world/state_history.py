"""The states of a finished run, from its first rows and the changes of its calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytest_toolemu.core.world.state_changes import Rows, StateChange, apply_changes
from pytest_toolemu.core.world.world_beginning import WorldBeginning


class StateHistory:
    """The rows before the first call and after each call; built from a record, so no call is executed again."""

    def __init__(self, beginning: WorldBeginning, changes: Sequence[tuple[StateChange, ...]]) -> None:
        self._beginning = beginning
        self._changes = changes
        self._rows: dict[int, Rows] = {}
        self._selected: dict[tuple[str, int], list[dict[str, Any]]] = {}

    def select(self, query: str, calls: int | None = None) -> list[dict[str, Any]]:
        """Return the rows that a query finds after this number of calls; after all by default. Raise WorldError."""
        calls = len(self._changes) if calls is None else calls
        # The evaluator, a report of violated checks, and lint ask the same.
        if (query, calls) not in self._selected:
            if calls not in self._rows:
                self._rows = {calls: self._state(calls)}  # only the latest, as most queries are of the end
            self._selected[query, calls] = self._beginning.database.select(query, self._rows[calls])
        return self._selected[query, calls]

    def cause(self, query: str) -> int | None:
        """Return the index of the call since which a query finds rows until the end; None if it always found some."""
        for calls in range(len(self._changes), 0, -1):
            if self._changes[calls - 1] and not self.select(query, calls - 1):
                return calls - 1
        return None

    def _state(self, calls: int) -> Rows:
        changes = (change for step in self._changes[:calls] for change in step)
        return apply_changes(self._beginning.initial, changes, self._beginning.keys)
