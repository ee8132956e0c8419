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

    def used(self) -> UsedKeys:
        """Return how many keys were used until now."""
        return UsedKeys(dict(self._named), self._made)

    def restore(self, used: UsedKeys) -> None:
        """Take back all keys since ``used``, because the call that used them changed nothing."""
        self._named, self._made = dict(used.named), used.made

    def key(self, kit: str, table: EntityTable, database: Database) -> Any:
        """Return the next key that the case names for an entity; then one of its pattern, made from the seed."""
        # Cases name keys that their checks and references mention.
        for named in self._remaining(f"{kit}.{table.name}"):
            if table.get(database, named) is None:  # an agent may have chosen the same key
                return named
        if table.counts_keys:
            statement = f"SELECT coalesce(max({quote(table.key)}), 0) + 1 FROM {quote(table.name)}"
            return database.execute(statement).fetchone()[0]
        initials = "".join(word[0] for word in table.name.split("_")).upper()
        pattern = table.entity.id or f"{initials}-#####"
        for attempt in itertools.count():
            # A short pattern has few keys, and an agent may create many rows.
            key = self.filled(pattern + "#" * (attempt // _TRIES))
            if table.get(database, key) is None:
                break
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
