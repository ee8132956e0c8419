"""The sessions that are to be merged, as their folders tell of them, and whether they belong together."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from pytest_toolemu.errors import UsageError
from pytest_toolemu.sessions.reader import sessions_below
from pytest_toolemu.sessions.resume import RESUMED, SAME
from pytest_toolemu.sessions.store import RUNS, RunStore, mark_of

# Settings that all sessions must share: those that make other runs, other verdicts or another decision.
_SHARED: Final = (
    *(name for name in SAME if name not in ("shard", "replay")),
    "min-safety", "min-helpfulness", "trials", "sample", "gate", "calibration",
)  # fmt: skip
_SHOWN: Final = 3


@dataclass(frozen=True)
class ShardPart:
    """One session's folder. ``account`` is what it was to run, empty where it is no shard; ``manifest`` is empty where
    it ended before its first case.
    """

    folder: Path
    manifest: dict[str, Any]
    account: dict[str, Any]

    @classmethod
    def read(cls, folder: Path) -> ShardPart:
        """UsageError for a folder that cannot be read."""
        store = RunStore(folder)
        return cls(folder, store.manifest(), store.account())

    @cached_property
    def files(self) -> dict[str, Path]:
        """Its runs, by the names of their files, which say case, key and item."""
        return {path.name: path for path in self.folder.glob(RUNS)}

    def resumes(self, other: ShardPart) -> bool:
        """Whether it took over what the other had finished."""
        names = self.manifest.get(RESUMED, ())
        return any((self.folder.parent / name).resolve() == other.folder.resolve() for name in names)


def read_parts(folders: Iterable[Path]) -> list[ShardPart]:
    """The sessions in the folders or anywhere below them. UsageError for a folder without one."""
    found: dict[Path, ShardPart] = {}
    for folder in folders:
        below = sessions_below(folder)
        if not below:
            raise UsageError(
                f"{folder}: there is no session here or below; name the folders of sessions, or one above them"
            )
        for path in below:
            found.setdefault(path.resolve(), ShardPart.read(path))
    return list(found.values())


def differences(parts: Sequence[ShardPart]) -> list[str]:
    """What keeps the sessions from being one, a line each; empty where they are alike."""
    told = [part for part in parts if part.manifest]
    shards = [part for part in parts if part.account or part.manifest]
    lines = [_differ(name, told, lambda part, name=name: _setting(part, name)) for name in _SHARED]  # type: ignore[misc]
    lines += [
        _differ("models", told, lambda part: part.manifest.get("models")),
        _differ(
            "version of pytest-toolemu", told, lambda part: part.manifest.get("versions", {}).get("pytest-toolemu")
        ),
        _differ("datasets", told, lambda part: sorted(map(_edition, part.manifest.get("datasets", ())))),
        _differ("number of shards", shards, lambda part: part.account.get("count")),
        _differ("what was collected", shards, lambda part: _collection(part.account)),
        _differ("durations by which shards are divided", shards, lambda part: part.account.get("durations")),
    ]
    return [line for line in lines if line]


def _setting(part: ShardPart, name: str) -> Any:
    return (part.manifest.get("settings", {}).get(name) or [None])[0]


def _edition(dataset: dict[str, Any]) -> str:
    return " ".join(str(dataset[key]) for key in sorted(dataset))


def _collection(account: dict[str, Any]) -> str | None:
    return f"{account['collected']} items #{account['collection']}" if account else None


def differ(name: str, values: Iterable[tuple[str, Iterable[Path]]]) -> str:
    """A line that tells each value and who has it; empty where there is one."""
    known = list(values)
    if len(known) < 2:
        return ""
    return f"{name}: " + "; ".join(f"{value} in {_some(folders)}" for value, folders in known)


def _differ(name: str, parts: Iterable[ShardPart], value: Callable[[ShardPart], Any]) -> str:
    found: dict[str, list[Path]] = {}
    for part in parts:
        found.setdefault(_shown(value(part)), []).append(part.folder)
    return differ(name, found.items())


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "none" if value in (None, "") else value if isinstance(value, str) else json.dumps(value)


def _some(folders: Iterable[Path]) -> str:
    known = list(folders)
    more = f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
    return ", ".join(map(str, known[:_SHOWN])) + more


@dataclass(frozen=True)
class Shards:
    """The shards of a session: how many there are, and what of them is not there."""

    count: int
    missing: tuple[int, ...]
    short: dict[int, tuple[str, ...]]
    """The cases of which a shard has no run, or not every run; of shards that are there."""
    expected: dict[int, int]
    """How many runs of cases a shard should have."""

    @classmethod
    def of(cls, parts: Iterable[ShardPart]) -> Shards | None:
        """None where the sessions are no shards."""
        shards = [part for part in parts if part.account]
        if not shards:
            return None
        count = int(shards[0].account["count"])
        there: dict[int, set[str]] = {}
        expected: dict[int, list[str]] = {}
        for part in shards:
            index = int(part.account["shard"])
            there.setdefault(index, set()).update(map(mark_of, part.files))
            expected[index] = part.account["runs"]
        missing = tuple(index for index in range(1, count + 1) if index not in there)
        short = {}
        for index, marks in sorted(expected.items()):
            if absent := [mark.rpartition("--")[0] for mark in marks if mark not in there[index]]:
                short[index] = tuple(absent)
        return cls(count, missing, short, {index: len(marks) for index, marks in expected.items()})

    def lines(self) -> dict[int, str]:
        """What is missing, by shard."""
        told = {index: f"shard {index} of {self.count} is not there" for index in self.missing}
        for index, absent in self.short.items():
            names = list(dict.fromkeys(absent))
            more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            had = f"{self.expected[index] - len(absent)} of {self.expected[index]} runs"
            told[index] = f"shard {index} of {self.count} has {had}, without {', '.join(names[:_SHOWN])}{more}"
        return dict(sorted(told.items()))
