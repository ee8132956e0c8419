"""The keys of new rows: those that a case names, then keys that are made of patterns and a seed."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pytest_toolemu.core.world.entity_table import EntityTable
from pytest_toolemu.core.world.sql.database import Database, quote

# Keys of a pattern that are tried before it gets another digit.
_TRIES: Final = 20
_LETTERS: Final = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"


@dataclass(frozen=True)
class UsedKeys:
    """How many keys were used at some time: of those that the case names, by entity; and of those that were made."""

    named: Mapping[str, int]
    made: int


class NewKeys:
    """Makes the keys of the rows that a world's calls create. Equal seeds and equal calls give equal keys."""

    def __init__(self, ids: Mapping[str, Sequence[Any]], seed: str) -> None:
        self._ids, self._seed = ids, seed
        self._named: dict[str, int] = {}
        self._made = 0
        # One statement may need several keys before any of their rows is in the table.
        self._last_numbers: dict[str, Any] = {}
        self._given: set[tuple[str, Any]] = set()

    def begin_call(self) -> UsedKeys:
        """Return how many keys were used until now, for ``restore``. Keys given earlier are those of rows, or free."""
        self._last_numbers.clear()
        self._given.clear()
        return UsedKeys(dict(self._named), self._made)

    def restore(self, used: UsedKeys) -> None:
        """Take back all keys since ``used``, because the call that used them changed nothing."""
        self._named, self._made = dict(used.named), used.made

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
