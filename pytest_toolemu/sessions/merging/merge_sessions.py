"""Merge sessions. The result is the folder of a session, so everything that reads sessions can read it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Final

from pytest_toolemu.analysis.agent_summary import total_costs
from pytest_toolemu.analysis.run_summary import RunSummary
from pytest_toolemu.analysis.summarize_run import summary_of
from pytest_toolemu.core.identity import component_name
from pytest_toolemu.core.messages import Role
from pytest_toolemu.core.run import Run
from pytest_toolemu.core.run_file import PARTS, join_parts, part_path, read_run_file
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.files.atomic_write import write_json_text
from pytest_toolemu.formats.files.private_folders import is_private, make_subfolder
from pytest_toolemu.models.pricing import Cost, PriceList, Prices, costs_of
from pytest_toolemu.sessions.manifest_records import Manifest
from pytest_toolemu.sessions.merging.merge_conflicts import choose
from pytest_toolemu.sessions.merging.merge_inputs import (
    MergeInput,
    ShardCoverage,
    difference_line,
    differences,
    read_inputs,
)
from pytest_toolemu.sessions.merging.merged_folder import refuse_foreign, replace_folder
from pytest_toolemu.sessions.planned_cases import combined, completed
from pytest_toolemu.sessions.reader import prices_of, superseded_files
from pytest_toolemu.sessions.shard_assignment import DURATIONS
from pytest_toolemu.sessions.store import RunStore
from pytest_toolemu.sessions.world_builds import merged_worlds

_SHOWN: Final = 20


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
        [record.path for record in chosen.values()], prices, has_built_worlds=first.text_setting("world") == "built"
    )
    manifest = _manifest(first, inputs, into, shards, gaps, runs)
    _write(into, files, manifest.model_copy(update={"prices": prices.of_user}), durations(runs))
    moved = tuple(run.model_copy(update={"path": str(into / Path(run.path).name)}) for run in runs)
    conflicts = (record.conflict for record in chosen.values())
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
        # Negative in sessions of earlier versions, if the clock was set back during the run.
        seconds.setdefault(run.case, []).append(max(0.0, run.seconds))
    return {case: round(fmean(seconds[case]), 3) for case in sorted(seconds)}


def _different(lines: Sequence[str]) -> UsageError:
    listed = "\n".join(f"  {line}" for line in lines)
    remedy = "run them with the same configuration, or compare different configurations with 'toolemu compare'"
    return UsageError(f"the sessions do not belong together:\n{listed}\n{remedy}")


def _refuse_gaps(gaps: Mapping[int, str], without: Collection[int]) -> None:
    """Raise UsageError if a shard is missing or incomplete that ``without`` does not name."""
    if refused := [index for index in gaps if index not in without]:
        listed = "\n".join(f"  {gaps[index]}" for index in refused[:_SHOWN])
        allowed = " ".join(f"--without={index}" for index in refused[:_SHOWN])
        if len(refused) > _SHOWN:
            listed, allowed = f"{listed}\n  and {len(refused) - _SHOWN:,} more shards", f"{allowed} ..."
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
    folders: dict[str, list[Path]] = {}
    for folder, values in by_folder.items():
        folders.setdefault(next(iter(values)), []).append(folder)
    return difference_line(name, folders.items())


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
        write_json_text(folder / DURATIONS, json.dumps(dict(seconds), indent=1) + "\n")
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
