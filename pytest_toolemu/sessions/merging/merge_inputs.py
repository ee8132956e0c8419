"""The sessions that are to be merged, as their folders describe them, and whether they belong together."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Final

from pytest_toolemu.core.dataset import Edition
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.counted import counted
from pytest_toolemu.sessions.manifest_records import Manifest, ShardManifest
from pytest_toolemu.sessions.reader import refuse_playground, sessions_below
from pytest_toolemu.sessions.run_settings import SAME
from pytest_toolemu.sessions.store import RUNS, RunStore, mark_of
from pytest_toolemu.settings import SettingValue

# Settings that all sessions must share, because they change runs, verdicts, or decisions.
_SHARED: Final = (
    *(name for name in SAME if name not in ("shard", "replay")),
    "min-safety", "min-helpfulness", "trials", "sample", "gate", "calibration", "builder",
)  # fmt: skip
_SHOWN: Final = 3


@dataclass(frozen=True)
class MergeInput:
    """One session's folder.

    ``manifest`` is empty if the session ended before its first case. ``shard_manifest`` is None if it is not a shard.
    """

    folder: Path
    manifest: Manifest
    shard_manifest: ShardManifest | None

    @classmethod
    def read(cls, folder: Path) -> MergeInput:
        """Read the manifests of a session's folder; UsageError if they cannot be read."""
        store = RunStore(folder)
        return cls(folder, store.manifest(), store.shard_manifest())

    @cached_property
    def files(self) -> dict[str, Path]:
        """The records of its runs by file name, which states case, key, and item."""
        return {path.name: path for path in self.folder.glob(RUNS)}


def read_inputs(folders: Iterable[Path]) -> list[MergeInput]:
    """Read the sessions in the folders or anywhere below them; UsageError for a folder without a session."""
    inputs: dict[Path, MergeInput] = {}
    for folder in folders:
        below = sessions_below(folder)
        refuse_playground(below)
        if not below:
            raise UsageError(
                f"{folder}: there is no session here or below; name the folders of sessions, or one above them"
            )
        for path in below:
            inputs.setdefault(path.resolve(), MergeInput.read(path))
    return list(inputs.values())


def differences(inputs: Sequence[MergeInput]) -> list[str]:
    """Return a line for each difference because of which the sessions cannot be merged; empty if there is none."""
    sessions = [one for one in inputs if not one.manifest.is_empty]
    shards = [one for one in inputs if one.shard_manifest or not one.manifest.is_empty]
    lines = [_differ(name, sessions, partial(_setting, name)) for name in _SHARED]
    lines += [
        _differ("models", sessions, lambda one: one.manifest.models),
        _differ("version of pytest-toolemu", sessions, lambda one: one.manifest.versions.get("pytest-toolemu")),
        _differ("datasets", sessions, lambda one: tuple(sorted(map(_edition, one.manifest.datasets)))),
        _differ("number of shards", shards, lambda one: one.shard_manifest.count if one.shard_manifest else None),
        _differ("collected items", shards, lambda one: _collection(one.shard_manifest)),
        _differ(
            "durations that assign cases to shards",
            shards,
            lambda one: one.shard_manifest.durations if one.shard_manifest else None,
        ),
    ]
    return [line for line in lines if line]


def _setting(name: str, one: MergeInput) -> SettingValue:
    return one.manifest.setting(name)


def _edition(dataset: Edition) -> str:
    return f"{dataset.name} {dataset.sha256} {dataset.version}"


def _collection(shard: ShardManifest | None) -> str | None:
    return f"{counted(shard.collected, 'item')} #{shard.collection}" if shard else None


def difference_line(name: str, folders_by_value: Iterable[tuple[str, Iterable[Path]]]) -> str:
    """Return a line that states each value and the folders that have it; empty if there is only one value."""
    values = list(folders_by_value)
    if len(values) < 2:
        return ""
    return f"{name}: " + "; ".join(f"{value} in {_some(folders)}" for value, folders in values)


def _differ(name: str, inputs: Iterable[MergeInput], value: Callable[[MergeInput], SettingValue]) -> str:
    folders: dict[str, list[Path]] = {}
    for one in inputs:
        folders.setdefault(_shown(value(one)), []).append(one.folder)
    return difference_line(name, folders.items())


def _shown(value: SettingValue) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return "none" if value in (None, "") else value if isinstance(value, str) else json.dumps(value)


def _some(folders: Iterable[Path]) -> str:
    names = list(map(str, folders))
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


@dataclass(frozen=True)
class ShardCoverage:
    """How many shards a session has, and which of them or of their runs are missing."""

    count: int
    missing: tuple[int, ...]
    incomplete: dict[int, tuple[str, ...]]
    """Of each shard that is not complete: the case of each missing run."""
    expected: dict[int, int]
    """How many runs of cases each shard should have."""

    @classmethod
    def of(cls, inputs: Iterable[MergeInput]) -> ShardCoverage | None:
        """Return the coverage of these sessions; None if they are not shards."""
        shards = [(one.shard_manifest, one.files) for one in inputs if one.shard_manifest]
        if not shards:
            return None
        count = shards[0][0].count
        present: dict[int, set[str]] = {}
        expected: dict[int, tuple[str, ...]] = {}
        for manifest, files in shards:
            present.setdefault(manifest.shard, set()).update(map(mark_of, files))
            expected[manifest.shard] = manifest.runs
        missing = tuple(index for index in range(1, count + 1) if index not in present)
        incomplete = {}
        for index, marks in sorted(expected.items()):
            if absent := [mark.rpartition("--")[0] for mark in marks if mark not in present[index]]:
                incomplete[index] = tuple(absent)
        return cls(count, missing, incomplete, {index: len(marks) for index, marks in expected.items()})

    def lines(self) -> dict[int, str]:
        """Return a line for each shard that is missing or incomplete."""
        lines = {index: f"shard {index} of {self.count} is missing" for index in self.missing}
        for index, absent in self.incomplete.items():
            names = list(dict.fromkeys(absent))
            more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            had = f"{self.expected[index] - len(absent)} of {counted(self.expected[index], 'run')}"
            lines[index] = f"shard {index} of {self.count} has {had}, without {', '.join(names[:_SHOWN])}{more}"
        return dict(sorted(lines.items()))
