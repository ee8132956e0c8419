"""Runs on disk: one JSON file each, complete or not there at all, and never a credential in it."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator
from json import dumps, loads
from os import fsync
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import to_json

from pytest_toolemu.case import Case
from pytest_toolemu.errors import UsageError
from pytest_toolemu.folders import make_folder, opener_in
from pytest_toolemu.identifiers import file_stem
from pytest_toolemu.redaction import redact_json, secrets
from pytest_toolemu.regular_files import read_regular
from pytest_toolemu.run import Run, sha256
from pytest_toolemu.session_records import Manifest, ShardAccount
from pytest_toolemu.sharding import ACCOUNT
from pytest_toolemu.stored import first_problem, read_record
from pytest_toolemu.toolkit import Toolkit

MANIFEST = "session.json"
RUNS = "*--*.json"
"""Which files of a session's folder are runs."""

MAX_RUN_BYTES: Final = 256 * 1024 * 1024
"""The largest record of a run that is read."""


class RunStore:
    """The records of one session, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def create(cls, parent: Path, session: str, *, private: bool = True) -> RunStore:
        """Make the store of a new session below ``parent``, which version control ignores.

        Only its owner may read a ``private`` one, and what is written into it later. OSError when the disk refuses.
        """
        store = cls(parent / session)
        make_folder(store.folder, private=private)
        ignore = parent / ".gitignore"
        if not ignore.exists():
            write_json_text(ignore, "*\n")
        return store

    def path(self, run: Run, item: str = "") -> Path:
        """Where a run is kept: named by its case, its key, and a hash of the item it was run for."""
        name = run_file(run.case_id, run.key, item)
        if Path(name).name != name:  # records are checked when they are read; this is for runs that are made
            raise UsageError(f"{name!r} cannot be the name of a record; give the case an id without '/'")
        return self.folder / name

    def put(self, run: Run, item: str = "") -> Path:
        """Write a run, whole. OSError when the disk refuses.

        Items may have the same key (agents of your own that bear one name, equal cases in two folders) and keep their
        files apart; a rerun of an item replaces its former run.
        """
        path = self.path(run, item)
        write_json_text(path, _record(run) + "\n")
        return path

    def put_manifest(self, content: dict[str, Any]) -> None:
        """Write what the session was: settings, versions, what was selected."""
        self._write(self.folder / MANIFEST, content)

    def put_account(self, content: dict[str, Any]) -> None:
        """Write what a shard is to run."""
        self._write(self.folder / ACCOUNT, content)

    def account(self) -> dict[str, Any]:
        """Return what ``put_account`` wrote; empty for a session that is no shard. UsageError for a wrong file."""
        return self._read(ACCOUNT, ShardAccount, "the account of a shard")

    def put_recordings(self, content: dict[str, Any]) -> None:
        """Write what of the recordings the session used."""
        self._write(self.folder / "recordings.json", content)

    def manifest(self) -> dict[str, Any]:
        """Return what ``put_manifest`` wrote; empty when the session wrote none. UsageError for a wrong file."""
        return self._read(MANIFEST, Manifest, "the manifest of a session")

    def paths(self) -> Iterator[Path]:
        """The files of all runs, by name; half-written ones are called otherwise."""
        yield from sorted(self.folder.glob(RUNS))

    def __iter__(self) -> Iterator[Run]:
        for path in self.paths():
            yield load_run(path)

    def _read(self, name: str, model: type[BaseModel], what: str) -> dict[str, Any]:
        remedy = "restore the file, run the session again, or leave it out"
        try:
            found = read_record(self.folder / name, model, what=what, remedy=remedy)
        except FileNotFoundError:
            return {}
        return found.model_dump(mode="json", by_alias=True, exclude_unset=True)

    def _write(self, path: Path, content: dict[str, Any]) -> None:
        write_json_text(path, _json_text(redact_json(content)) + "\n")


def _record(run: Run) -> str:
    """A run as text. Credentials are looked for in the whole text, and only where one is found in every value of it."""
    known = secrets()
    try:
        text = to_json(run, indent=1, ensure_ascii=True, by_alias=False).decode()
        if not known.suspects(text):
            return text
    except ValueError:  # see _json_text
        pass
    return _json_text(redact_json(run.model_dump(mode="json"), known))


def _json_text(content: dict[str, Any]) -> str:
    """A line for each value, escaped to ASCII: no text of a model can make the file unreadable."""
    try:
        # The library's own takes ten times as long with lines: a record has thousands.
        return to_json(content, indent=1, ensure_ascii=True).decode()
    except ValueError:  # half of a surrogate pair, as in the name of a file: nobody reads it from JSON
        whole = dumps(content, ensure_ascii=False).encode("utf-8", "replace")
        return to_json(loads(whole), indent=1, ensure_ascii=True).decode()


def run_file(case_id: str, key: str, item: str) -> str:
    """The name of a run's file, known before the run is made."""
    return f"{file_stem(case_id)}--{key[:12]}-{item_hash(item)}.json"


def item_mark(case_id: str, item: str) -> str:
    """Of the name of an item's run as much as is known without its key."""
    return f"{file_stem(case_id)}--{item_hash(item)}"


def item_hash(item: str) -> str:
    """Return what the name of a run's file says of the item that it was made for."""
    return sha256(item)[:6]


def item_hash_of(name: str) -> str:
    """Return the ``item_hash`` in the name of a run's file."""
    return name.removesuffix(".json").rpartition("-")[2]


def mark_of(name: str) -> str:
    """The ``item_mark`` in the name of a run's file."""
    case_id, _, rest = name.removesuffix(".json").rpartition("--")
    return f"{case_id}--{item_hash_of(rest)}"


def load_run(path: Path) -> Run:
    """A stored run; UsageError when the file is no record of this version."""
    try:
        whole = read_regular(path, MAX_RUN_BYTES)
        text, case = _cut(whole, b"case", b"{}", _ANY_CASE)
        text, toolkits = _cut(text, b"toolkits", b"[]", b"[]")
        run = Run.model_validate_json(text)
        parts = {
            # A case's id is its file's name, so that no record of a case has it.
            "case": _case(case, run.case_id) if case else run.case.model_copy(update={"id": run.case_id}),
            "toolkits": _toolkits(toolkits) if toolkits else run.toolkits,
        }
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}; run the case again, or leave it out") from None
    except ValidationError as error:
        raise UsageError(f"{path}: not a record of a run that this version reads ({_reason(whole, error)})") from None
    return run.model_copy(update=parts)


def _reason(whole: bytes, error: ValidationError) -> str:
    """Return what is wrong with a record as a whole, of which only a part was looked at."""
    try:
        Run.model_validate_json(whole)
    except ValidationError as found:
        error = found
    return first_problem(Run, whole, error.errors(include_url=False))


# Every member said: what is not is copied from its default, which takes longer.
_ANY_CASE: Final = Case(title="-", toolkits=("-",), instruction="-").model_dump_json().encode()


def _cut(text: bytes, name: bytes, brackets: bytes, instead: bytes) -> tuple[bytes, bytes]:
    """A record with something else for one of its members, and the member; empty where the record has no such.

    For records as this module writes them. A line that begins so is no part of a text, as JSON has no line breaks
    inside its texts.
    """
    key = b'\n "' + name + b'": '
    start = text.find(key + brackets[:1] + b"\n") + len(key)
    end = text.find(b"\n " + brackets[1:], start) + 3
    if start < len(key) or end < 3:
        return text, b""
    return text[:start] + instead + text[end:], text[start:end]


# Case and toolkits are three quarters of a record's text, and the same in the records of all agents and trials.
@functools.lru_cache(maxsize=1024)
def _case(text: bytes, case_id: str) -> Case:
    return Case.model_validate_json(text).model_copy(update={"id": case_id})


_ALL: Final = TypeAdapter(tuple[Toolkit, ...])


@functools.lru_cache(maxsize=256)
def _toolkits(text: bytes) -> tuple[Toolkit, ...]:
    return _ALL.validate_json(text)


# Bound now: an agent may replace it.
_open = open


def write_json_text(path: Path, text: str) -> None:
    """Write a file whole or not at all: into a sibling, to the disk, then renamed over it. It outlasts a power cut.

    In a folder that only its owner may enter, only its owner may read it.
    """
    # Not named by the file, whose name may be as long as a name can be.
    temporary = path.with_name(f".toolemu-{os.getpid()}-{token_hex(4)}.tmp")
    try:
        with _open(temporary, "w", encoding="utf-8", opener=opener_in(path.parent)) as file:
            file.write(text)
            file.flush()
            fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _settle(path.parent)


def _settle(folder: Path) -> None:
    """Have a folder's names on the disk too: a power cut after this takes no file away. Not every system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            fsync(descriptor)
        finally:
            os.close(descriptor)
