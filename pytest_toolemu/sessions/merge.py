"""Sessions made into one: a folder like that of any session, so that whatever reads one reads the whole."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from pytest_toolemu.analysis.run_row import RunRow
from pytest_toolemu.analysis.summary import total_costs
from pytest_toolemu.core.identity import component_name
from pytest_toolemu.core.run import Run
from pytest_toolemu.core.run_file import PARTS, join_parts, part_path, read_run_file
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.atomic_write import write_json_text
from pytest_toolemu.formats.private_folders import is_private, make_subfolder
from pytest_toolemu.models.pricing import Prices, costs_of
from pytest_toolemu.sessions.merge_conflicts import choose
from pytest_toolemu.sessions.merge_parts import ShardPart, Shards, differ, differences, read_parts
from pytest_toolemu.sessions.merge_target import refuse_foreign, replace_folder
from pytest_toolemu.sessions.planned_cases import PLANNED, combined
from pytest_toolemu.sessions.reader import prices_of
from pytest_toolemu.sessions.shards import DURATIONS
from pytest_toolemu.sessions.store import RunStore

_SHOWN: Final = 20

MERGED: Final = "merged_from"
"""In a manifest: the folders of the sessions that it is made of."""


@dataclass(frozen=True)
class Merged:
    """The whole. ``notes`` tell of conflicts and of what is missing."""

    rows: tuple[RunRow, ...]
    sessions: int
    shards: Shards | None
    notes: tuple[str, ...]


def merge(folders: Iterable[Path], into: Path, without: Collection[int] = ()) -> Merged:
    """Put the sessions in and below the folders together, as a new folder; one that an earlier merge made is replaced.

    ``without`` names the shards that may be missing, whole or in part. UsageError, and nothing is written, where the
    sessions are not of one configuration, another shard is missing, or ``into`` is something else.
    """
    refuse_foreign(into)
    parts = [part for part in read_parts(folders) if part.folder.resolve() != into.resolve()]
    if not parts:
        raise UsageError(f"{into}: there is nothing to merge but what an earlier merge has put there")
    if found := differences(parts):
        raise _unlike(found)
    shards = Shards.of(parts)
    gaps = shards.lines() if shards else {}
    _refuse_gaps(gaps, without)
    chosen = {name: choose(name, parts) for name in sorted({name for part in parts for name in part.files})}
    if not chosen:
        raise UsageError("the sessions have no runs: there is nothing to merge; run cases first")
    manifest = _manifest(parts, into, shards, gaps)
    records = [found.path for found in chosen.values()]
    rows, files = _read(records, prices_of(part.folder for part in parts))
    manifest["cost"] = {role: asdict(cost) for role, cost in total_costs(rows).items()}
    _write(into, files, manifest, durations(rows))
    kept = tuple(row.model_copy(update={"path": str(into / Path(row.path).name)}) for row in rows)
    notes = (*gaps.values(), *(found.conflict for found in chosen.values() if found.conflict))
    return Merged(kept, len(parts), shards, notes)


def durations(rows: Iterable[RunRow]) -> dict[str, float]:
    """Mean seconds of a run of each case, which divide the next session evenly."""
    found: dict[str, list[float]] = {}
    for row in rows:
        found.setdefault(row.case, []).append(row.seconds)
    return {case: round(fmean(found[case]), 3) for case in sorted(found)}


def _unlike(lines: Sequence[str]) -> UsageError:
    told = "\n".join(f"  {line}" for line in lines)
    remedy = "run them with one configuration; different ones are compared with 'toolemu compare'"
    return UsageError(f"the sessions are not parts of one:\n{told}\n{remedy}")


def _refuse_gaps(gaps: Mapping[int, str], without: Collection[int]) -> None:
    if refused := [index for index in gaps if index not in without]:
        told = "\n".join(f"  {gaps[index]}" for index in refused[:_SHOWN])
        allowed = " ".join(f"--without={index}" for index in refused[:_SHOWN])
        if len(refused) > _SHOWN:
            told, allowed = f"{told}\n  and {len(refused) - _SHOWN:,} more shards", f"{allowed} ..."
        raise UsageError(
            f"the whole is not there:\n{told}\n"
            f"run these again with --toolemu-resume, or merge what there is with {allowed}"
        )


def _manifest(parts: Sequence[ShardPart], into: Path, shards: Shards | None, gaps: Mapping[int, str]) -> dict[str, Any]:
    """Of the first session, but for what is a shard's own."""
    first = next((part.manifest for part in parts if part.manifest), {})
    settings = {name: value for name, value in first.get("settings", {}).items() if name != "shard"}
    short = sum(map(len, shards.short.values())) if shards else 0
    return {
        **first,
        "session": into.name,
        "settings": settings,
        "resumed_from": [],
        PLANNED: combined(part.manifest for part in parts),
        "not_run": short,
        "servers": [server for part in parts for server in part.manifest.get("servers", ())],
        MERGED: [os.path.relpath(part.folder, into.parent) for part in parts],
        "shards": shards.count if shards else None,
        "missing": list(gaps.values()),
    }


def _read(paths: Iterable[Path], prices: Prices) -> tuple[list[RunRow], dict[str, Path]]:
    """Return the rows, and all files that the merged session needs, by their names in its folder.

    UsageError if agents of one name differ, or if a record is incomplete.
    """
    rows = []
    files: dict[str, Path] = {}
    agents: dict[str, dict[Path, set[str]]] = {}
    for path in paths:
        record = read_run_file(path)
        run = record if isinstance(record, Run) else join_parts(record, path)
        files[path.name] = path
        for name in () if isinstance(record, Run) else record.parts:
            source = part_path(path.parent, name)
            files.setdefault(source.relative_to(path.parent).as_posix(), source)
        # Also of runs that a part took over from a former attempt at it: together they are what the whole has cost.
        paid = [exchange for exchange in run.exchanges if not exchange.replayed]
        rows.append(RunRow.of(run, str(path), costs_of(paid, prices) if paid else {}))
        agents.setdefault(rows[-1].agent, {}).setdefault(path.parent, set()).add(_agent(run))
    if found := [line for agent, by in agents.items() if (line := _other_agents(agent, by))]:
        raise _unlike(found)
    return rows, files


def _agent(run: Run) -> str:
    return str(component_name(run.identity.agent))


def _other_agents(agent: str, by: Mapping[Path, set[str]]) -> str:
    """A fixture may make another agent for each case; but where each session had one, it must be the same."""
    if any(len(known) > 1 for known in by.values()):
        return ""
    found: dict[str, list[Path]] = {}
    for folder, known in by.items():
        found.setdefault(next(iter(known)), []).append(folder)
    return differ(f"agent {agent}", found.items())


def _write(into: Path, files: Mapping[str, Path], manifest: dict[str, Any], seconds: Mapping[str, float]) -> None:
    """Write the folder, whole or not at all. Files are linked where the disk can: they are only ever replaced."""
    sources = {path.parent for name, path in files.items() if "/" not in name}
    # As private as the most private of its parts.
    private = any(map(is_private, sources))

    def fill(made: Path) -> None:
        for name, path in files.items():
            if "/" in name:
                make_subfolder(made, PARTS)
            _link(path, made / name)
        write_json_text(made / DURATIONS, json.dumps(dict(seconds), indent=1) + "\n")
        RunStore(made).put_manifest(manifest)

    try:
        replace_folder(into, fill, private=private)
    except OSError as error:
        raise UsageError(f"--into: {into} cannot be written: {error.strerror}; name another folder") from None


def _link(source: Path, target: Path) -> None:
    try:
        target.hardlink_to(source)
    except OSError:  # another disk, or one that knows no links
        shutil.copyfile(source, target)
