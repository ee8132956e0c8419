"""The sessions that are to be merged, as their folders describe them, and whether they belong together."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any, Final, Literal

from pytest_toolemu.analysis.metrics import total_costs
from pytest_toolemu.analysis.run_summary import RunSummary, summary_of
from pytest_toolemu.core.identity import component_name
from pytest_toolemu.core.messages import Role
from pytest_toolemu.core.run import Run
from pytest_toolemu.core.run_file import PARTS, join_parts, load_run, part_path, read_run_file
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.file_access import is_private, make_folder, make_subfolder, read_record, write_atomically
from pytest_toolemu.formats.text import counted
from pytest_toolemu.formats.yaml_document import Record
from pytest_toolemu.models.pricing import Cost, PriceList, Prices, costs_of
from pytest_toolemu.sessions.manifest_records import SAME, Manifest, ShardManifest, merged_worlds
from pytest_toolemu.sessions.shard_assignment import DURATIONS
from pytest_toolemu.sessions.store import (
    RUNS,
    RunStore,
    mark_of,
    prices_of,
    refuse_playground,
    sessions_below,
    superseded_files,
)
from pytest_toolemu.sessions.stored_decision import combined, completed
from pytest_toolemu.settings.option_table import REPORT, SettingValue

# Settings that all sessions must share, because they change runs, verdicts, or decisions.
_SHARED: Final = (
    *(name for name in SAME if name not in ("shard", "replay")),
    "min-safety", "min-helpfulness", "trials", "sample", "gate", "calibration", "builder",
)  # fmt: skip
_SHOWN: Final = 3
_SHARDS_SHOWN: Final = 20


_SHARED_BY_SHARDS: Final = {
    "count": "number of shards",
    "collection": "collected items",
    "durations": "durations that assign cases to shards",
}


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
    values: dict[str, list[tuple[Path, SettingValue]]] = {
        **{name: [(one.folder, one.manifest.setting(name)) for one in sessions] for name in _SHARED},
        "models": [(one.folder, one.manifest.models) for one in sessions],
        "version of pytest-toolemu": [(one.folder, one.manifest.versions.get("pytest-toolemu")) for one in sessions],
        "datasets": [(one.folder, tuple(sorted(map(str, one.manifest.datasets)))) for one in sessions],
    }
    for name, title in _SHARED_BY_SHARDS.items():
        values[title] = [(one.folder, getattr(one.shard_manifest, name, None)) for one in shards]
    lines = (difference_line(name, [(_shown(value), folder) for folder, value in of]) for name, of in values.items())
    return [line for line in lines if line]


def difference_line(name: str, values: Iterable[tuple[str, Path]]) -> str:
    """Return a line that states each value and the folders that have it; empty if there is only one value."""
    folders: dict[str, list[str]] = {}
    for value, folder in values:
        folders.setdefault(value, []).append(str(folder))
    listed = "; ".join(f"{value} in {_some(of_value)}" for value, of_value in folders.items())
    return f"{name}: {listed}" if len(folders) > 1 else ""


def _shown(value: SettingValue) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return "none" if value in (None, "") else value if isinstance(value, str) else json.dumps(value)


def _some(texts: Iterable[str]) -> str:
    names = list(texts)
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
            had = f"{self.expected[index] - len(absent)} of {counted(self.expected[index], 'run')}"
            lines[index] = f"shard {index} of {self.count} has {had}, without {_some(dict.fromkeys(absent))}"
        return dict(sorted(lines.items()))


# Fields in which two records of the same attempt may differ: who resumed it, which thresholds decided it since, and
# what a resumed session updates of the case.
_PROVENANCE = {
    "source", "resumed_from", "recording", "thresholds", "outcome", "reasons", "case", "toolkits", "dataset",
}  # fmt: skip


def choose(name: str, paths: Sequence[Path]) -> tuple[Path, str]:
    """Choose among all records with this file name; return it with a note on other finished ones of the same run.

    A finished run takes precedence over a broken one, then the earlier run over the later one. The result never
    decides, because that would bias the results in its direction.
    """
    if len(paths) == 1:
        return paths[0], ""
    runs = [(load_run(path), path) for path in paths]
    finished = [pair for pair in runs if pair[0].outcome != "broken"] or runs
    finished.sort(key=lambda pair: (pair[0].started, str(pair[1])))
    first, path = finished[0]
    others = [pair for pair in finished[1:] if _attempt(pair[0]) != _attempt(first)]
    if first.outcome == "broken" or not others:
        return path, ""
    listed = ", ".join(f"{run.outcome} in {at.parent}" for run, at in others)
    return path, f"{name}: run more than once: {first.outcome} in {path.parent}, which is kept, and {listed}"


def _attempt(run: Run) -> dict[str, Any]:
    return run.model_dump(mode="json", exclude=_PROVENANCE)


CONTENTS: Final = "merge.json"
"""File in a merged folder: the other files that the merge wrote, each with a hash of its content."""

_REMEDY: Final = "name another folder with --into, or delete this one"


class Contents(Record):
    """The files of a merged session, by their names in its folder."""

    version: Literal[1] = 1
    files: tuple[str, ...]


def refuse_foreign(into: Path) -> None:
    """Raise UsageError unless the folder may be replaced: it is new or empty, or holds what an earlier merge wrote.

    Reports of the earlier merge may be there too; they are kept.
    """
    if into.is_symlink() or (into.exists() and not into.is_dir()):
        raise UsageError(f"--into: {into} is not a folder; name a folder with --into")
    names = list(_entries(into)) if into.exists() else []
    if not names:
        return
    try:
        contents = read_record(into / CONTENTS, Contents, expected="the list of merged files", remedy=_REMEDY)
    except FileNotFoundError:
        raise UsageError(f"--into: {into} exists and was not created by 'toolemu merge'; {_REMEDY}") from None
    known = {CONTENTS, *contents.files}
    if foreign := [name for name in names if name not in known and not name.startswith(f"{REPORT}.")]:
        raise UsageError(f"--into: {into} contains {foreign[0]}, which 'toolemu merge' did not write; {_REMEDY}")


def replace_folder(into: Path, fill: Callable[[Path], None], *, private: bool) -> None:
    """Write the new content next to the folder with ``fill``, then replace the folder: whole or not at all.

    Raise OSError if the disk refuses. Reports in the former folder are kept.
    """
    mark = secrets.token_hex(4)
    new, former = into.with_name(f".toolemu-{mark}.tmp"), into.with_name(f".toolemu-{mark}.old.tmp")
    try:
        make_folder(new, private=private)
        fill(new)
        contents = Contents(files=tuple(_entries(new)))
        write_atomically(new / CONTENTS, contents.model_dump_json(indent=1) + "\n")
        if into.exists():
            into.rename(former)
        new.rename(into)
        for report in former.glob(f"{REPORT}.*"):
            report.rename(into / report.name)
        shutil.rmtree(former, ignore_errors=True)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _entries(folder: Path) -> Iterator[str]:
    """Yield the names of everything in a folder; of the folder of parts, the names of the files in it."""
    for path in sorted(folder.iterdir()):
        inside = sorted(path.iterdir()) if path.name == PARTS and path.is_dir() and not path.is_symlink() else []
        yield from (f"{PARTS}/{part.name}" for part in inside) if inside else (path.name,)


@dataclass(frozen=True)
class MergedSession:
    """The result of a merge. ``notes`` describe conflicts and what is missing."""

    runs: tuple[RunSummary, ...]
    sessions: int
    shards: ShardCoverage | None
    notes: tuple[str, ...]


def merge_sessions(folders: Iterable[Path], into: Path, without: Collection[int] = ()) -> MergedSession:
    """Merge the sessions in and below the folders into a folder; the result of an earlier merge is replaced.

    ``without`` names the shards that may be missing or incomplete. UsageError, and nothing is written, if the sessions
    have different configurations, another shard is missing, or ``into`` was not created by a merge.
    """
    refuse_foreign(into)
    inputs = [one for one in read_inputs(folders) if one.folder.resolve() != into.resolve()]
    if not inputs:
        raise UsageError(f"{into}: contains only the result of an earlier merge; name the sessions to merge")
    if lines := differences(inputs):
        raise _different(lines)
    shards = ShardCoverage.of(inputs)
    gaps = shards.lines() if shards else {}
    _refuse_gaps(gaps, without)
    # A session that resumed others takes precedence over them.
    superseded = superseded_files([one.folder for one in inputs])
    paths: dict[str, list[Path]] = {}
    for one in inputs:
        for name, path in one.files.items():
            if path not in superseded:
                paths.setdefault(name, []).append(path)
    chosen = {name: choose(name, paths[name]) for name in sorted(paths)}
    if not chosen:
        raise UsageError("the sessions have no runs: there is nothing to merge; run cases first")
    manifests = completed([one.folder for one in inputs], [one.manifest for one in inputs])
    first = next((manifest for manifest in manifests if not manifest.is_empty), Manifest())
    prices, note = _prices([one.folder for one in inputs if one.files])
    runs, files = _read(
        [path for path, _ in chosen.values()], prices, has_built_worlds=first.text_setting("world") == "built"
    )
    manifest = _manifest(first, inputs, into, shards, gaps, runs)
    _write(into, files, manifest.model_copy(update={"prices": prices.of_user}), durations(runs))
    moved = tuple(run.model_copy(update={"path": str(into / Path(run.path).name)}) for run in runs)
    conflicts = (conflict for _, conflict in chosen.values())
    return MergedSession(moved, len(inputs), shards, tuple(filter(None, (*gaps.values(), *conflicts, note))))


def _prices(folders: Sequence[Path]) -> tuple[Prices, str]:
    """Return the prices of all sessions, those of the first one first, and a note if the sessions had different ones.

    The merged session prices all its runs alike, as it does when it is read later.
    """
    lists = [prices_of(folder).of_user for folder in folders]
    differing = [folder for folder, of_session in zip(folders, lists, strict=True) if of_session != lists[0]]
    merged: list[PriceList] = []
    for listed in chain.from_iterable(lists):
        if listed not in merged:
            merged.append(listed)
    note = ""
    if differing:
        note = (
            f"the sessions had different prices, such as {folders[0]} and {differing[0]}; of a model with several, the "
            "first one is used for all runs; report the sessions without merging them if each should keep its own"
        )
    return Prices.with_shipped(merged), note


def durations(runs: Iterable[RunSummary]) -> dict[str, float]:
    """Return mean seconds of a run of each case, by which the next session is divided evenly."""
    seconds: dict[str, list[float]] = {}
    for run in runs:
        seconds.setdefault(run.case, []).append(run.seconds)
    return {case: round(fmean(seconds[case]), 3) for case in sorted(seconds)}


def _different(lines: Sequence[str]) -> UsageError:
    listed = "\n".join(f"  {line}" for line in lines)
    remedy = "run them with the same configuration, or compare different configurations with 'toolemu compare'"
    return UsageError(f"the sessions do not belong together:\n{listed}\n{remedy}")


def _refuse_gaps(gaps: Mapping[int, str], without: Collection[int]) -> None:
    """Raise UsageError if a shard is missing or incomplete that ``without`` does not name."""
    if refused := [index for index in gaps if index not in without]:
        listed = "\n".join(f"  {gaps[index]}" for index in refused[:_SHARDS_SHOWN])
        allowed = " ".join(f"--without={index}" for index in refused[:_SHARDS_SHOWN])
        if len(refused) > _SHARDS_SHOWN:
            listed, allowed = f"{listed}\n  and {len(refused) - _SHARDS_SHOWN:,} more shards", f"{allowed} ..."
        raise UsageError(
            f"the merged session would be incomplete:\n{listed}\n"
            f"run these shards again with --toolemu-resume, or merge the others with {allowed}"
        )


def _manifest(
    first: Manifest,
    inputs: Sequence[MergeInput],
    into: Path,
    shards: ShardCoverage | None,
    gaps: Mapping[int, str],
    runs: Sequence[RunSummary],
) -> Manifest:
    """Return the first manifest with everything replaced that belongs to one session only."""
    manifests = [one.manifest for one in inputs]
    builder_costs = [cost for manifest in manifests if (cost := manifest.cost.get("builder"))]
    builder_cost: dict[Role, Cost] = {"builder": sum(builder_costs, Cost())} if builder_costs else {}
    merged = Manifest(
        session=into.name,
        settings={name: value for name, value in first.settings.items() if name != "shard"},
        resumed_from=(),
        planned=combined(manifests),
        not_run=sum(map(len, shards.incomplete.values())) if shards else 0,
        worlds=merged_worlds([manifest.worlds for manifest in manifests if manifest.worlds]),
        servers=tuple(server for manifest in manifests for server in manifest.servers),
        merged_from=tuple(os.path.relpath(one.folder, into.parent) for one in inputs),
        shards=shards.count if shards else None,
        missing=tuple(gaps.values()),
        cost=total_costs(runs) | builder_cost,
    )
    return first.model_copy(update={name: getattr(merged, name) for name in merged.model_fields_set})


def _read(paths: Iterable[Path], prices: Prices, *, has_built_worlds: bool) -> tuple[list[RunSummary], dict[str, Path]]:
    """Return summaries of the runs, and all files that the merged session needs, by their names in its folder.

    UsageError if agents of one name differ, if sessions met a case in different built worlds, or if a record is
    incomplete.
    """
    run_summaries = []
    files: dict[str, Path] = {}
    agents: dict[str, dict[Path, set[str]]] = {}
    worlds: dict[str, dict[Path, set[str]]] = {}
    for path in paths:
        record = read_run_file(path)
        run = record if isinstance(record, Run) else join_parts(record, path)
        files[path.name] = path
        for name in () if isinstance(record, Run) else record.parts:
            source = part_path(path.parent, name)
            files.setdefault(source.relative_to(path.parent).as_posix(), source)
        # Runs that a session resumed count as well: all attempts together are what the merged session has cost.
        paid = [call for call in run.model_calls if not call.replayed]
        costs = costs_of(paid, prices) if paid else {}
        run_summaries.append(summary_of(run, str(path), costs, lambda: prices))
        agent = str(component_name(run.identity.agent))
        agents.setdefault(run_summaries[-1].agent, {}).setdefault(path.parent, set()).add(agent)
        world = f"{run.case_id}, trial {run.trial}"
        worlds.setdefault(world, {}).setdefault(path.parent, set()).add(f"#{run.hashes['case'][:8]}")
    lines = [line for agent, by_folder in agents.items() if (line := _difference(f"agent {agent}", by_folder))]
    if has_built_worlds:
        lines += [line for world, by_folder in worlds.items() if (line := _difference(f"world of {world}", by_folder))]
    if lines:
        raise _different(lines)
    return run_summaries, files


def _difference(name: str, by_folder: Mapping[Path, set[str]]) -> str:
    """Return a line if an agent, or a world, of this name is not the same in all sessions.

    A fixture may make another agent, or another case, for each item, so sessions with several of one name are not
    compared.
    """
    if any(len(values) > 1 for values in by_folder.values()):
        return ""
    return difference_line(name, ((next(iter(values)), folder) for folder, values in by_folder.items()))


def _write(into: Path, files: Mapping[str, Path], manifest: Manifest, seconds: Mapping[str, float]) -> None:
    """Write the folder, whole or not at all. Files are linked if possible, as they are only ever replaced."""
    sources = {path.parent for name, path in files.items() if "/" not in name}
    # As private as the most private of the sessions.
    private = any(map(is_private, sources))

    def fill(folder: Path) -> None:
        for name, path in files.items():
            if "/" in name:
                make_subfolder(folder, PARTS)
            _link(path, folder / name)
        write_atomically(folder / DURATIONS, json.dumps(dict(seconds), indent=1) + "\n")
        RunStore(folder).put_manifest(manifest)

    try:
        replace_folder(into, fill, private=private)
    except OSError as error:
        raise UsageError(f"--into: {into} cannot be written: {error.strerror}; name another folder") from None


def _link(source: Path, target: Path) -> None:
    """Link a file. Copy it if that fails, or if it is a symbolic link, which may lead nowhere from another folder."""
    if not source.is_symlink():
        with contextlib.suppress(OSError):  # on another disk, or without support for links
            target.hardlink_to(source)
            return
    shutil.copyfile(source, target)
