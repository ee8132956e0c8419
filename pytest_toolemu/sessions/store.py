"""The runs of a session on disk: JSON files that are written whole or not at all, and how they are read again."""

from __future__ import annotations

import errno
import functools
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from json import dumps, loads
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel
from pydantic_core import to_json

from pytest_toolemu.analysis.rejudge import same_run
from pytest_toolemu.analysis.run_summary import RunSummary, paid_for, summary_of
from pytest_toolemu.core.run import Run, RunRecord, sha256
from pytest_toolemu.core.run_file import MAX_RUN_BYTES, PARTS, content_hash, load_run, part_path
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.file_access import make_folder, make_subfolder, read_record, write_atomically
from pytest_toolemu.formats.identifiers import file_stem
from pytest_toolemu.formats.redaction import redact
from pytest_toolemu.formats.yaml_document import Record
from pytest_toolemu.models.pricing import Prices, costs_of
from pytest_toolemu.sessions.manifest_records import WORLD_BUILDS, Manifest, ShardManifest, WorldBuilds, run_settings
from pytest_toolemu.sessions.shard_assignment import SHARD_MANIFEST

M = TypeVar("M", bound=BaseModel)

MANIFEST = "session.json"
RUNS = "*--*.json"
"""Pattern of the files in a session's folder that are runs."""


class RunStore:
    """The records of one session, in its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def create(cls, parent: Path, session: str, *, private: bool = True) -> RunStore:
        """Create the store of a new session below ``parent``, which version control ignores.

        Only its owner may read a ``private`` one and the files in it. Raise OSError if the disk refuses.
        """
        store = cls(parent / session)
        make_folder(store.folder, private=private)
        ignore = parent / ".gitignore"
        if not ignore.exists():
            write_atomically(ignore, "*\n")
        return store

    def path(self, run: Run, item: str = "") -> Path:
        """Return the file of a run, whose name states its case, its key, and a hash of its test item."""
        name = run_file(run.case_id, run.key, item)
        if Path(name).name != name:  # the IDs of stored runs are validated, those of new runs are not
            raise UsageError(f"{name!r} cannot be the name of a record; give the case an ID without '/'")
        return self.folder / name

    def put(self, run: Run, item: str = "") -> Path:
        """Write a run and those of its parts that the session does not have yet; return the run's file.

        Each file is written whole or not at all, the run's last. Raise OSError if the disk refuses, and
        RecordTooLargeError, a kind of OSError, if the run's file would be too large.

        Items may have the same key (custom agents with the same name, equal cases in two folders). They have separate
        files, and a rerun of an item replaces its former run.
        """
        path = self.path(run, item)
        parts = {
            "case": self._put_part(run.case),
            "toolkits": tuple(map(self._put_part, run.toolkits)),
            "dataset": None if run.dataset is None else self._put_part(run.dataset),
        }
        stored = RunRecord.model_construct(**{**vars(run), **parts})
        text = record_text(stored)
        if len(text) > (limit := record_limit()):
            raise RecordTooLargeError(len(text), limit)
        write_atomically(path, text)
        return path

    def _put_part(self, part: Record) -> str:
        """Write a case, toolkit, or dataset unless it is there; return its hash.

        Other processes may write the same part at the same time: all of them write the same content, and a file appears
        by a rename.
        """
        text = record_text(part)
        content = text.encode()
        name = content_hash(content)
        path = part_path(self.folder, name)
        if not path.is_file() or path.read_bytes() != content:  # a damaged one is written again
            make_subfolder(self.folder, PARTS)
            write_atomically(path, text)
        return name

    def put_manifest(self, manifest: Manifest) -> None:
        """Write settings, versions, and everything else that describes the session as a whole."""
        self.write(MANIFEST, manifest.model_dump(mode="json", exclude_unset=True))

    def put_shard_manifest(self, manifest: ShardManifest) -> None:
        """Write what the shard is to run."""
        self.write(SHARD_MANIFEST, manifest.model_dump(mode="json"))

    def shard_manifest(self) -> ShardManifest | None:
        """Return what ``put_shard_manifest`` wrote; None for a session that is not a shard.

        Raise UsageError for an invalid file.
        """
        return self._read(SHARD_MANIFEST, ShardManifest, "the manifest of a shard")

    def put_world_builds(self, builds: WorldBuilds) -> None:
        """Write what the session did to build worlds."""
        self.write(WORLD_BUILDS, builds.model_dump(mode="json"))

    def world_builds(self) -> WorldBuilds | None:
        """Return what ``put_world_builds`` wrote; None if the session built no worlds. Raise UsageError."""
        return self._read(WORLD_BUILDS, WorldBuilds, "the worlds of a session")

    def manifest(self) -> Manifest:
        """Return what ``put_manifest`` wrote; empty if the session has no manifest.

        Raise UsageError for an invalid file.
        """
        return self._read(MANIFEST, Manifest, "the manifest of a session") or Manifest()

    def paths(self) -> Iterator[Path]:
        """Yield the files of all runs, sorted by name; temporary files are not among them."""
        yield from sorted(self.folder.glob(RUNS))

    def __iter__(self) -> Iterator[Run]:
        for path in self.paths():
            yield load_run(path)

    def _read(self, name: str, model: type[M], description: str) -> M | None:
        remedy = "restore the file, run the session again, or omit the session"
        try:
            return read_record(self.folder / name, model, expected=description, remedy=remedy)
        except FileNotFoundError:
            return None

    def write(self, name: str, content: dict[str, Any]) -> None:
        """Write a file about the session as a whole, such as how it used its cassettes."""
        write_atomically(self.folder / name, json_text_of(content) + "\n")


def run_file(case_id: str, key: str, item: str) -> str:
    """Return the name of a run's file, which is known before the run starts."""
    return f"{file_stem(case_id)}--{key[:12]}-{item_hash(item)}.json"


def item_mark(case_id: str, item: str) -> str:
    """Return the part of a run's file name that is known without the run's key: case and item."""
    return f"{file_stem(case_id)}--{item_hash(item)}"


def item_hash(item: str) -> str:
    """Return the hash of an item in the names of its runs' files."""
    return sha256(item)[:6]


def item_hash_of(name: str) -> str:
    """Return the ``item_hash`` in the name of a run's file."""
    return name.removesuffix(".json").rpartition("-")[2]


def mark_of(name: str) -> str:
    """Return the ``item_mark`` in the name of a run's file."""
    case_id, _, rest = name.removesuffix(".json").rpartition("--")
    return f"{case_id}--{item_hash_of(rest)}"


def record_text(record: Record) -> str:
    """Return a run or a part of one as the text of a file, without secrets: its hash names a part."""
    try:
        text = to_json(record, indent=1, ensure_ascii=True, by_alias=False).decode()
    except ValueError:  # see json_text_of
        text = json_text_of(record.model_dump(mode="json"))
    return redact(text) + "\n"


def json_text_of(content: dict[str, Any]) -> str:
    """Return JSON with a line for each value, escaped to ASCII so that no text can make the file unreadable."""
    try:
        # The standard library takes ten times as long with one line per value, and a record has thousands.
        return to_json(content, indent=1, ensure_ascii=True).decode()
    except ValueError:  # half of a surrogate pair, for example in a file name, which JSON readers refuse
        encoded = dumps(content, ensure_ascii=False).encode("utf-8", "replace")
        return to_json(loads(encoded), indent=1, ensure_ascii=True).decode()


_MEGABYTE: Final = 1_000_000
_MAX_CHARACTERS: Final = 1_000
"""Characters of each text that a shortened record keeps."""
_TEXTS: Final = {
    "steps", "dialogue", "answer", "stop_reason", "discarded", "agent_log", "agent_warning", "thought", "verdicts",
}  # fmt: skip


class RecordTooLargeError(OSError):
    """The record of a run exceeds what can be written or read again."""

    def __init__(self, size: int, limit: int) -> None:
        amounts = [f"{n / _MEGABYTE:,.1f} MB" if n >= _MEGABYTE / 10 else f"{n:,} bytes" for n in (size, limit)]
        super().__init__(errno.EFBIG, "the record of this run has {}, but the limit is {}".format(*amounts))


def record_limit() -> int:
    """Return how many bytes a record may have: what is read again, or less if this process may not write as much."""
    if sys.platform == "win32":
        return MAX_RUN_BYTES
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    return MAX_RUN_BYTES if soft == resource.RLIM_INFINITY else min(MAX_RUN_BYTES, soft)


def shortened(run: Run, error: RecordTooLargeError) -> Run:
    """Return a run whose record is too large as a broken one, with its texts cut and without its model calls."""
    message = f"{error.strerror}; texts in the record are cut. Limit what tools and the agent return"
    content = run.model_dump(mode="json")
    content |= {name: _cut(content[name]) for name in _TEXTS}
    broken = {
        "outcome": "broken",
        "reasons": [message],
        "error": {"type": "RecordTooLargeError", "message": message, "origin": "harness"},
        "messages": [],
        "model_calls": [],
    }
    return Run.model_validate_json(to_json(content | broken)).model_copy(update={"case": run.case})


def _cut(value: Any) -> Any:
    if isinstance(value, str):
        left_out = len(value) - _MAX_CHARACTERS
        return f"{value[:_MAX_CHARACTERS]}... ({left_out:,} more characters were cut)" if left_out > 0 else value
    if isinstance(value, dict):
        return {_cut(key): _cut(inner) for key, inner in value.items()}
    return [_cut(inner) for inner in value] if isinstance(value, list) else value


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
