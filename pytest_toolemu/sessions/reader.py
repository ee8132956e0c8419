"""Read the results of earlier sessions from their folders."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from pytest_toolemu.analysis.rejudge import same_run
from pytest_toolemu.analysis.run_summary import RunSummary, paid_for, summary_of
from pytest_toolemu.core.run import Run
from pytest_toolemu.core.run_file import load_run
from pytest_toolemu.errors import UsageError
from pytest_toolemu.models.pricing import Prices, costs_of
from pytest_toolemu.sessions.manifest_records import Manifest, run_settings
from pytest_toolemu.sessions.shard_assignment import SHARD_MANIFEST
from pytest_toolemu.sessions.store import MANIFEST, RUNS, RunStore, item_hash, mark_of


def newest_evaluations(files: Sequence[Path]) -> list[Path]:
    """Return the files without the older evaluations of runs that ``toolemu judge`` judged again.

    The file name of a rejudged record contains a hash of the name of the record that it was made from.
    """
    judged_folders = {folder for folder in {path.parent for path in files} if manifest_of(folder).judged_from}
    if not judged_folders:
        return list(files)
    made_from = {rejudged_mark(path): mark_of(path.name) for path in files if path.parent in judged_folders}
    evaluations: dict[str, list[Path]] = {}
    for path in files:
        evaluations.setdefault(_first_mark(rejudged_mark(path), made_from), []).append(path)
    originals = {rejudged_mark(path) for path in files if path.parent not in judged_folders}
    if originals:
        _join(evaluations, originals)
    newest = {
        max(group, key=lambda path: (load_run(path).started, str(path))) if len(group) > 1 else group[0]
        for group in evaluations.values()
    }
    return [path for path in files if path in newest]


def _join(evaluations: dict[str, list[Path]], originals: set[str]) -> None:
    """Move evaluations made from a record that is not here to an original of the same run, if there is one."""
    orphans = [mark for mark in evaluations if mark not in originals]
    by_run: dict[str, list[str]] = {}
    for mark in originals if orphans else ():
        by_run.setdefault(same_run(load_run(evaluations[mark][0])), []).append(mark)
    for mark in orphans:
        if same := by_run.get(same_run(load_run(evaluations[mark][0]))):
            evaluations[same.pop()] += evaluations.pop(mark)


def read_runs(folders: Iterable[Path]) -> Iterator[tuple[Path, Run]]:
    """Yield every run in the folders with its file, sorted by file name; each run once.

    UsageError for a folder without runs, and for a file that is not a valid record.
    """
    for path in run_files(folders):
        yield path, load_run(path)


def run_files(folders: Iterable[Path]) -> list[Path]:
    """Return the files of all runs, sorted by name; UsageError for a folder without runs.

    A file's name states case, key, and item, so files of the same name in two folders are repetitions of one run: a
    folder of a session that resumed the other one counts, else the last folder.
    """
    paths_of: dict[Path, list[Path]] = {}
    for folder in folders:
        paths_of[folder] = sorted(folder.glob(RUNS))
        if not paths_of[folder]:
            raise UsageError(f"{folder}: there are no runs here; {_remedy(folder)}")
    superseded = superseded_files(paths_of)
    files = {path.name: path for paths in paths_of.values() for path in paths if path not in superseded}
    return [files[name] for name in sorted(files)]


def superseded_files(folders: Collection[Path]) -> set[Path]:
    """Return the files of runs whose items also have a run in a session that resumed theirs with the same settings.

    If a case has changed in between, its two runs have different keys, so the names of their files differ.
    """
    if len(folders) < 2:
        return set()
    manifests = {folder.resolve(): (folder, manifest_of(folder)) for folder in folders}
    resumed = {
        path: {(folder.parent / name).resolve() for name in manifest.resumed_from}
        for path, (folder, manifest) in manifests.items()
    }
    superseded: set[Path] = set()
    for later, earlier in resumed.items():
        folder, manifest = manifests[later]
        settings = run_settings(manifest.settings)
        replaced = [
            manifests[path][0]
            for path in earlier & manifests.keys()
            # Two sessions cannot have resumed each other: manifests that say so would leave no run at all.
            if later not in resumed[path] and run_settings(manifests[path][1].settings) == settings
        ]
        marks = {mark_of(path.name) for path in folder.glob(RUNS)} if replaced else set()
        superseded.update(path for one in replaced for path in one.glob(RUNS) if mark_of(path.name) in marks)
    return superseded


def refuse_playground(folders: Iterable[Path]) -> None:
    """Raise UsageError for a session of the playground, which is no measurement and so part of no figure."""
    if folder := next((folder for folder in folders if manifest_of(folder).playground), None):
        raise UsageError(
            f"{folder}: a person played these runs in the playground, so they are part of no figure; leave it out, or "
            "read one run with 'toolemu show'"
        )


def read_run_summaries(folders: Sequence[Path]) -> list[RunSummary]:
    """Return a summary of every run in the folders by its newest evaluation, priced as its session was.

    Raise UsageError for a session of the playground.
    """
    refuse_playground(folders)
    prices = functools.cache(prices_of)
    files = newest_evaluations(run_files(folders))
    return [summarize_run(load_run(path), str(path), prices(path.parent)) for path in files]


def summarize_run(run: Run, path: str, prices: Prices) -> RunSummary:
    """Return the summary of a run, with the cost of its requests at these prices."""
    return summary_of(run, path, costs_of(paid_for(run), prices), lambda: prices)


def prices_of(folder: Path) -> Prices:
    """Return the prices that a session used, or the shipped prices if it used no others."""
    return Prices.with_shipped(manifest_of(folder).prices)


def manifest_of(folder: Path) -> Manifest:
    """Return a session's manifest; empty if it has none. UsageError if it cannot be read."""
    return RunStore(folder).manifest()


def settings_of(folders: Iterable[Path], names: Iterable[str]) -> tuple[dict[str, list[str]], Path]:
    """Return the sessions' values of these settings, and the folder that their paths are relative to.

    UsageError if the sessions differ, or if a manifest cannot be read.
    """
    keys = tuple(names)
    sessions: list[tuple[dict[str, list[str]], str]] = []
    for folder in folders:
        manifest = manifest_of(folder)
        values = {name: list(manifest.list_setting(name)) for name in keys}
        sessions.append((values, manifest.rootdir))
    if any(values != sessions[0][0] for values, _ in sessions):
        raise UsageError("the sessions had different gates or calibrations; name the gate with --gate")
    root = Path(sessions[0][1])
    return sessions[0][0], root if root.is_dir() else Path()


def sessions_below(folder: Path) -> list[Path]:
    """Return the folders of sessions, sorted: this folder, or those anywhere below it but the playground's."""
    marks = (MANIFEST, SHARD_MANIFEST)
    if any((folder / name).is_file() for name in marks):
        return [folder]
    below = {path.parent for name in marks for path in folder.rglob(name)}
    return sorted(each for each in below if not manifest_of(each).playground)


def rejudged_mark(path: Path) -> str:
    """Return the mark of the records that ``toolemu judge`` writes for the run in this file."""
    return f"{path.name.rpartition('--')[0]}--{item_hash(path.stem)}"


def _first_mark(mark: str, made_from: Mapping[str, str]) -> str:
    """Follow a record to the one that it was made from, through all rejudged records between them."""
    visited: set[str] = set()
    while mark in made_from and mark not in visited:
        visited.add(mark)
        mark = made_from[mark]
    return mark


def _remedy(folder: Path) -> str:
    sessions = sorted({path.parent for path in folder.glob(f"*/{RUNS}")})
    if sessions:
        return f"name the folder of a session in it, such as {sessions[-1]}"
    if manifest_of(folder).judges:
        return "its judges have not answered yet; run the same 'toolemu judge' command again"
    return "name the folder of a session, as shown in its last line, 'records: ...'"
