"""A folder of recordings: which file is whose, and what of it may be played and written."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import re
from collections import defaultdict
from pathlib import Path
from typing import Final

from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.atomic_write import write_json_text
from pytest_toolemu.formats.regular_files import read_regular
from pytest_toolemu.models.cassettes.file_format import Cassette, decode, encode
from pytest_toolemu.models.cassettes.request import CassetteEntry
from pytest_toolemu.settings import RecordMode

SUFFIX: Final = ".json"
_PATTERN: Final = f"*--*{SUFFIX}"
_LONGEST: Final = 100
_MAX_BYTES: Final = 256 * 1024 * 1024


class CassetteDirectory:
    """Recordings of many items, a file each, so that workers and cases in flight never write to the same one."""

    def __init__(self, folder: Path, mode: RecordMode) -> None:
        self.folder = folder
        self.mode = mode

    @property
    def mode_in_words(self) -> str:
        """For a manifest: whether models answered."""
        return "replayed" if self.mode == "none" else f"recorded ({self.mode})"

    def file(self, item: str) -> str:
        """The name of an item's file: what a person calls it, and a hash, as two items may be called alike."""
        name = re.sub(r"[^A-Za-z0-9.]+", "-", item.rpartition("::")[2])[:_LONGEST].strip("-.")
        return f"{name}--{hashlib.sha256(item.encode()).hexdigest()[:6]}{SUFFIX}"

    def load(self, item: str) -> Cassette | None:
        """What is recorded of an item; None when nothing is. UsageError when the file cannot be read."""
        path = self.folder / self.file(item)
        try:
            return decode(read_regular(path, _MAX_BYTES))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            remedy = "restore the file, or delete it and record it again with --toolemu-record=new"
            raise UsageError(f"{path}: not a recording that this version reads ({reason}); {remedy}") from None

    def save(self, recording: Cassette) -> None:
        """Write an item's recording, whole or not at all."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json_text(self.folder / self.file(recording.item), encode(recording))

    def files(self) -> list[Path]:
        """All recordings, by name."""
        return sorted(self.folder.glob(_PATTERN))

    def elsewhere(self, key: str, nth: int) -> tuple[str, CassetteEntry] | None:
        """The reply that another item of the folder got to the same request the nth time, counted from 0.

        Only where nothing is written: what is found must not depend on which item is recorded first.
        """
        for name, entries in self._by_key.get(key, {}).items():
            if nth < len(entries):
                return name, entries[nth]
        return None

    def of_case(self, case: str) -> list[tuple[str, Cassette]]:
        """All recordings of a case, with the names of their files, whoever acted in it."""
        return [(name, recording) for name, recording in self._all.items() if recording.case == case]

    @functools.cached_property
    def _all(self) -> dict[str, Cassette]:
        found = {}
        for path in self.files():
            with contextlib.suppress(OSError, ValueError):  # its own item tells
                found[path.name] = decode(read_regular(path, _MAX_BYTES))
        return found

    @functools.cached_property
    def _by_key(self) -> dict[str, dict[str, list[CassetteEntry]]]:
        found: dict[str, dict[str, list[CassetteEntry]]] = defaultdict(lambda: defaultdict(list))
        for name, recording in self._all.items():
            for entry in recording.entries:
                found[entry.request.key][name].append(entry)
        return found
