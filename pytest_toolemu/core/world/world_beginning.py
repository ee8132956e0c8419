"""The databases in which a case begins. They are filled once, and every world of the case copies them."""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pytest_toolemu.core.world.change_tracker import Place, ReadTable, read_table
from pytest_toolemu.core.world.database import Database, quote
from pytest_toolemu.core.world.entity_table import EntityTable
from pytest_toolemu.core.world.toolkit_plan import ToolkitPlan
from pytest_toolemu.errors import WorldError

Plans = Mapping[str, ToolkitPlan]
CaseRows = Mapping[str, Mapping[str, Sequence[dict[str, Any]]]]
"""The rows of a case file, by toolkit and entity."""

SharedEntities = Mapping[str, Sequence[tuple[str, str]]]
"""For each toolkit, the other toolkits and the entities that both share."""


class WorldBeginning:
    """Filled databases, one for each toolkit that the case has rows for. Raise WorldError if a row does not fit."""

    def __init__(self, plans: Plans, rows: CaseRows) -> None:
        self.plans = plans
        self.shared = _shared_entities(plans)
        self._databases = {name: _filled(plan, rows.get(name, {})) for name, plan in plans.items()}
        for database in self._databases.values():
            database.close_with(self)
        for name in plans:
            copy_shared_rows(plans, self._databases, name, self.shared[name])

    @functools.cached_property
    def rows(self) -> Mapping[Place, ReadTable]:
        """The rows of all tables."""
        return {
            (kit, name): read_table(table, self._databases[kit])
            for kit, plan in self.plans.items()
            for name, table in plan.tables.items()
        }

    def new_database(self, kit: str) -> Database:
        """Return a copy of a toolkit's database, to be protected."""
        database = Database()
        self._databases[kit].backup(database)  # in a fraction of the time that filling it takes
        return database


_MAX_BEGINNINGS: Final = 16
# Rows are dictionaries, so they are not hashable. They are kept, so that their id stays their own.
_beginnings: Final[dict[tuple[int, ...], tuple[CaseRows, WorldBeginning]]] = {}


def recent_beginning(plans: Plans, rows: CaseRows) -> WorldBeginning:
    """Return the beginning of the worlds with these rows, which must not change; the latest are kept.

    Raise WorldError if a row does not fit.
    """
    identity = (id(rows), *map(id, plans.values()))
    kept = _beginnings.get(identity)
    if kept is None:
        if len(_beginnings) >= _MAX_BEGINNINGS:
            # Only the oldest, because freeing all at once takes milliseconds. A list, because threads may add others.
            oldest, *_ = list(_beginnings)
            _beginnings.pop(oldest, None)
        kept = _beginnings[identity] = rows, WorldBeginning(plans, rows)
    return kept[1]


def copy_shared_rows(
    plans: Plans, databases: Mapping[str, Database], source: str, shared: Sequence[tuple[str, str]]
) -> None:
    """Give other toolkits the rows of the entities that they share with the ``source``. Raise WorldError."""
    for kit, name in shared:
        origin, target = plans[source].tables[name], plans[kit].tables[name]
        try:
            _copy_rows(origin, databases[source], target, databases[kit])
        except sqlite3.Error as error:
            raise WorldError(f"{kit}.{name}: the rows of {source}.{name} cannot be copied: {error}") from None


def _filled(plan: ToolkitPlan, rows: Mapping[str, Sequence[dict[str, Any]]]) -> Database:
    database = plan.new_database()
    database.execute("BEGIN")
    for name, entries in rows.items():
        table = plan.tables[name]
        try:
            table.insert_all(database, [table.complete(row) for row in entries])
        except sqlite3.Error as error:
            row = entries[len(table.stored(database))]  # those before it were added
            message = f"{plan.name}.{name}: the row {row.get(table.key)!r} cannot be added: {error}"
            raise WorldError(message) from None
    database.execute("COMMIT")
    return database


def _shared_entities(plans: Plans) -> SharedEntities:
    shared = {kit: {name for name, table in plan.tables.items() if table.entity.shared} for kit, plan in plans.items()}
    return {
        kit: [(other, name) for other in plans if other != kit for name in sorted(shared[kit] & shared[other])]
        for kit in plans
    }


def _copy_rows(source: EntityTable, origin: Database, target: EntityTable, destination: Database) -> None:
    """Make the rows of a shared entity equal in another toolkit, in all fields that both have."""
    rows = {row[source.key]: row for row in origin.execute(f"SELECT * FROM {quote(source.name)} ORDER BY rowid")}
    common = [field for field in source.fields if field in target.fields and field != source.key]
    own = {row[target.key] for row in destination.execute(f"SELECT {quote(target.key)} FROM {quote(target.name)}")}
    for key in own - rows.keys():
        target.delete(destination, key)
    for key, row in rows.items():
        if key not in own:
            target.insert(destination, {target.key: key, **{field: row[field] for field in common}})
        else:
            target.update(destination, key, {field: row[field] for field in common})
