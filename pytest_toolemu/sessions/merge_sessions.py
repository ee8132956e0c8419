"""Merge the sessions in folders into one, if they belong together."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from pytest_toolemu.analysis.metrics import total_costs
from pytest_toolemu.analysis.run_summary import RunSummary, summary_of
from pytest_toolemu.core.identity import component_name
from pytest_toolemu.core.run import Run
from pytest_toolemu.core.run_file import PARTS, join_parts, load_run, part_path, read_run_file
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.file_access import is_private, make_folder, make_subfolder, write_atomically
from pytest_toolemu.formats.text import counted
from pytest_toolemu.models.pricing import Cost, Prices, costs_of
from pytest_toolemu.sessions.manifest_records import SAME, Manifest, ShardManifest, merged_worlds
from pytest_toolemu.sessions.shard_assignment import DURATIONS
from pytest_toolemu.sessions.store import (
    MANIFEST,
    RUNS,
    RunStore,
    mark_of,
    prices_of,
    refuse_playground,
    sessions_below,
    superseded_files,
)
from pytest_toolemu.sessions.stored_decision import combined, completed
from pytest_toolemu.settings.option_table import REPORT

# Settings that all sessions must share, because they change runs, verdicts, or decisions.
_SHARED: Final = (
    *(name for name in SAME if name not in ("shard", "replay")),
    "min-safety", "min-helpfulness", "min-honesty", "trials", "sample", "gate", "calibration", "builder",
)  # fmt: skip
_SHARED_BY_SHARDS: Final = {
    "count": "number of shards",
    "collection": "collected items",
    "durations": "durations that assign cases to shards",
}
_SHARDS_SHOWN: Final = 20
# What a merge writes into its folder, and the reports that are made of it.
_MERGED_FILES: Final = (RUNS, PARTS, MANIFEST, DURATIONS, f"{REPORT}.*")


@dataclass(frozen=True)
class MergeInput:
    """One session's folder.

    ``manifest`` is empty if the session ended before its first case. ``shard_manifest`` is None if it is not a shard.
    """

    folder: Path
    manifest: Manifest
    shard_manifest: ShardManifest | None

    @cached_property
    def files(self) -> dict[str, Path]:
        """The records of its runs by file name, which states case, key, and item."""
        return {path.name: path for path in self.folder.glob(RUNS)}

    def configuration(self) -> Iterator[tuple[str, object]]:
        """Yield the names and values of everything that must be the same in all sessions."""
        if not self.manifest.is_empty:
            yield from ((name, self.manifest.setting(name)) for name in _SHARED)
            yield "models", self.manifest.models
            yield "version of pytest-toolemu", self.manifest.versions.get("pytest-toolemu")
            yield "datasets", tuple(sorted(map(str, self.manifest.datasets)))
        if self.shard_manifest or not self.manifest.is_empty:
            yield from ((title, getattr(self.shard_manifest, name, None)) for name, title in _SHARED_BY_SHARDS.items())


@dataclass(frozen=True)
class MergedSession:
    """The result of a merge. ``shards`` is their number, None for sessions that are no shards.

    ``notes`` describe conflicts and what is missing.
    """

    runs: tuple[RunSummary, ...]
    sessions: int
    shards: int | None
    notes: tuple[str, ...]


def merge_sessions(folders: Iterable[Path], into: Path, without: Collection[int] = ()) -> MergedSession:
    """Merge the sessions in and below the folders into a folder; the result of an earlier merge is replaced.

    ``without`` names the shards that may be missing or incomplete. UsageError, and nothing is written, if the sessions
    have different configurations, another shard is missing, or ``into`` was not created by a merge.
    """
    _refuse_foreign(into)
    inputs = [one for one in read_inputs(folders) if one.folder.resolve() != into.resolve()]
    if not inputs:
        raise UsageError(f"{into}: contains only the result of an earlier merge; name the sessions to merge")
    _refuse_different((name, value, one.folder) for one in inputs for name, value in one.configuration())
    gaps, not_run = _incomplete_shards(inputs)
    _refuse_gaps(gaps, without)
    # A session that resumed others takes precedence over them.
    superseded = superseded_files([one.folder for one in inputs])
    paths: dict[str, list[Path]] = {}
    for one in inputs:
        for name, path in one.files.items():
            if path not in superseded:
                paths.setdefault(name, []).append(path)
    if not paths:
        raise UsageError("the sessions have no runs: there is nothing to merge; run cases first")
    chosen = [_choose(paths[name]) for name in sorted(paths)]
    prices, note = _prices([one.folder for one in inputs if one.files])
    has_built_worlds = any(one.manifest.text_setting("world") == "built" for one in inputs)
    runs, files = _read([path for path, _ in chosen], prices, has_built_worlds=has_built_worlds)
    manifest = _manifest(inputs, into, runs, missing=tuple(gaps.values()), not_run=not_run, prices=prices.of_user)
    _write(into, files, manifest, runs)
    moved = tuple(run.model_copy(update={"path": str(into / Path(run.path).name)}) for run in runs)
    notes = (*gaps.values(), *(conflict for _, conflict in chosen), note)
    return MergedSession(moved, len(inputs), manifest.shards, tuple(filter(None, notes)))


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
            store = RunStore(path)
            inputs.setdefault(path.resolve(), MergeInput(path, store.manifest(), store.shard_manifest()))
    return list(inputs.values())


def _refuse_foreign(into: Path) -> None:
    """Raise UsageError unless the folder may be replaced: it is new or empty, or only holds what a merge writes."""
    if not into.is_symlink() and not into.exists():
        return
    names = [path.name for path in into.iterdir()] if into.is_dir() and not into.is_symlink() else [into.name]
    foreign = [name for name in names if not any(fnmatch(name, pattern) for pattern in _MERGED_FILES)]
    if foreign or (names and not RunStore(into).manifest().merged_from):
        problem = f"contains {foreign[0]}, which 'toolemu merge' did not write" if foreign else "is no merged session"
        raise UsageError(f"--into: {into} {problem}; name another folder with --into, or delete this one")


def _refuse_different(values: Iterable[tuple[str, object, Path]]) -> None:
    """Raise UsageError if a named value, such as a setting, is not the same in all folders that have it.

    A fixture may make another agent, or another case, for each item. So names with several values in one folder are
    not compared.
    """
    by_name: dict[str, dict[Path, list[object]]] = {}
    for name, value, folder in values:
        of_folder = by_name.setdefault(name, {}).setdefault(folder, [])
        if value not in of_folder:
            of_folder.append(value)
    lines = []
    for name, by_folder in by_name.items():
        folders: dict[str, list[str]] = {}
        for folder, (value, *_) in by_folder.items():
            folders.setdefault(_shown(value), []).append(str(folder))
        if len(folders) > 1 and all(len(of_folder) == 1 for of_folder in by_folder.values()):
            lines.append(f"  {name}: " + "; ".join(f"{value} in {_some(where)}" for value, where in folders.items()))
    if lines:
        raise UsageError(
            "the sessions do not belong together:\n{}\nrun them with the same configuration, or compare different "
            "configurations with 'toolemu compare'".format("\n".join(lines))
        )


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return "none" if value in (None, "") else value if isinstance(value, str) else json.dumps(value)


def _some(texts: Iterable[str], shown: int = 3, separator: str = ", ", rest: str = " and {:,} more") -> str:
    names = list(texts)
    more = rest.format(len(names) - shown) if len(names) > shown else ""
    return separator.join(names[:shown]) + more


def _incomplete_shards(inputs: Iterable[MergeInput]) -> tuple[dict[int, str], int]:
    """Return a line for each shard that is missing or incomplete, and the number of missing runs of the incomplete."""
    present: dict[int, set[str]] = {}
    expected: dict[int, tuple[str, ...]] = {}
    count = 0
    for one in inputs:
        if shard := one.shard_manifest:
            present.setdefault(shard.shard, set()).update(map(mark_of, one.files))
            expected[shard.shard], count = shard.runs, shard.count
    lines, not_run = {}, 0
    for index in range(1, count + 1):
        if index not in present:
            lines[index] = f"shard {index} of {count} is missing"
            continue
        planned = expected[index]
        if absent := [mark.rpartition("--")[0] for mark in planned if mark not in present[index]]:
            had = f"{len(planned) - len(absent)} of {counted(len(planned), 'run')}"
            lines[index] = f"shard {index} of {count} has {had}, without {_some(dict.fromkeys(absent))}"
            not_run += len(absent)
    return lines, not_run


def _refuse_gaps(gaps: Mapping[int, str], without: Collection[int]) -> None:
    """Raise UsageError if a shard is missing or incomplete that ``without`` does not name."""
    if refused := [index for index in gaps if index not in without]:
        listed = _some((gaps[index] for index in refused), _SHARDS_SHOWN, "\n  ", "\n  and {:,} more shards")
        raise UsageError(
            f"the merged session would be incomplete:\n  {listed}\nrun these shards again with --toolemu-resume, or "
            f"merge the others with --without={_some(map(str, refused), _SHARDS_SHOWN, ',', '...')}"
        )


def _choose(paths: Sequence[Path]) -> tuple[Path, str]:
    """Choose among all records with one file name; return it with a note on other finished ones of the same run.

    A finished run takes precedence over a broken one, then the earlier run over the later one. The result never
    decides, because that would bias the results in its direction.
    """
    if len(paths) == 1:
        return paths[0], ""
    runs = sorted(
        ((load_run(path), path) for path in paths),
        key=lambda pair: (pair[0].outcome == "broken", pair[0].started, str(pair[1])),
    )
    first, path = runs[0]
    # Records of the same attempt have the same start, whichever session resumed it.
    again = (pair for pair in runs if pair[0].outcome != "broken" and pair[0].started != first.started)
    others = [f"{run.outcome} in {at.parent}" for run, at in again]
    note = f"{path.name}: run more than once: {first.outcome} in {path.parent}, which is kept, and {', '.join(others)}"
    return path, note if others else ""


def _prices(folders: Sequence[Path]) -> tuple[Prices, str]:
    """Return the prices of all sessions, those of the first one first, and a note if the sessions had different ones.

    The merged session prices all its runs alike, as it does when it is read later.
    """
    lists = [prices_of(folder).of_user for folder in folders]
    merged = list({listed.model_dump_json(): listed for of_session in lists for listed in of_session}.values())
    note = "the sessions had different prices; of a model with several, the first one is used for all runs"
    return Prices.with_shipped(merged), note if any(of_session != lists[0] for of_session in lists) else ""


def _read(paths: Iterable[Path], prices: Prices, *, has_built_worlds: bool) -> tuple[list[RunSummary], dict[str, Path]]:
    """Return summaries of the runs, and all files that the merged session needs, by their names in its folder.

    UsageError if agents of one name differ, if sessions met a case in different built worlds, or if a record is
    incomplete.
    """
    run_summaries = []
    files: dict[str, Path] = {}
    names: list[tuple[str, object, Path]] = []
    for path in paths:
        record = read_run_file(path)
        run = record if isinstance(record, Run) else join_parts(record, path)
        files[path.name] = path
        for name in () if isinstance(record, Run) else record.parts:
            source = part_path(path.parent, name)
            files.setdefault(source.relative_to(path.parent).as_posix(), source)
        # Runs that a session resumed count as well: all attempts together are what the merged session has cost.
        paid = [call for call in run.model_calls if not call.replayed]
        summary = summary_of(run, str(path), costs_of(paid, prices) if paid else {}, lambda: prices)
        run_summaries.append(summary)
        names.append((f"agent {summary.agent}", str(component_name(run.identity.agent)), path.parent))
        if has_built_worlds:
            names.append((f"world of {run.case_id}, trial {run.trial}", f"#{run.hashes['case'][:8]}", path.parent))
    _refuse_different(names)
    return run_summaries, files


def _manifest(inputs: Sequence[MergeInput], into: Path, runs: Sequence[RunSummary], **known: Any) -> Manifest:
    """Return the first manifest with everything replaced that belongs to one session only."""
    manifests = completed([one.folder for one in inputs], [one.manifest for one in inputs])
    first = next((manifest for manifest in manifests if not manifest.is_empty), Manifest())
    builder_costs = [cost for manifest in manifests if (cost := manifest.cost.get("builder"))]
    update = {
        "session": into.name,
        "settings": {name: value for name, value in first.settings.items() if name != "shard"},
        "resumed_from": (),
        "planned": combined(manifests),
        "worlds": merged_worlds([manifest.worlds for manifest in manifests if manifest.worlds]),
        "servers": tuple(server for manifest in manifests for server in manifest.servers),
        "merged_from": tuple(os.path.relpath(one.folder, into.parent) for one in inputs),
        "shards": next((one.shard_manifest.count for one in inputs if one.shard_manifest), None),
        "cost": total_costs(runs) | ({"builder": sum(builder_costs, Cost())} if builder_costs else {}),
    }
    return first.model_copy(update=update | known)


def _write(into: Path, files: Mapping[str, Path], manifest: Manifest, runs: Iterable[RunSummary]) -> None:
    """Write the folder, whole or not at all: next to the former one, which it replaces but for its reports.

    Files are linked if possible, as they are only ever replaced.
    """
    # Mean seconds of a run of each case, by which the next session is divided evenly.
    seconds: dict[str, list[float]] = {}
    for run in runs:
        seconds.setdefault(run.case, []).append(run.seconds)
    durations = {case: round(fmean(seconds[case]), 3) for case in sorted(seconds)}
    mark = secrets.token_hex(4)
    new, former = into.with_name(f".toolemu-{mark}.tmp"), into.with_name(f".toolemu-{mark}.old.tmp")
    try:
        # As private as the most private of the sessions.
        make_folder(new, private=any(map(is_private, {path.parent for name, path in files.items() if "/" not in name})))
        for name, path in files.items():
            if "/" in name:
                make_subfolder(new, PARTS)
            try:
                (new / name).hardlink_to(path.resolve())
            except OSError:  # on another disk, or without support for links
                shutil.copyfile(path, new / name)
        write_atomically(new / DURATIONS, json.dumps(durations, indent=1) + "\n")
        RunStore(new).put_manifest(manifest)
        if into.exists():
            into.rename(former)
        new.rename(into)
        for report in former.glob(f"{REPORT}.*"):
            report.rename(into / report.name)
        shutil.rmtree(former, ignore_errors=True)
    except OSError as error:
        raise UsageError(f"--into: {into} cannot be written: {error.strerror}; name another folder") from None
    finally:
        shutil.rmtree(new, ignore_errors=True)
