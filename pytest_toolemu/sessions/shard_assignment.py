"""Assign tests to shards. Names alone decide, so that shards need not know anything about each other."""

from __future__ import annotations

import hashlib
import heapq
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import Field, RootModel

from pytest_toolemu.formats.file_access import read_record

if TYPE_CHECKING:
    from pytest_toolemu.sessions.manifest_records import Manifest

DURATIONS: Final = "toolemu-durations.json"
"""File next to the ini file: mean seconds of a run of each case, by case ID. ``toolemu merge`` writes one."""

SHARD_MANIFEST: Final = "shard.json"
"""File in the folder of a shard's session: what the shard was to run, for ``toolemu merge``."""


@dataclass(frozen=True)
class Shard:
    """One of ``count`` parts of a session, numbered from 1."""

    index: int
    count: int

    @classmethod
    def of(cls, text: str) -> Shard:
        """Parse ``3/8``; ValueError for anything else."""
        index, _, count = text.partition("/")
        shard = cls(int(index), int(count))
        if not 1 <= shard.index <= shard.count:
            raise ValueError(text)
        return shard

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


@dataclass(frozen=True)
class ShardAssignment:
    """Which shard runs which case. ``places`` has the shards of cases with known durations, by case ID.

    A hash of the name assigns all other cases and tests. Neither the order of files nor the selection of other cases
    changes an assignment.
    """

    count: int
    places: Mapping[str, int] = field(default_factory=dict)
    durations: str = ""
    """Hash of the durations; empty without durations. Shards belong together only if all of them have the same."""

    @classmethod
    def balanced(cls, count: int, seconds: Mapping[str, float]) -> ShardAssignment:
        """Assign the cases by their ``seconds``: the longest first, each to the shard with the least so far."""
        if not seconds:
            return cls(count)
        loads = [(0.0, index) for index in range(1, count + 1)]
        shards = {}
        for case in sorted(seconds, key=lambda case: (-seconds[case], case)):
            load, index = loads[0]
            shards[case] = index
            heapq.heapreplace(loads, (load + seconds[case], index))
        text = json.dumps(dict(sorted(seconds.items())))
        return cls(count, shards, hashlib.sha256(text.encode()).hexdigest()[:12])

    def place(self, name: str) -> int:
        """Return the shard of a case, given its ID, or of another test, given its node ID."""
        assigned = self.places.get(name)
        if assigned is not None:
            return assigned
        return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) % self.count + 1


def gaps(manifests: Sequence[Manifest]) -> list[str]:
    """Return a line for all that is missing of these sessions: cases, what a merge went without, and other shards."""
    stopped = [manifest.stopped_early for manifest in manifests if manifest.stopped_early]
    return stopped + [line for manifest in manifests for line in manifest.missing] + absent(manifests)


def absent(manifests: Iterable[Manifest]) -> list[str]:
    """Return a line for each missing shard of a session of which other shards are among these manifests."""
    present: dict[int, set[int]] = {}
    for manifest in manifests:
        if text := manifest.text_setting("shard"):
            shard = Shard.of(text)
            present.setdefault(shard.count, set()).add(shard.index)
    return [
        f"shard {index} of {count} is missing"
        for count, indices in present.items()
        for index in range(1, count + 1)
        if index not in indices
    ]


def read_durations(path: Path) -> dict[str, float]:
    """Return seconds by case ID; empty if there is no such file.

    UsageError if the file is invalid: without it, the shard would run other cases than the other shards expect.
    """
    remedy = "copy the file that 'toolemu merge' writes, or delete the file for all shards"
    try:
        return read_record(path, _Durations, expected="a file of durations by case", remedy=remedy).root
    except FileNotFoundError:
        return {}


class _Durations(RootModel[dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]]]):
    """Seconds by case ID."""
