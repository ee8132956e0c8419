"""Which tests a shard of a session runs: decided from names alone, so that shards need know nothing of each other."""

from __future__ import annotations

import hashlib
import heapq
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.regular_files import read_regular

DURATIONS: Final = "toolemu-durations.json"
"""Beside the ini file: mean seconds of a run of each case, by its id. ``toolemu merge`` writes one."""

ACCOUNT: Final = "shard.json"
"""In the folder of a shard's session: what it was to run, for ``toolemu merge``."""


_MAX_BYTES: Final = 64 * 1024 * 1024


@dataclass(frozen=True)
class Shard:
    """One of ``count`` equal parts, numbered from 1."""

    index: int
    count: int

    @classmethod
    def of(cls, text: str) -> Shard:
        """Of ``3/8``; ValueError for anything else."""
        index, _, count = text.partition("/")
        found = cls(int(index), int(count))
        if not 1 <= found.index <= found.count:
            raise ValueError(text)
        return found

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


@dataclass(frozen=True)
class ShardAssignment:
    """Who runs what. ``places`` are the shards of cases whose durations are known, by id; a hash places all others.

    Neither the order of files nor what else is selected moves anything.
    """

    count: int
    places: Mapping[str, int] = field(default_factory=dict)
    durations: str = ""
    """A hash of the durations; empty without any. Shards fit together only if it is the same for all of them."""

    @classmethod
    def balanced(cls, count: int, seconds: Mapping[str, float]) -> ShardAssignment:
        """The longest case first, each to the shard that has the least to do so far."""
        if not seconds:
            return cls(count)
        loads = [(0.0, index) for index in range(1, count + 1)]
        places = {}
        for case in sorted(seconds, key=lambda case: (-seconds[case], case)):
            load, index = loads[0]
            places[case] = index
            heapq.heapreplace(loads, (load + seconds[case], index))
        text = json.dumps(dict(sorted(seconds.items())))
        return cls(count, places, hashlib.sha256(text.encode()).hexdigest()[:12])

    def place(self, name: str) -> int:
        """The shard of a case, by its id, or of another test, by its node id."""
        placed = self.places.get(name)
        if placed is not None:
            return placed
        return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) % self.count + 1


def gaps(manifests: Sequence[Mapping[str, Any]]) -> list[str]:
    """What is not there of the sessions with these manifests, a line each: what a merge did without, other shards."""
    return [line for manifest in manifests for line in manifest.get("missing", ())] + absent(manifests)


def absent(manifests: Iterable[Mapping[str, Any]]) -> list[str]:
    """The other shards, where some of a session are among these and not all; a line each."""
    there: dict[int, set[int]] = {}
    for manifest in manifests:
        if text := (manifest.get("settings", {}).get("shard") or [None])[0]:
            shard = Shard.of(text)
            there.setdefault(shard.count, set()).add(shard.index)
    return [
        f"shard {index} of {count} is not there"
        for count, known in there.items()
        for index in range(1, count + 1)
        if index not in known
    ]


def read_durations(path: Path) -> dict[str, float]:
    """Seconds by case; empty where there is no such file.

    UsageError for one that is wrong: a shard that went on without it would run other cases than the others leave it.
    """
    try:
        content = json.loads(read_regular(path, _MAX_BYTES))
        if not isinstance(content, dict):
            raise ValueError("it is no JSON object")
        found = {str(case): float(seconds) for case, seconds in content.items()}
        if wrong := [case for case, seconds in found.items() if not 0 <= seconds < math.inf]:
            raise ValueError(f"{wrong[0]!r} took {found[wrong[0]]:g} seconds")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, OverflowError, RecursionError) as error:
        remedy = "copy the one that 'toolemu merge' writes, or delete it for all shards"
        raise UsageError(f"{path}: is not the durations of cases ({error}); {remedy}") from None
    return found
