"""The world of one run: the rows of its toolkits, and the execution of calls on them."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import sqlite3
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from pytest_toolemu.core.case import Case, ResolvedCase, User
from pytest_toolemu.core.world.call_execution import CallError, error_of_request, execute
from pytest_toolemu.core.world.database import Database, broken_rule, cell, quote
from pytest_toolemu.core.world.entity_table import EntityTable
from pytest_toolemu.core.world.operation_plan import Plan
from pytest_toolemu.core.world.state_changes import Rows, StateChange, StateEdit, changes_between
from pytest_toolemu.core.world.toolkit_plan import ToolkitPlan, plan_of
from pytest_toolemu.core.world.world_state import WorldBeginning, copy_shared_rows, recent_beginning
from pytest_toolemu.errors import WorldError
from pytest_toolemu.formats.yaml_document import closest

Json = dict[str, Any]

MINUTES_PER_CALL: Final = 1
"""Time that passes in the emulated world from one call to the next, in minutes."""


class World:
    """Databases with the rows of a case, one for each toolkit that the case has rows for.

    ``seed`` determines the keys of new rows: equal seeds and equal calls give equal worlds.
    """

    def __init__(
        self, beginning: WorldBeginning, *, ids: Mapping[str, Sequence[Any]], user: User, now: datetime, seed: str
    ) -> None:
        self.beginning, self.plans = beginning, beginning.plans
        self._user, self._start = user, now
        self._new_keys = NewKeys(ids, seed)
        self._databases = {plan.name: self._borrow(beginning, plan) for plan in self.plans.values()}
        self._shared = beginning.shared
        self._last = beginning.initial
        # Toolkits and entities whose rows can have changed since then
        self._may_differ: set[tuple[str, str]] = set()

    @classmethod
    def of(cls, resolved_case: ResolvedCase) -> World:
        """Return the world in which the case begins. Raise WorldError if its rows do not fit the declarations."""
        return cls.begun(beginning_of(resolved_case), resolved_case.case)

    @classmethod
    def begun(cls, beginning: WorldBeginning, case: Case) -> World:
        """Return a world of the case with this beginning."""
        return cls(beginning, ids=case.ids, user=case.user, now=case.now, seed=case.id)

    def plan(self, tool: str | None) -> Plan | None:
        """Return the plan of ``Toolkit.Tool``; None if no row of this world answers its calls."""
        kit, _, name = (tool or "").partition(".")
        return self.plans[kit].plans.get(name) if kit in self.plans else None

    def call(self, tool: str, arguments: Json, number: int) -> Json:
        """Execute a call of ``Toolkit.Tool``, and return its result, or an error that the tool declares.

        ``number`` is the number of earlier calls; time advances by a minute for each.
        A call that fails changes nothing. Raise WorldError if the operation itself fails, and OpenEntityError if
        the emulator has to answer.
        """
        plan = self.plan(tool)
        if plan is None:
            raise WorldError(f"{tool} declares no operation; the emulator has to answer")
        kit = tool.partition(".")[0]
        database = self._databases[kit]
        if plan.writes:
            self._expect_changes(kit, plan.may_change)
        with self._all_or_nothing(kit) as commit:
            try:
                values = self._values(number)
                content = execute(plan, database, arguments, values, lambda table: self._new_key(kit, table))
                if plan.writes:
                    copy_shared_rows(self.plans, self._databases, kit, self._shared_with(kit, plan.may_change))
                commit()
                return content
            except CallError as failed:
                error = f"{failed.error}: {failed.message}"
            except sqlite3.Error as failed:
                # Everything else is a fault of the declaration, and must not look like an answer of the tool.
                if (text := error_of_request(plan, failed, arguments)) is None:
                    message = f"{tool}: the operation failed: {failed}; correct it in the toolkit's file"
                    raise WorldError(message) from None
                error = text
        return {"error": error}

    def edit(self, kit: str, edits: Sequence[StateEdit]) -> list[str]:
        """Carry out all changes of a toolkit's rows, or none. Return the problems; empty if they were carried out."""
        plan, database = self.plans[kit], self._databases[kit]
        entities = {edit.entity for edit in edits} & plan.tables.keys()
        self._expect_changes(kit, entities)
        with self._all_or_nothing(kit) as commit:
            problems = [
                text for index, edit in enumerate(edits) for text in _edit_problems(plan, database, index, edit)
            ]
            if not problems:
                try:
                    copy_shared_rows(self.plans, self._databases, kit, self._shared_with(kit, entities))
                    commit()
                except sqlite3.IntegrityError as error:
                    problems = [f"state_changes: {broken_rule(error)}"]
        return problems

    def time(self, number: int) -> datetime:
        """Return the time in this world after this number of calls."""
        # The clock of the case, not of the machine: every agent and every repetition meets the same times.
        return self._start + timedelta(minutes=MINUTES_PER_CALL * number)

    # ---- state

    def rows(self) -> Rows:
        """Return all rows, by toolkit and entity."""
        return {kit: {name: self._rows(kit, name) for name in plan.tables} for kit, plan in self.plans.items()}

    def take_changes(self) -> tuple[StateChange, ...]:
        """Return how the rows have changed since the last call of this method."""
        changed: Rows = {}
        for kit, name in self._may_differ:
            changed.setdefault(kit, dict(self._last[kit]))[name] = self._rows(kit, name)
        self._may_differ.clear()
        before, self._last = self._last, self._last | changed
        return changes_between(before, self._last, self.beginning.keys)

    # ---- helpers

    def _rows(self, kit: str, name: str) -> list[Json]:
        table = self.plans[kit].tables[name]
        return [*map(table.decoded, table.stored(self._databases[kit]))]

    @contextlib.contextmanager
    def _all_or_nothing(self, kit: str) -> Iterator[Callable[[], None]]:
        """Undo all changes of a toolkit's rows, of rows that it shares, and of new keys, unless they are committed."""
        databases = [self._databases[name] for name in dict.fromkeys([kit, *(other for other, _ in self._shared[kit])])]
        take_back_keys, is_committed = self._new_keys.begin_call(), False

        def commit() -> None:
            nonlocal is_committed
            for database in databases:
                database.execute("COMMIT")
            is_committed = True

        for database in databases:
            database.execute("BEGIN")
        try:
            yield commit
        finally:
            if not is_committed:
                for database in databases:
                    if database.in_transaction:
                        database.execute("ROLLBACK")
                take_back_keys()

    def _expect_changes(self, kit: str, entities: Collection[str]) -> None:
        self._may_differ.update([*((kit, name) for name in entities), *self._shared_with(kit, entities)])

    def _shared_with(self, kit: str, entities: Collection[str]) -> list[tuple[str, str]]:
        """Return the other toolkits that share some of these entities with a toolkit, and which."""
        return [(other, name) for other, name in self._shared[kit] if name in entities]

    def _borrow(self, beginning: WorldBeginning, plan: ToolkitPlan) -> Database:
        database = plan.databases.lend(beginning.stored[plan.name])
        weakref.finalize(self, plan.databases.give_back, database).atexit = False
        world: Any = weakref.proxy(self)  # a function of a database would keep the world until it is given back
        database.functions["new_id"] = lambda name: cell(world._new_key(plan.name, plan.tables[name]))
        database.functions["code"] = lambda pattern: world._new_keys.filled(str(pattern))
        return database

    def _values(self, number: int) -> Json:
        now = self.time(number).isoformat()
        return {
            "now": now,
            "today": now.partition("T")[0],
            "user_name": self._user.name,
            "user_email": self._user.email,
        }

    def _new_key(self, kit: str, table: EntityTable) -> Any:
        return self._new_keys.key(kit, table, self._databases[kit])


def beginning_of(resolved_case: ResolvedCase) -> WorldBeginning:
    """Return how the worlds of a case begin. Raise WorldError if its rows do not fit the declarations."""
    rows = resolved_case.case.world
    plans = {kit.name: plan_of(kit) for kit in resolved_case.toolkits if kit.name in rows}
    return recent_beginning(plans, rows)


def _edit_problems(plan: ToolkitPlan, database: Database, index: int, edit: StateEdit) -> list[str]:
    """Carry out one change, or return why it cannot be."""
    where = f"state_changes[{index}]"
    table = plan.tables.get(edit.entity)
    if table is None:
        return [f"{where}.entity: {edit.entity!r} is unknown{closest(edit.entity, plan.tables)}"]
    try:
        return [f"{where}.{text}" for text in table.edit(database, edit)]
    except sqlite3.Error as error:
        return [f"{where}: {broken_rule(error)}"]


# Keys of a pattern that are tried before it gets another digit.
_TRIES: Final = 20
_LETTERS: Final = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"


class NewKeys:
    """Makes the keys of the rows that a world's calls create. Equal seeds and equal calls give equal keys."""

    def __init__(self, ids: Mapping[str, Sequence[Any]], seed: str) -> None:
        self._ids, self._seed = ids, seed
        self._named: dict[str, int] = {}
        self._made = 0
        # One statement may need several keys before any of their rows is in the table.
        self._last_numbers: dict[str, Any] = {}
        self._given: set[tuple[str, Any]] = set()

    def begin_call(self) -> Callable[[], None]:
        """Begin a call; return what takes back all its keys, for one that changes nothing."""
        # Keys given earlier are those of rows, or free.
        self._last_numbers.clear()
        self._given.clear()
        named, made = dict(self._named), self._made

        def take_back() -> None:
            self._named, self._made = named, made

        return take_back

    def key(self, kit: str, table: EntityTable, database: Database) -> Any:
        """Return the next key that the case names for an entity; then one of its pattern, made from the seed."""
        # Cases name keys that their checks and references mention.
        entity = f"{kit}.{table.name}"
        for named in self._remaining(entity):
            if table.get(database, named) is None:  # an agent may have chosen the same key
                if isinstance(named, int | float):
                    self._last_numbers[entity] = max(named, self._last_numbers.get(entity, named))
                self._given.add((entity, named))
                return named
        if table.counts_keys:
            statement = f"SELECT coalesce(max({quote(table.key)}), 0) + 1 FROM {quote(table.name)}"
            (stored,) = database.execute(statement).fetchone()
            key = self._last_numbers[entity] = max(stored, self._last_numbers.get(entity, stored - 1) + 1)
            return key
        initials = "".join(word[0] for word in table.name.split("_")).upper()
        pattern = table.entity.id or f"{initials}-#####"
        for attempt in itertools.count():
            # A short pattern has few keys, and an agent may create many rows.
            key = self.filled(pattern + "#" * (attempt // _TRIES))
            if (entity, key) not in self._given and table.get(database, key) is None:
                break
        self._given.add((entity, key))
        return key

    def filled(self, pattern: str) -> str:
        """Return text made of a pattern: each ``#`` becomes a digit, each ``?`` a letter or digit."""
        self._made += 1
        digest = hashlib.sha256(f"{self._seed}:{self._made}".encode()).digest()
        number = itertools.cycle(digest)
        filled = {"#": lambda: str(next(number) % 10), "?": lambda: _LETTERS[next(number) % len(_LETTERS)]}
        return "".join(filled[character]() if character in filled else character for character in pattern)

    def _remaining(self, entity: str) -> Iterator[Any]:
        """Yield the keys that the case names for an entity and that were not used; each is used from then on."""
        keys = self._ids.get(entity, ())
        for index in range(self._named.get(entity, 0), len(keys)):
            self._named[entity] = index + 1
            yield keys[index]
